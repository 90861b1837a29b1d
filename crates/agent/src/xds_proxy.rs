//! Envoy's xDS streams, passed through to the control plane.
//!
//! ```text
//!  Envoy ── Unix socket ──► one upstream connection per stream ──► control plane
//!        ◄── responses, as they came ──┬───────────────────────────
//!                                      ├─ name table, additional roots: kept here and acknowledged
//!                                      ├─ extensions with Wasm modules: rewritten to local files (`wasm`)
//!                                      └─ what Envoy acknowledges: written down (`recorder`)
//!  Envoy ◄── the last good state (`stored`), while the control plane is away
//! ```
//!
//! Messages are not decoded and encoded again, but for extensions: a message is cut out of the stream at its frame, its
//! type is found by skipping over fields, and its bytes travel on. An upstream that ends, ends Envoy's stream, so that
//! Envoy begins its subscriptions anew with its own back-off; a second stream of Envoy ends the first.

mod extensions;
mod frame;
mod local;
mod opening;
mod peek;
mod recorder;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use canopus_runtime::metrics::{Counter, Gauge, Registry, catalogue};
use canopus_runtime::tasks::detach;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use self::frame::{FrameError, Frames, Message};
pub use self::local::{LocalTypes, NameTableSink};
use self::opening::{Opening, first_bytes, is_outage};
pub use self::peek::inspect_stream;
use self::recorder::Recorder;
use self::stored::StoredSession;
use crate::backoff::Backoff;
use crate::last_good::LastGood;
use crate::upstream::{self, Upstream};
use crate::wasm::WasmModules;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Bytes the control plane may send ahead of what Envoy has taken.
const WINDOW: u32 = 256 << 10;
/// The same where only a sign of life is wanted.
const PROBE_WINDOW: u32 = 1 << 10;
/// Messages that may wait for Envoy; each may be large.
const RESPONSES_AHEAD: usize = 2;
/// Waits between tries to reach a control plane that is away.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// The health of the application, as the control plane is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Why the application is not well, if it is not.
    pub problem: Option<String>,
}

/// What the proxy is told of at its start.
#[derive(Clone, Debug)]
pub struct XdsProxySettings {
    /// The socket, for the log.
    pub socket: PathBuf,
    /// The control plane.
    pub upstream: Upstream,
    /// `ISTIO_META_CLUSTER_ID`.
    pub cluster: String,
    /// `XDS_HEADER_*`.
    pub headers: Vec<(String, String)>,
    /// When the control plane counts as away.
    pub patience: Patience,
}

/// When a control plane that is connected counts as away.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long an Envoy without configuration waits for the first response before it gets the last good one.
    pub first_response: Duration,
    /// `GRPC_KEEPALIVE_INTERVAL`: how often a sign of life is asked for.
    pub keepalive_interval: Duration,
    /// `GRPC_KEEPALIVE_TIMEOUT`: how long it may take.
    pub keepalive_timeout: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first_response: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
        }
    }
}

/// What streams pass by on their way.
#[derive(Default)]
pub struct XdsProxyParts {
    /// Types the agent asks for itself.
    pub local: LocalTypes,
    /// The last good state, if it is kept.
    pub state: Option<Arc<LastGood>>,
    /// Fetches Wasm modules, if that is not left to Envoy.
    pub wasm: Option<Arc<WasmModules>>,
    /// How the application is, if it is checked.
    pub health: Option<watch::Receiver<Option<HealthReport>>>,
}

/// Passes streams on.
pub struct XdsProxy {
    settings: XdsProxySettings,
    parts: XdsProxyParts,
    /// The stream that counts: an older one ends when this changes.
    current: watch::Sender<u64>,
    /// Why Envoy is served from the last good state, if it is.
    outage: Mutex<Option<Outage>>,
    /// Why the last stream to the control plane failed, until one does not.
    failure: Mutex<Option<String>>,
    counters: Counters,
}

