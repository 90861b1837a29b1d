//! One proxy on one connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use canopus_xds::session::Protocol;
use http::{HeaderMap, Request, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::envelope::Scanner;
use super::proxy::Proxy;
use super::record::Record;

/// How much the server may send before it is read.
const WINDOW: u32 = 1 << 20;

/// A proxy and what all of them share.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) proxy: Arc<Mutex<Proxy>>,
    pub(super) record: Arc<Mutex<Record>>,
}

impl Seat {
    /// Speaks for the proxy on a connection, until the stream ends; how it ended is always an error.
    pub(super) async fn converse(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<()> {
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(io))
            .await?;
        let _connection = AbortOnDrop(tokio::spawn(connection));
        let (say, outbox) = mpsc::unbounded_channel();
        let protocol = self.open(&say);
        let response = sender.send_request(request(protocol, Outbox(outbox))?).await?;
        check(response.headers())?;
        {
            let mut record = self.record.lock();
            record.totals.streams += 1;
            record.last = Instant::now();
        }
        self.listen(protocol, response.into_body(), &say).await
    }

    fn open(&self, say: &mpsc::UnboundedSender<Bytes>) -> Protocol {
        let mut proxy = self.proxy.lock();
        for request in proxy.open(&mut self.record.lock()) {
            let _ = say.send(request);
        }
        proxy.protocol()
    }

    async fn listen(
        &self,
        protocol: Protocol,
        mut body: Incoming,
        say: &mpsc::UnboundedSender<Bytes>,
    ) -> Result<()> {
        let mut scanner = Scanner::new(protocol);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(chunk) => self.hear(&mut scanner, &chunk, say)?,
                Err(frame) => check(frame.trailers_ref().unwrap_or(&HeaderMap::new()))?,
            }
        }
        bail!("the server ended the stream")
    }

    fn hear(&self, scanner: &mut Scanner, chunk: &[u8], say: &mpsc::UnboundedSender<Bytes>) -> Result<()> {
        let (mut proxy, mut record) = (self.proxy.lock(), self.record.lock());
        record.totals.bytes += chunk.len() as u64;
        scanner.feed(chunk, &mut |piece| {
            for request in proxy.take(piece, &mut record) {
                let _ = say.send(request);
            }
        })?;
        Ok(())
    }
}

fn request(protocol: Protocol, outbox: Outbox) -> Result<Request<Outbox>> {
    let method = match protocol {
        Protocol::Sotw => "StreamAggregatedResources",
        Protocol::Delta => "DeltaAggregatedResources",
    };
    let uri = format!(
        "http://istiod.istio-system.svc/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}"
    );
    let request = Request::post(uri)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(outbox);
    request.context("a request")
}

/// Fails if headers or trailers tell of a failure.
fn check(headers: &HeaderMap) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => bail!("status {code}: {}", text("grpc-message").unwrap_or_default()),
    }
}

/// What a proxy has to say, as the body of its request.
struct Outbox(mpsc::UnboundedReceiver<Bytes>);

impl Body for Outbox {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A task that ends when nobody wants it any more.
pub(super) struct AbortOnDrop<T>(pub(super) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
