//! One proxy on one connection.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use canopus_xds::session::Protocol;
use h2::client::{Connection, ResponseFuture};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, header};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use super::envelope::Scanner;
use super::proxy::Proxy;
use super::record::Record;

/// How much the server may send before it is read.
const WINDOW: u32 = 1 << 20;

/// A proxy and what all of them share.
#[derive(Clone)]
pub(super) struct Conversation {
    pub(super) proxy: Arc<Mutex<Proxy>>,
    pub(super) record: Arc<Mutex<Record>>,
}

impl Conversation {
    /// Speaks for the proxy on a connection, until the stream ends; how it ended is always an error.
    ///
    /// The connection and the stream on it are one task. Whatever the stream does follows from what the connection reads
    /// and leads to what it writes, so they take turns and wake nobody.
    pub(super) async fn converse(&self, io: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
        let (mut sender, mut connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake::<_, Bytes>(io)
            .await?;
        let protocol = self.proxy.lock().protocol();
        let (response, outgoing) = sender.send_request(request(protocol)?, false)?;
        let scanner = Scanner::new(protocol);
        let mut stream =
            Stream { conversation: self, scanner, incoming: Incoming::Expected(response), outgoing };
        stream.open()?;
        let nap = Arc::new(Nap::default());
        let waker = Waker::from(Arc::clone(&nap));
        poll_fn(|cx| {
            nap.end(cx.waker());
            let turned = take_turns(&mut connection, &mut stream, &nap, &mut Context::from_waker(&waker));
            nap.begin();
            turned
        })
        .await
    }
}

/// Drives the connection and its stream in turns until neither can go on.
fn take_turns<IO: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<IO>,
    stream: &mut Stream<'_>,
    nap: &Nap,
    cx: &mut Context<'_>,
) -> Poll<Result<()>> {
    loop {
        // What somebody was woken for in the turn before is done in this one.
        nap.forget();
        if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
            return Poll::Ready(ended.map_err(Into::into).and_then(|()| bail!("the server hung up")));
        }
        match stream.step() {
            Ok(true) => {}
            Ok(false) => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// The stream of a proxy. It is looked at after every turn of its connection and needs nobody to wake it.
struct Stream<'a> {
    conversation: &'a Conversation,
    scanner: Scanner,
    incoming: Incoming,
    outgoing: SendStream<Bytes>,
}

enum Incoming {
    Expected(ResponseFuture),
    Open(RecvStream),
}

impl Stream<'_> {
    /// Says what a proxy says first.
    fn open(&mut self) -> Result<()> {
        let said = self.conversation.proxy.lock().open(&mut self.conversation.record.lock());
        said.into_iter().try_for_each(|request| self.say(request))
    }

    fn say(&mut self, request: Bytes) -> Result<()> {
        self.outgoing.send_data(request, false)?;
        Ok(())
    }

    /// Takes what has come; whether there was something.
    fn step(&mut self) -> Result<bool> {
        let cx = &mut Context::from_waker(Waker::noop());
        match &mut self.incoming {
            Incoming::Expected(response) => {
                let Poll::Ready(response) = Pin::new(response).poll(cx) else { return Ok(false) };
                let response = response?;
                check(response.headers())?;
                self.incoming = Incoming::Open(response.into_body());
                let mut record = self.conversation.record.lock();
                record.totals.streams += 1;
                record.last = Instant::now();
                Ok(true)
            }
            Incoming::Open(body) => match body.poll_data(cx) {
                Poll::Pending => Ok(false),
                Poll::Ready(Some(chunk)) => {
                    let chunk = chunk?;
                    body.flow_control().release_capacity(chunk.len())?;
                    self.hear(&chunk)?;
                    Ok(true)
                }
                Poll::Ready(None) => {
                    let Poll::Ready(trailers) = body.poll_trailers(cx) else { return Ok(false) };
                    check(&trailers?.unwrap_or_default())?;
                    bail!("the server ended the stream")
                }
            },
        }
    }

    fn hear(&mut self, chunk: &[u8]) -> Result<()> {
        let Self { conversation, scanner, outgoing, .. } = self;
        let (mut proxy, mut record) = (conversation.proxy.lock(), conversation.record.lock());
        record.totals.bytes += chunk.len() as u64;
        let mut sent = Ok(());
        scanner.feed(chunk, &mut |piece| {
            for request in proxy.take(piece, &mut record) {
                sent = outgoing.send_data(request, false);
            }
        })?;
        sent.context("an answer")
    }
}

/// Wakes a task, but not while it is awake: then it is woken once it naps, if there is still a reason.
#[derive(Default)]
struct Nap {
    task: Mutex<Option<Waker>>,
    is_awake: AtomicBool,
    was_woken: AtomicBool,
}

impl Nap {
    /// The task that this waker wakes is awake.
    fn end(&self, task: &Waker) {
        self.is_awake.store(true, Ordering::SeqCst);
        self.task.lock().get_or_insert_with(|| task.clone()).clone_from(task);
    }

    /// The task has nothing to do.
    fn begin(&self) {
        self.is_awake.store(false, Ordering::SeqCst);
        if self.was_woken.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn forget(&self) {
        self.was_woken.store(false, Ordering::SeqCst);
    }

    fn wake(&self) {
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Nap {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.was_woken.store(true, Ordering::SeqCst);
        if !self.is_awake.load(Ordering::SeqCst) && self.was_woken.swap(false, Ordering::SeqCst) {
            Nap::wake(self);
        }
    }
}

/// A task that ends when nobody wants it any more.
pub(super) struct AbortOnDrop<T>(pub(super) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn request(protocol: Protocol) -> Result<Request<()>> {
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
        .body(());
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
