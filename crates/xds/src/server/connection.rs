//! Connections: HTTP/2 with everything about one connection in one task.
//!
//! A push concerns every connection, and each does very little for it, so the cost is mostly in waking and scheduling. A
//! connection, its timers and all of its calls are therefore one task, which polls only the parts that were woken
//! ([`wake_set`]).
//!
//! Calls share the task and nothing else: a call that panics ends alone ([`guard`]).

mod call;
mod guard;
mod metered_io;
mod wake_set;

use std::convert::Infallible;
use std::fmt::{Debug, Display};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use h2::{Ping, PingPong};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::transport::server::Connected;
use tower_service::Service;
use tracing::{debug, error, warn};

use super::Options;
use call::Received;
use guard::{Guarded, Panicked};
use metered_io::MeteredIo;
use wake_set::{ConnectionPart, WakeSet};

/// How long the HTTP/2 handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the parts of a connection may wake each other before other connections run.
const MAX_ROUNDS: usize = 16;

/// The receive window of a stream and of a connection, in bytes.
const WINDOW: u32 = 1024 * 1024;

/// How much of a response HTTP/2 takes before the client has read it. More of it only makes the queues of a connection larger,
/// which stay that large.
const SEND_BUFFER: usize = 64 * 1024;

/// The longest headers, in bytes.
const HEADERS: u32 = 16 * 1024;

/// A connection, and what it tells of who is at the far end.
pub trait Transport: AsyncRead + AsyncWrite + Connected<ConnectInfo: Debug> + Unpin + Send + 'static {}

impl<IO> Transport for IO where
    IO: AsyncRead + AsyncWrite + Connected<ConnectInfo: Debug> + Unpin + Send + 'static
{
}

/// Answers the requests of a connection.
pub trait Answers:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Answers requests on these connections until `shutdown`, then accepts no more and waits until all have ended.
pub(super) async fn serve_connections<IO: Transport, E: Display>(
    incoming: impl Stream<Item = Result<IO, E>>,
    service: impl Answers,
    options: &Options,
    shutdown: impl Future<Output = ()>,
) {
    let stopping = watch::Sender::new(false);
    let room = Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS)));
    let (mut incoming, mut shutdown) = (pin!(incoming), pin!(shutdown));
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Some(Ok(io)) => {
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    debug!("a connection is refused: there are too many");
                    continue;
                };
                let (service, options, stopping) = (service.clone(), options.clone(), stopping.subscribe());
                tokio::spawn(async move {
                    if let Err(error) = serve(io, service, &options, stopping).await {
                        debug!(%error, "a connection failed");
                    }
                    drop(permit);
                });
            }
            Some(Err(error)) => {
                warn!(%error, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
            None => break,
        }
    }
    stopping.send_replace(true);
    stopping.closed().await;
}