/// A time without a control plane.
#[derive(Clone, Debug)]
struct Outage {
    since: SystemTime,
    reason: String,
    /// When the state was written that is served.
    written: Option<SystemTime>,
}

struct Counters {
    requests: Counter,
    responses: Counter,
    failures: Counter,
    connected: Gauge,
    stored_streams: Counter,
}

/// A stream to the control plane: its answer, once it comes, and where requests go.
type UpstreamStream = (Answer, mpsc::UnboundedSender<Message>);
/// The answer of the control plane, once it comes.
type Answer = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

/// How a stream to the control plane ended.
enum End {
    /// Envoy has left.
    Envoy,
    /// Envoy is told.
    Status(HeaderMap),
    /// The control plane did not serve at all. Envoy is told, unless the last good state can serve it.
    Away(HeaderMap, String),
}

/// Which variant of xDS a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Sotw,
    Delta,
}

impl XdsProxy {
    /// A proxy to a control plane.
    pub fn new(settings: XdsProxySettings, parts: XdsProxyParts, registry: &Registry) -> Arc<Self> {
        let counters = Counters {
            requests: registry.value(catalogue::XDS_PROXY_REQUESTS),
            responses: registry.value(catalogue::XDS_PROXY_RESPONSES),
            failures: registry.value(catalogue::ISTIOD_CONNECTION_FAILURES),
            connected: registry.value(catalogue::CONTROL_PLANE_CONNECTED),
            stored_streams: registry.value(catalogue::LAST_GOOD_STREAMS_TOTAL),
        };
        counters.connected.set(0.0);
        let current = watch::Sender::new(0);
        Arc::new(Self {
            settings,
            parts,
            current,
            outage: Mutex::default(),
            failure: Mutex::default(),
            counters,
        })
    }

    /// Ends the current stream; Envoy opens another at once, with new credentials.
    pub fn reconnect(&self) {
        self.current.send_modify(|stream| *stream += 1);
    }

    /// What whoever asks about readiness should know: that Envoy works with the last good state, since when and why.
    pub fn outage(&self) -> Option<String> {
        let Outage { since, reason, written } = self.outage.lock().clone()?;
        let ago = |time: SystemTime| time.elapsed().unwrap_or_default().as_secs();
        let age = written.map(|written| format!(" of {} seconds ago", ago(written))).unwrap_or_default();
        let since = ago(since);
        Some(format!(
            "the last good configuration{age} is served: the control plane is away since {since} seconds: {reason}"
        ))
    }

