//! The endpoints as HTTP routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use canopus_runtime::flags::ENABLE_DEBUG_ON_HTTP;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Answer, Authenticator, Caller, Debug, Parameters, Question, what_if};

/// What stands in for a profiler: there is none in the process, and its addresses say so to those who may ask.
const PROFILER: &str = "pprof/";

/// How many answers are computed at once: a dump of a large mesh takes a while, and whoever asks for many waits.
static ANSWERS: Semaphore = Semaphore::const_new(4);

/// How long a caller may take to send what belongs to its question.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Served {
    debug: Arc<Debug>,
    authenticator: Arc<dyn Authenticator>,
}

/// The routes below `/debug`. The server should provide `ConnectInfo<SocketAddr>`: who asks from this machine is trusted.
///
/// Parity: every method is taken for a question.
pub fn routes(debug: Arc<Debug>, authenticator: Arc<dyn Authenticator>) -> Router {
    Router::new()
        .route("/debug", any(index))
        .route("/debug/{*endpoint}", any(answer))
        .with_state(Served { debug, authenticator })
}

/// The index is for everybody.
async fn index(State(served): State<Served>) -> Response<Body> {
    if !served.debug.flag(ENABLE_DEBUG_ON_HTTP) {
        return Answer::not_found().into();
    }
    served.debug.index().into()
}

async fn answer(
    State(served): State<Served>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    Path(endpoint): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let profiler = endpoint.starts_with(PROFILER);
    let is_known = profiler || served.debug.knows(&endpoint);
    if !is_known || !served.debug.flag(ENABLE_DEBUG_ON_HTTP) {
        return Answer::not_found().into();
    }
    let Some(caller) = caller(&served, peer.map(|Extension(ConnectInfo(peer))| peer), &headers).await else {
        return Answer::unauthorized().into();
    };
    // No body is read before it is known that its sender may ask, and most endpoints have no use for one.
    let body = if what_if::reads_body(&endpoint) {
        if !served.debug.may_ask(&caller, &endpoint) {
            return Answer::forbidden().into();
        }
        match timeout(BODY_TIMEOUT, to_bytes(body, what_if::MAX_CHANGE_BYTES)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return what_if::too_large().into(),
            Err(_) => return Answer::bare(StatusCode::REQUEST_TIMEOUT).into(),
        }
    } else {
        Bytes::new()
    };
    let parameters = Parameters::parse(query.as_deref().unwrap_or_default());
    let question = Question { endpoint, parameters, caller, body };
    // Some answers take long to compute; other requests must not wait for them.
    let debug = served.debug;
    let Ok(_turn) = ANSWERS.acquire().await else {
        return Answer::bare(StatusCode::SERVICE_UNAVAILABLE).into();
    };
    let answered = tokio::task::spawn_blocking(move || debug.answer(&question)).await;
    answered.unwrap_or_else(|_| Answer::bare(StatusCode::INTERNAL_SERVER_ERROR)).into()
}

/// Identifies the caller from its address; an unknown address counts as remote.
async fn caller(served: &Served, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<Caller> {
    if peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
        return Some(Caller::Trusted);
    }
    served.authenticator.authenticate(peer, headers).await.map(Caller::Proven)
}
