//! The plain HTTP ports: one to administer the process, one to watch it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use canopus_runtime::flags::METRICS_LOCALHOST_ACCESS_ONLY;
use canopus_runtime::metrics::{self, Registry};
use canopus_runtime::ready::Readiness;
use canopus_runtime::version::BuildInfo;

use crate::debug::{self, Authenticator, Debug};

/// What the handlers read.
#[derive(Clone)]
pub struct Served {
    /// Whether the process is ready.
    pub readiness: Readiness,
    /// What it counts.
    pub metrics: Registry,
    /// What it tells about itself.
    pub debug: Arc<Debug>,
    /// Who finds out who asks.
    pub authenticator: Arc<dyn Authenticator>,
}

/// The port that probes ask: readiness, and the debug endpoints.
pub fn admin(served: Served) -> Router {
    finish(Router::new().route("/ready", any(ready)), served)
}

/// The port that Prometheus asks: metrics, version, and the debug endpoints.
pub fn monitoring(served: Served) -> Router {
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/version", get(|| async { BuildInfo::current().to_string() }));
    finish(routes, served)
}

/// Readiness alone, for ports that are there for something else.
pub(crate) fn readiness(served: Served) -> Router {
    Router::new().route("/ready", any(ready)).with_state(served)
}

fn finish(routes: Router<Served>, served: Served) -> Router {
    let debug = debug::routes(Arc::clone(&served.debug), Arc::clone(&served.authenticator));
    routes.with_state(served).merge(debug).fallback(nowhere)
}

/// Parity: tools look for these words.
async fn nowhere() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "404 page not found\n")
}

async fn ready(State(served): State<Served>) -> Response {
    let pending = served.readiness.pending();
    if pending.is_empty() {
        return StatusCode::OK.into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", pending.join(", "))).into_response()
}

async fn exposition(
    State(served): State<Served>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
) -> Response {
    let is_local = peer.is_some_and(|Extension(ConnectInfo(peer))| peer.ip().to_canonical().is_loopback());
    if !is_local && served.debug.flag(METRICS_LOCALHOST_ACCESS_ONLY) {
        return (StatusCode::FORBIDDEN, "Only requests from localhost are allowed\n").into_response();
    }
    let text = tokio::task::spawn_blocking(move || served.metrics.encode()).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text.unwrap_or_default()).into_response()
}
