//! The plain HTTP port: readiness, metrics, version.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use canopus_runtime::metrics::{self, Registry};
use canopus_runtime::ready::Readiness;
use canopus_runtime::version::BuildInfo;

/// What the handlers read.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Registry,
}

pub(crate) fn router(served: Served) -> Router {
    Router::new()
        .route("/ready", get(ready))
        .route("/metrics", get(exposition))
        .route("/version", get(|| async { BuildInfo::current().long_form() }))
        .with_state(served)
}

async fn ready(State(served): State<Served>) -> impl IntoResponse {
    let pending = served.readiness.pending();
    if pending.is_empty() {
        (StatusCode::OK, String::new())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", pending.join(", ")))
    }
}

async fn exposition(State(served): State<Served>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], served.metrics.encode())
}
