//! Takes spans to the collector.
//!
//! By hand, as one type of message is sent in batches: `opentelemetry-otlp` would bring the SDK with its own pipeline and a
//! second client stack (tonic's transport, or reqwest) for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::warn;

use super::settings::{Protocol, Settings};
use super::{Span, encode};
use crate::jwks;

/// The most spans that are exported at once.
const AT_ONCE: usize = 512;

/// The longest answer that is read.
const LONGEST: usize = 64 << 10;

/// The method of a collector.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Why spans were not taken.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the collector cannot be reached: {0}")]
    Connection(#[from] std::io::Error),
    #[error("the collector does not speak the protocol: {0}")]
    Http(#[from] hyper::Error),
    #[error("the collector answers {0}")]
    Status(String),
    #[error("the collector has no usable address: {0}")]
    Address(String),
    #[error("the collector's answer cannot be read: {0}")]
    Answer(String),
    #[error("the collector has not answered within {0:?}")]
    Late(Duration),
}

/// Takes spans to the collector until there will be no more.
pub(crate) struct Exporter {
    settings: Settings,
    waiting: mpsc::Receiver<Span>,
    /// How many spans were dropped since that was last told.
    dropped: Arc<AtomicU64>,
}

impl Exporter {
    pub(super) fn new(settings: Settings, waiting: mpsc::Receiver<Span>, dropped: Arc<AtomicU64>) -> Self {
        Self { settings, waiting, dropped }
    }

    /// Exports what comes, in batches. What is not taken is not tried again: there will be more.
    pub(crate) async fn run(mut self) {
        let mut spans = Vec::new();
        let mut failing = false;
        while self.waiting.recv_many(&mut spans, AT_ONCE).await > 0 {
            if spans.len() < AT_ONCE {
                sleep(self.settings.delay).await;
                while spans.len() < AT_ONCE
                    && let Ok(span) = self.waiting.try_recv()
                {
                    spans.push(span);
                }
            }
            let exported = self.export(encode::request(&self.settings.resource, &spans)).await;
            if let Err(error) = &exported
                && !failing
            {
                warn!(%error, "spans are lost");
            }
            failing = exported.is_err();
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                warn!(dropped, "there were more spans than the collector takes");
            }
            spans.clear();
        }
    }

    async fn export(&self, spans: Bytes) -> Result<(), ExportError> {
        let patience = self.settings.timeout;
        timeout(patience, self.send(spans)).await.unwrap_or(Err(ExportError::Late(patience)))
    }

    async fn send(&self, spans: Bytes) -> Result<(), ExportError> {
        let endpoint = &self.settings.endpoint;
        let wrong = || ExportError::Address(endpoint.to_string());
        let host = endpoint.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
        let is_secure = endpoint.scheme_str() == Some("https");
        let port = endpoint.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        match self.settings.protocol {
            Protocol::Grpc => self.call(stream, spans).await,
            Protocol::Http if is_secure => {
                let tls = jwks::tls_client().map_err(|error| ExportError::Address(error.to_string()))?;
                let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
                self.post(TlsConnector::from(Arc::new(tls)).connect(name, stream).await?, spans).await
            }
            Protocol::Http => self.post(stream, spans).await,
        }
    }

    /// One request of HTTP/1.1.
    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        spans: Bytes,
    ) -> Result<(), ExportError> {
        let endpoint = &self.settings.endpoint;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let path = endpoint.path_and_query().map_or("/", |path| path.as_str());
        let host = endpoint.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let request = Request::post(path).header(header::HOST, host).header(header::CONNECTION, "close");
        let request = self.finish(request, "application/x-protobuf", spans)?;
        let response = sender.send_request(request).await;
        connection.abort();
        let status = response?.status();
        if status.is_success() { Ok(()) } else { Err(ExportError::Status(status.to_string())) }
    }

    /// One call of gRPC.
    async fn call(&self, stream: TcpStream, spans: Bytes) -> Result<(), ExportError> {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let authority = self.settings.endpoint.authority().map_or("", |authority| authority.as_str());
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(METHOD).build();
        let uri = uri.map_err(|error| ExportError::Address(error.to_string()))?;
        let mut frame = BytesMut::with_capacity(spans.len() + 5);
        frame.put_u8(0);
        frame.put_u32(u32::try_from(spans.len()).unwrap_or(u32::MAX));
        frame.put(spans);
        let request = Request::post(uri).header(header::TE, "trailers");
        let request = self.finish(request, "application/grpc", frame.freeze())?;
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let answer = Limited::new(body, LONGEST).collect().await;
        connection.abort();
        let answer = answer.map_err(|error| ExportError::Answer(error.to_string()))?;
        // A call that failed at once has its status in the head.
        let trailers = answer.trailers().cloned().unwrap_or_default();
        let status = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status"));
        match status.map(HeaderValue::as_bytes) {
            Some(b"0") => Ok(()),
            Some(code) => Err(ExportError::Status(format!("code {}", String::from_utf8_lossy(code)))),
            None => Err(ExportError::Status(head.status.to_string())),
        }
    }

    fn finish(
        &self,
        request: http::request::Builder,
        content_type: &'static str,
        content: Bytes,
    ) -> Result<Request<Full<Bytes>>, ExportError> {
        let request =
            request.header(header::CONTENT_TYPE, content_type).header(header::USER_AGENT, "canopus");
        let mut request =
            request.body(Full::new(content)).map_err(|error| ExportError::Address(error.to_string()))?;
        request.headers_mut().extend(self.settings.headers.clone());
        Ok(request)
    }
}
