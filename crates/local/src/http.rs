//! Requests to the programs of a mesh: bounded answers, a time limit, connections that are kept.
//!
//! Not by `canopus-http`, which makes one request on a connection: the load of a tour reuses connections as browsers do, and has to
//! notice between two requests that a server closed one.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use canopus_runtime::tasks;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The largest answer that is read.
const LARGEST_BODY: usize = 32 << 20;

/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Status.
    pub(crate) status: StatusCode,
    /// Header fields.
    pub(crate) headers: HeaderMap,
    /// Body.
    pub(crate) body: Bytes,
}

impl Response {
    /// The body as text, if the status says that all is well.
    pub(crate) fn text(&self) -> Result<String> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        if !self.status.is_success() {
            bail!("{}: {}", self.status, text.trim());
        }
        Ok(text)
    }
}

/// A connection on which requests follow each other.
pub(crate) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        in_time(async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tasks::detach("http-connection", async move {
                // How it ended is seen by the request on it.
                let _ = connection.await;
            });
            Ok(Self { sender })
        })
        .await
        .with_context(|| address.to_string())
    }

    /// Whether another request can be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn get(
        &mut self,
        authority: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<Response> {
        let mut request = Request::get(path).header(header::HOST, authority);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::new())?;
        in_time(async {
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, LARGEST_BODY).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            Ok(Response { status: head.status, headers: head.headers, body })
        })
        .await
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Response> {
    let mut connection = Connection::open(address).await?;
    connection.get(&address.to_string(), path, &BTreeMap::new()).await
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| bail!("no answer within {} seconds", PATIENCE.as_secs()))
}