    /// Why there is no stream to the control plane, for whoever asks why Envoy is not ready.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn failed(&self, reason: String) {
        self.counters.failures.inc();
        warn!(target: "xdsproxy", "{reason}");
        *self.failure.lock() = Some(reason);
    }

    /// Serves Envoy for as long as it is polled.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(target: "xdsproxy", "cannot accept: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let proxy = Arc::clone(&self);
            detach("Envoy's xDS connection", async move {
                let service = service_fn(move |request| {
                    let proxy = Arc::clone(&proxy);
                    async move { Ok::<_, Infallible>(proxy.answer(request).await) }
                });
                let connection = server::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(WINDOW)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.await {
                    debug!(target: "xdsproxy", "Envoy's connection ended: {error}");
                }
            });
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<ChannelBody> {
        let variant = match request.uri().path() {
            SOTW => Variant::Sotw,
            DELTA => Variant::Delta,
            path => {
                return refusal(tonic::Code::Unimplemented, &format!("{path} is not served by the agent"));
            }
        };
        let (to_envoy, body) = mpsc::channel(RESPONSES_AHEAD);
        let stream = self.begin_stream();
        detach("xDS stream", async move {
            let mut replaced = self.current.subscribe();
            let status = tokio::select! {
                status = self.run(variant, Frames::new(request.into_body()), &to_envoy) => status,
                _ = replaced.wait_for(|current| *current != stream) => {
                    Some(trailers(tonic::Code::Unavailable, "the agent connects anew"))
                }
            };
            if *self.current.borrow() == stream {
                self.counters.connected.set(0.0);
            }
            if let Some(status) = status {
                let _ = to_envoy.send(Piece::Trailers(status)).await;
            }
        });
        grpc_response(body)
    }

    /// Makes this the stream that counts, and gives its number.
    fn begin_stream(&self) -> u64 {
        let mut stream = 0;
        self.current.send_modify(|current| {
            *current += 1;
            stream = *current;
        });
        stream
    }

    /// Serves a stream of Envoy: by the control plane, or while that is away by the last good state. The result is what Envoy
    /// is told at the end, unless it has left.
    async fn run(
        &self,
        variant: Variant,
        mut frames: Frames,
        to_envoy: &mpsc::Sender<Piece>,
    ) -> Option<HeaderMap> {
        let opening = Opening::default();
        let end = match self.open(variant, WINDOW).await {
            Ok(upstream) => self.pass(variant, &mut frames, upstream, to_envoy, &opening).await,
            Err(reason) => End::Away(trailers(tonic::Code::Unavailable, &reason), reason),
        };
        match end {
            End::Envoy => None,
            End::Status(status) => Some(status),
            End::Away(status, reason) => {
                self.failed(format!("no stream to the control plane: {reason}"));
                match self.usable_state() {
                    Some(state) => {
                        self.serve_stored(variant, frames, to_envoy, state, reason, &opening).await
                    }
                    None => Some(status),
                }
            }
        }
    }

    /// The last good state, if an Envoy can start with it.
    fn usable_state(&self) -> Option<Arc<LastGood>> {
        self.parts.state.clone().filter(|state| state.is_usable())
    }

    /// Serves Envoy from the last good state until the control plane answers again.
    async fn serve_stored(
        &self,
        variant: Variant,
        frames: Frames,
        to_envoy: &mpsc::Sender<Piece>,
        state: Arc<LastGood>,
        reason: String,
        opening: &Opening,
    ) -> Option<HeaderMap> {
        self.counters.connected.set(0.0);
        self.counters.stored_streams.inc();
        let since = self.outage.lock().as_ref().map_or_else(SystemTime::now, |outage| outage.since);
        *self.outage.lock() = Some(Outage { since, reason, written: state.written() });
        if let Some(outage) = self.outage() {
            warn!(target: "xdsproxy", "{outage}");
        }
        self.parts.local.restore(&state);
        tokio::select! {
            () = pass_stored(StoredSession::new(state, variant), frames, to_envoy, opening) => None,
            () = self.wait_for_control_plane(variant, opening) => {
                info!(target: "xdsproxy", "the control plane is back; Envoy is asked to connect anew");
                Some(trailers(tonic::Code::Unavailable, "the control plane is back"))
            }
        }
    }

    /// Asks the control plane until it answers.
    async fn wait_for_control_plane(&self, variant: Variant, opening: &Opening) {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            tokio::time::sleep(backoff.wait()).await;
            let Err(reason) = self.probe(variant, opening).await else { return };
            self.counters.failures.inc();
            debug!(target: "xdsproxy", "the control plane is still away: {reason}");
            if let Some(outage) = &mut *self.outage.lock() {
                outage.reason = reason;
            }
        }
    }

    /// Asks the control plane what Envoy asks first, and waits for the beginning of a response.
    async fn probe(&self, variant: Variant, opening: &Opening) -> Result<(), String> {
        let question = opening.question(variant).await.map_err(|error| error.to_string())?;
        let (answer, requests) = self.open(variant, PROBE_WINDOW).await?;
        let _ = requests.send(question);
        let limit = self.settings.patience.first_response;
        tokio::time::timeout(limit, first_bytes(answer)).await.unwrap_or_else(|_| Err(silence(limit)))
    }

    /// Opens a stream to the control plane. Servers may wait for the first request before they send as much as headers, so
    /// the answer is left to whoever passes requests on.
    async fn open(&self, variant: Variant, window: u32) -> Result<UpstreamStream, String> {
        let upstream = &self.settings.upstream;
        let io = upstream.connect().await.map_err(|error| error.to_string())?;
        let patience = &self.settings.patience;
        // A control plane whose machine is gone says nothing any more, not even that it is gone.
        let (mut sender, connection) = client::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(patience.keepalive_interval)
            .keep_alive_timeout(patience.keepalive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(window)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| error.to_string())?;
        detach("connection to the control plane", async move {
            if let Err(error) = connection.await {
                debug!(target: "xdsproxy", "the control plane's connection ended: {error}");
            }
        });
        // Requests are small, and Envoy must never wait to send one while it has responses to take: both sides could
        // otherwise wait for each other.
        let (requests, body) = mpsc::unbounded_channel();
        let path = if variant == Variant::Sotw { SOTW } else { DELTA };
        let host = &upstream.address;
        let uri = format!("{}://{}:{}{path}", upstream.scheme(), host.host, host.port);
        let mut request = Request::post(uri).body(RequestBody(body)).map_err(|error| error.to_string())?;
        *request.headers_mut() = self.request_headers()?;
        let answer = Box::pin(async move { sender.send_request(request).await });
        info!(target: "xdsproxy", "connected to the control plane at {}:{}", host.host, host.port);
        Ok((answer, requests))
    }

    fn request_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let token = self.settings.upstream.token().map_err(|error| error.to_string())?;
        let token = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        let cluster = Some(("clusterid".to_owned(), self.settings.cluster.clone()));
        for (name, text) in self.settings.headers.iter().cloned().chain(cluster).chain(token) {
            let name = header::HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(&text)) {
                value.set_sensitive(name == header::AUTHORIZATION);
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// Joins the two streams.
    async fn pass(
        &self,
        variant: Variant,
        from_envoy: &mut Frames,
        (from_plane, to_plane): UpstreamStream,
        to_envoy: &mpsc::Sender<Piece>,
        opening: &Opening,
    ) -> End {
        let recorder = Mutex::new(Recorder::new(self.parts.state.clone(), variant));
        tokio::select! {
            () = self.pass_requests(variant, from_envoy, &to_plane, &recorder, opening) => End::Envoy,
            end = self.pass_responses(variant, from_plane, &to_plane, to_envoy, &recorder, opening) => end,
            reason = self.silence(opening) => End::Away(trailers(tonic::Code::Unavailable, &reason), reason),
        }
    }

    /// Waits until the control plane has been silent for too long for an Envoy that could be served without it.
    async fn silence(&self, opening: &Opening) -> String {
        let limit = self.settings.patience.first_response;
        opening.unanswered(limit).await;
        if opening.is_answered() || self.usable_state().is_none() {
            return std::future::pending().await;
        }
        silence(limit)
    }

    /// How a stream ends on which the control plane has said this.
    fn ended(&self, status: HeaderMap, opening: &Opening) -> End {
        let Some((code, message)) = opening::status(&status) else { return End::Status(status) };
        let reason = format!("the control plane refuses: {code:?}: {message}{}", upstream::hint(code));
        if !opening.is_answered() && is_outage(code) {
            return End::Away(status, reason);
        }
        self.failed(reason);
        End::Status(status)
    }

    /// The control plane answers: an outage is over.
    fn set_connected(&self) {
        self.counters.connected.set(1.0);
        *self.failure.lock() = None;
        if self.outage.lock().take().is_some() {
            info!(target: "xdsproxy", "Envoy is served by the control plane again");
        }
    }

    async fn pass_requests(
        &self,
        variant: Variant,
        frames: &mut Frames,
        to: &mpsc::UnboundedSender<Message>,
        recorder: &Mutex<Recorder>,
        opening: &Opening,
    ) {
        let mut asked = false;
        let mut health = self.parts.health.clone();
        loop {
            let message = tokio::select! {
                message = frames.next() => message,
                // Parity: the control plane hears of the application's health once Envoy has asked for listeners.
                report = next_report(&mut health), if asked => {
                    let _ = to.send(local::health_request(&report, variant == Variant::Delta));
                    continue;
                }
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(error) => return debug!(target: "xdsproxy", "Envoy's stream ended: {error}"),
            };
            self.counters.requests.inc();
            let summary = peek::request(&message, variant);
            opening.keep(&message, summary.as_ref());
            if let Some(summary) = &summary {
                recorder.lock().request(summary);
            }
            // Parity: the agent asks for its own types once Envoy has asked for listeners.
            let is_first_for_listeners =
                !asked && summary.is_some_and(|summary| summary.type_url == canopus_xds::types::LISTENER);
            if to.send(message).is_err() {
                // The control plane has ended the stream; whoever reads its answer knows why.
                return std::future::pending().await;
            }
            if is_first_for_listeners {
                asked = true;
                for request in self.parts.local.first_requests(variant == Variant::Delta) {
                    let _ = to.send(request);
                }
                // A report from before this stream counts for it as well.
                if let Some(health) = &mut health {
                    health.mark_changed();
                }
            }
        }
    }

    async fn pass_responses(
        &self,
        variant: Variant,
        answer: Answer,
        to_plane: &mpsc::UnboundedSender<Message>,
        to_envoy: &mpsc::Sender<Piece>,
        recorder: &Mutex<Recorder>,
        opening: &Opening,
    ) -> End {
        let unavailable = |reason: &str| self.ended(trailers(tonic::Code::Unavailable, reason), opening);
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(error) => return unavailable(&error.to_string()),
        };
        if let Some((code, message)) = opening::refusal(&answer) {
            return self.ended(trailers(code, &message), opening);
        }
        let mut frames = Frames::new(answer.into_body());
        let mut connected = false;
        let (rewritten, mut extensions) = mpsc::channel(1);
        loop {
            let message = tokio::select! {
                message = frames.next() => message,
                Some(message) = extensions.recv() => {
                    recorder.lock().response(canopus_xds::types::EXTENSION, &message);
                    if !self.forward(message, to_envoy).await {
                        return End::Envoy;
                    }
                    continue;
                }
                // A client with all resources may have nothing to wait for.
                () = opening.configured(), if !connected => {
                    connected = true;
                    self.set_connected();
                    continue;
                }
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => {
                    let status = frames.trailers();
                    return match status {
                        Some(status) => self.ended(status, opening),
                        None => unavailable("the control plane ended the stream"),
                    };
                }
                Err(FrameError::Size(size)) => {
                    warn!(target: "xdsproxy", "a response of {size} bytes is too large");
                    return End::Status(trailers(tonic::Code::ResourceExhausted, "a response is too large"));
                }
                Err(error) => return unavailable(&error.to_string()),
            };
            if !opening.is_answered() {
                opening.set_answered();
                connected = true;
                self.set_connected();
            }
            let type_url = peek::response_type(&message);
            let type_url = type_url.as_deref().unwrap_or_default();
            if let Some(answer) = self.parts.local.take(type_url, &message, variant == Variant::Delta) {
                if let Some(state) = &self.parts.state {
                    recorder::record_local(state, type_url, &message, variant);
                }
                let _ = to_plane.send(answer);
                continue;
            }
            if !is_for_envoy(type_url) {
                warn!(target: "xdsproxy", "a response of the type {type_url:?} is dropped: Envoy does not know it");
                continue;
            }
            if type_url == canopus_xds::types::EXTENSION
                && let Some(wasm) = self.parts.wasm.clone()
            {
                // Fetching takes time, in which responses of other types go on.
                let (rewritten, to_plane) = (rewritten.clone(), to_plane.clone());
                detach("Wasm modules of a response", async move {
                    match extensions::rewrite(&wasm, message, variant == Variant::Delta).await {
                        Ok(message) => drop(rewritten.send(message).await),
                        Err(rejection) => drop(to_plane.send(rejection)),
                    }
                });
                continue;
            }
            recorder.lock().response(type_url, &message);
            if !self.forward(message, to_envoy).await {
                return End::Envoy;
            }
        }
    }

    /// Passes a message on, unless Envoy is gone.
    async fn forward(&self, message: Message, to_envoy: &mpsc::Sender<Piece>) -> bool {
        self.counters.responses.inc();
        send(message, to_envoy).await
    }
}

