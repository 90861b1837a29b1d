//! Takes spans to the collector.
//!
//! By hand, as one type of message is sent in batches: `opentelemetry-otlp` would bring the SDK with its own pipeline and a
//! second client stack (tonic's transport, or reqwest) for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use canopus_http::Version;
use canopus_http::grpc::{self, CallError};
use http::{HeaderValue, Request, Uri, header, request};
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
    Http(#[from] canopus_http::Error),
    #[error("the collector does not answer the call: {0}")]
    Call(#[from] CallError),
    #[error("the collector answers {0}")]
    Status(String),
    #[error("the collector has no usable address: {0}")]
    Address(String),
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
    pub(crate) async fn run(&mut self) {
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

    /// Sends one HTTP/1.1 request.
    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        spans: Bytes,
    ) -> Result<(), ExportError> {
        let endpoint = &self.settings.endpoint;
        let path = endpoint.path_and_query().map_or("/", |path| path.as_str());
        let host = endpoint.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let request = Request::post(path).header(header::HOST, host).header(header::CONNECTION, "close");
        let request = self.with_headers(request).header(header::CONTENT_TYPE, "application/x-protobuf");
        let request = request.body(spans).map_err(|error| ExportError::Address(error.to_string()))?;
        let status = canopus_http::send(stream, Version::Http1, request).await?.status();
        if status.is_success() { Ok(()) } else { Err(ExportError::Status(status.to_string())) }
    }

    /// Makes one gRPC call.
    async fn call(&self, stream: TcpStream, spans: Bytes) -> Result<(), ExportError> {
        let authority = self.settings.endpoint.authority().map_or("", |authority| authority.as_str());
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(METHOD).build();
        let uri = uri.map_err(|error| ExportError::Address(error.to_string()))?;
        let request = self.with_headers(Request::builder().uri(uri));
        let answer = grpc::call(stream, request, &spans, LONGEST).await?;
        match answer.grpc_status.as_ref().map(HeaderValue::as_bytes) {
            Some(b"0") => Ok(()),
            Some(code) => Err(ExportError::Status(format!("code {}", String::from_utf8_lossy(code)))),
            None => Err(ExportError::Status(answer.status.to_string())),
        }
    }

    /// Adds the headers that users configured for the collector, such as credentials; they win over our own.
    fn with_headers(&self, mut request: request::Builder) -> request::Builder {
        if let Some(headers) = request.headers_mut() {
            headers.insert(header::USER_AGENT, HeaderValue::from_static("canopus"));
            headers.extend(self.settings.headers.clone());
        }
        request
    }
}
