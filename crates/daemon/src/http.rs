//! The plain HTTP ports: one to administer the process, one to watch it.

pub mod identity_documents;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use canopus_runtime::flags::METRICS_LOCALHOST_ACCESS_ONLY;
use canopus_runtime::metrics::{self, Registry};
use canopus_runtime::ready::Readiness;
use canopus_runtime::version::BuildInfo;
use tokio::sync::Semaphore;

use crate::debug::{self, Authenticator, Debug};
use identity_documents::IdentityDocuments;

/// How many expositions are written at once.
static SCRAPES: Semaphore = Semaphore::const_new(2);

/// What the handlers read.
#[derive(Clone)]
pub struct Served {
    /// Whether the process is ready.
    pub readiness: Readiness,
    /// What it counts.
    pub metrics: Registry,
    /// What it tells about itself.
    pub debug: Arc<Debug>,
    /// Authenticates callers of debug endpoints.
    pub authenticator: Arc<dyn Authenticator>,
    /// The public keys that it publishes.
    pub documents: IdentityDocuments,
}

/// The port that probes ask: readiness, and the debug endpoints.
pub fn admin(served: Served) -> Router {
    let documents = identity_documents::routes(served.documents.clone());
    finish(Router::new().route("/ready", any(ready)), served).merge(documents)
}

/// The port that Prometheus asks: metrics, version, and the debug endpoints.
pub fn monitoring(served: Served) -> Router {
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/version", get(|| async { BuildInfo::current().to_string() }));
    finish(routes, served)
}

/// Readiness and public keys alone, for ports that are there for something else.
pub(crate) fn readiness(served: Served) -> Router {
    let documents = identity_documents::routes(served.documents.clone());
    Router::new().route("/ready", any(ready)).with_state(served).merge(documents)
}

fn finish(routes: Router<Served>, served: Served) -> Router {
    let debug = debug::routes(Arc::clone(&served.debug), Arc::clone(&served.authenticator));
    routes.with_state(served).merge(debug).fallback(nowhere)
}

/// Parity: a path with empty or dotted elements is redirected to what it amounts to, as Go's multiplexer does; istioctl asks
/// for `//version`. Tools look for the words otherwise.
async fn nowhere(uri: Uri) -> Response {
    let clean = clean_path(uri.path());
    if clean == uri.path() {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    let target = uri.query().map_or_else(|| clean.clone(), |query| format!("{clean}?{query}"));
    (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, target)]).into_response()
}

/// A path without empty and dotted elements. It begins with exactly one slash, so it never names another host.
fn clean_path(path: &str) -> String {
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => drop(elements.pop()),
            element => elements.push(element),
        }
    }
    let end = if path.ends_with('/') && !elements.is_empty() { "/" } else { "" };
    format!("/{}{end}", elements.join("/"))
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
    // Scrapes come from few; whoever asks more at once waits, and takes no thread from others.
    let Ok(_turn) = SCRAPES.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let text = tokio::task::spawn_blocking(move || served.metrics.encode()).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text.unwrap_or_default()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(path: &'static str) -> (StatusCode, Option<String>) {
        let response = nowhere(Uri::from_static(path)).await;
        let location = response.headers().get(header::LOCATION);
        (response.status(), location.map(|location| location.to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn untidy_paths_are_redirected_to_tidy_ones() {
        let moved = |to: &str| (StatusCode::MOVED_PERMANENTLY, Some(to.to_owned()));
        assert_eq!(asked("http://h//version").await, moved("/version"));
        assert_eq!(asked("http://h//debug/syncz?a=b").await, moved("/debug/syncz?a=b"));
        assert_eq!(asked("http://h/a/./../b/").await, moved("/b/"));
        assert_eq!(asked("http://h//evil.example/x").await, moved("/evil.example/x"));
        assert_eq!(asked("/nothing").await, (StatusCode::NOT_FOUND, None));
        assert_eq!(asked("/nothing/").await, (StatusCode::NOT_FOUND, None));
    }
}