async fn send(message: Message, to_envoy: &mpsc::Sender<Piece>) -> bool {
    for chunk in message.into_chunks() {
        if to_envoy.send(Piece::Data(chunk)).await.is_err() {
            return false;
        }
    }
    true
}

/// The next report of the application's health; never, if it is not checked.
async fn next_report(health: &mut Option<watch::Receiver<Option<HealthReport>>>) -> HealthReport {
    if let Some(health) = health {
        while health.changed().await.is_ok() {
            if let Some(report) = health.borrow_and_update().clone() {
                return report;
            }
        }
    }
    std::future::pending().await
}

/// Answers Envoy's requests from the last good state until it leaves.
async fn pass_stored(
    mut session: StoredSession,
    mut frames: Frames,
    to_envoy: &mpsc::Sender<Piece>,
    opening: &Opening,
) {
    // What was asked of the control plane comes first.
    let mut asked = VecDeque::from(opening.take());
    loop {
        let message = match asked.pop_front() {
            Some(message) => message,
            None => {
                let Ok(Some(message)) = frames.next().await else { return };
                opening.keep(&message, None);
                message
            }
        };
        match session.answer(&message) {
            Ok(Some(answer)) => {
                if !send(answer, to_envoy).await {
                    return;
                }
            }
            Ok(None) => {}
            Err(error) => return warn!(target: "xdsproxy", "a request of Envoy cannot be read: {error}"),
        }
    }
}

