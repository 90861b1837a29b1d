//! A plain HTTP client for tests: one request, one connection, the whole answer.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

pub use http::{HeaderMap, Method, StatusCode};

/// Answers longer than this are an error: a test should not drown in one.
const BODY_LIMIT: usize = 64 << 20;

/// A request under construction.
#[derive(Debug)]
pub struct Request {
    address: SocketAddr,
    http2: bool,
    host: String,
    path: String,
    method: Method,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A whole answer.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Body, as text.
    pub body: String,
}

/// Begins a request for `path` to whoever listens on `address`.
pub fn request(method: Method, address: SocketAddr, path: &str) -> Request {
    Request {
        address,
        http2: false,
        host: address.to_string(),
        path: path.to_owned(),
        method,
        headers: Vec::new(),
        body: Bytes::new(),
    }
}

/// Gets `path` from whoever listens on `address`.
pub async fn get(address: SocketAddr, path: &str) -> Result<Response> {
    request(Method::GET, address, path).send().await
}

impl Request {
    /// Sends this host name instead of the address.
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Adds a header field.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Speaks HTTP/2 from the first byte instead of HTTP/1.1.
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Sends the request and reads the whole answer.
    pub async fn send(self) -> Result<Response> {
        let what = format!("{} http://{}{} (host {})", self.method, self.address, self.path, self.host);
        self.exchange().await.context(what)
    }

    async fn exchange(self) -> Result<Response> {
        let stream = TokioIo::new(TcpStream::connect(self.address).await?);
        let request = self.message()?;
        let response = if self.http2 {
            let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            sender.send_request(request).await?
        } else {
            let (mut sender, connection) = conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            sender.send_request(request).await?
        };

        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(anyhow::Error::from_boxed)?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    fn message(&self) -> Result<http::Request<Full<Bytes>>> {
        let mut builder = http::Request::builder().method(&self.method);
        builder = if self.http2 {
            builder.uri(format!("http://{}{}", self.host, self.path))
        } else {
            builder.uri(&self.path).header(http::header::HOST, &self.host)
        };
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        Ok(builder.body(Full::new(self.body.clone()))?)
    }
}

impl Response {
    /// The body of an answer with status 200; anything else is an error that shows the answer.
    pub fn ok(self) -> Result<String> {
        ensure!(self.status == StatusCode::OK, "status {}: {}", self.status, self.body);
        Ok(self.body)
    }
}