/// Answers requests on one connection until it ends.
async fn serve(
    io: impl Transport,
    mut service: impl Answers,
    options: &Options,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), h2::Error> {
    let caller = io.connect_info();
    let wake_set = WakeSet::new();
    let handshake = builder(options).handshake::<_, Bytes>(MeteredIo::new(io, Arc::clone(&wake_set)));
    let mut h2 = match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(h2) => h2?,
        Err(_) => return Ok(()),
    };
    let mut calls = FuturesUnordered::new();
    let mut limits = Limits::new(options, h2.ping_pong());
    let mut stopped = pin!(async {
        // The sender of `stopping` ends connections, or is gone itself.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    });
    let mut is_leaving = false;
    let parts = [ConnectionPart::Transport, ConnectionPart::Calls, ConnectionPart::Limits];
    let [transport, called, limited] = parts.map(|part| wake_set.waker(part));
    poll_fn(|cx| {
        wake_set.enter(cx.waker());
        for _ in 0..MAX_ROUNDS {
            let Some(woken) = wake_set.take() else { return Poll::Pending };
            if woken.contains(ConnectionPart::Calls) {
                let cx = &mut Context::from_waker(&called);
                while let Poll::Ready(Some((method, ended))) = Pin::new(&mut calls).poll_next(cx) {
                    report(method, ended, &caller);
                }
            }
            if woken.contains(ConnectionPart::Limits) {
                let cx = &mut Context::from_waker(&limited);
                match limits.poll(&wake_set, cx) {
                    Verdict::Fine => {}
                    Verdict::Silent => return Poll::Ready(Ok(())),
                    Verdict::Old => leave(&mut h2, &mut is_leaving, &wake_set),
                }
                if !is_leaving && stopped.as_mut().poll(cx).is_ready() {
                    leave(&mut h2, &mut is_leaving, &wake_set);
                }
            }
            if woken.contains(ConnectionPart::Transport) {
                let cx = &mut Context::from_waker(&transport);
                while let Poll::Ready(accepted) = h2.poll_accept(cx) {
                    let Some(accepted) = accepted else { return Poll::Ready(Ok(())) };
                    let (request, respond) = accepted?;
                    let mut request = request.map(|body| Body::new(Received::new(body)));
                    request.extensions_mut().insert(caller.clone());
                    let method = Box::<str>::from(request.uri().path());
                    let answering = Guarded::new(|| Box::pin(service.call(request)));
                    calls.push(async { (method, call::answer(answering, respond).await) });
                    wake_set.wake(ConnectionPart::Calls);
                }
            }
        }
        wake_set.pause();
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Tells the log of a call that did not end as it should.
fn report(method: Box<str>, ended: Result<(), Panicked>, caller: &impl Debug) {
    if ended.is_err() {
        error!(%method, peer = ?caller, "a call has panicked and is ended; the connection goes on");
    }
}

fn builder(options: &Options) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEADERS)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_streams(options.max_streams_per_connection);
    builder
}

/// Sends GOAWAY: the client opens no more streams, and the connection ends with those it has.
fn leave<IO: Transport>(
    h2: &mut h2::server::Connection<MeteredIo<IO>, Bytes>,
    is_leaving: &mut bool,
    wake_set: &WakeSet,
) {
    if !std::mem::replace(is_leaving, true) {
        h2.graceful_shutdown();
        wake_set.wake(ConnectionPart::Transport);
    }
}

/// How long a connection may be silent, and how long it may last.
struct Limits {
    interval: Duration,
    timeout: Duration,
    probes: Option<(Pin<Box<Sleep>>, PingPong)>,
    /// A probe is on its way.
    is_probed: bool,
    age: Option<Pin<Box<Sleep>>>,
}

/// Whether a connection may go on.
enum Verdict {
    /// The connection goes on.
    Fine,
    /// The client does not answer.
    Silent,
    /// The connection reached its maximum age.
    Old,
}

impl Limits {
    fn new(options: &Options, pings: Option<PingPong>) -> Self {
        let interval = options.keepalive_interval.unwrap_or_default();
        let probes = pings.filter(|_| !interval.is_zero());
        Self {
            interval,
            timeout: options.keepalive_timeout,
            probes: probes.map(|pings| (Box::pin(sleep(interval)), pings)),
            is_probed: false,
            age: options.draw_connection_age().map(|age| Box::pin(sleep(age))),
        }
    }

    fn poll(&mut self, wake_set: &WakeSet, cx: &mut Context<'_>) -> Verdict {
        if self.poll_silence(wake_set, cx).is_ready() {
            return Verdict::Silent;
        }
        if self.age.as_mut().is_some_and(|age| age.as_mut().poll(cx).is_ready()) {
            self.age = None;
            return Verdict::Old;
        }
        Verdict::Fine
    }

    /// Ready when the client has said nothing for a while and nothing to a probe either.
    fn poll_silence(&mut self, wake_set: &WakeSet, cx: &mut Context<'_>) -> Poll<()> {
        let Some((due, pings)) = &mut self.probes else { return Poll::Pending };
        while due.as_mut().poll(cx).is_ready() {
            let wait = if wake_set.take_received() {
                self.is_probed = false;
                self.interval
            } else if self.is_probed {
                return Poll::Ready(());
            } else {
                // The answer to the probe before, which came with other bytes, makes room for another.
                let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
                // An earlier ping that was not answered, because the client sent other frames, is still under way.
                let _ = pings.send_ping(Ping::opaque());
                self.is_probed = true;
                self.timeout
            };
            due.as_mut().reset(Instant::now() + wait);
        }
        Poll::Pending
    }
}