fn is_for_envoy(type_url: &str) -> bool {
    let name = type_url.strip_prefix("type.googleapis.com/").unwrap_or(type_url);
    name.starts_with("envoy.")
        || matches!(type_url, canopus_xds::types::WORKLOAD | canopus_xds::types::ADDRESS)
}

/// Why a control plane that says nothing counts as away.
fn silence(limit: Duration) -> String {
    format!("no response in {limit:.0?}; is the control plane running, and ready?")
}

/// A response whose body a task makes.
fn grpc_response(body: mpsc::Receiver<Piece>) -> Response<ChannelBody> {
    let mut response = Response::new(ChannelBody { pieces: Some(body) });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(code: tonic::Code, message: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Into headers goes what headers can have: the rest is left out rather than the message.
    let _ = tonic::Status::new(code, message).add_header(&mut headers);
    headers
}

fn refusal(code: tonic::Code, message: &str) -> Response<ChannelBody> {
    let mut response = Response::new(ChannelBody { pieces: None });
    *response.headers_mut() = trailers(code, message);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// A body whose pieces come from a task. Without a task it is empty.
struct ChannelBody {
    pieces: Option<mpsc::Receiver<Piece>>,
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        pieces.poll_recv(cx).map(|piece| {
            Some(Ok(match piece? {
                Piece::Data(bytes) => Frame::data(bytes),
                Piece::Trailers(trailers) => Frame::trailers(trailers),
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }
}

/// The messages that go to the control plane.
struct RequestBody(mpsc::UnboundedReceiver<Message>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|message| Some(Ok(Frame::data(message?.into_bytes()))))
    }
}
