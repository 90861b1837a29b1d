//! Public keys of the mesh, for whoever verifies its workloads or tokens: its SPIFFE bundle and the keys of join tokens.
//!
//! Both are public by nature, so nobody has to prove anything to read them.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use canopus_identity::authority::Authority;
use canopus_identity::bundle::Bundle;
use canopus_identity::token::TokenIssuer;
use canopus_identity::trust;

/// How often others should fetch the bundle, in seconds. Parity: istiod polls every half hour, whatever it is told.
const REFRESH: u64 = 300;

/// What the documents are made from.
#[derive(Clone, Default)]
pub struct IdentityDocuments {
    /// The authority whose roots are published.
    pub authority: Option<Arc<Authority>>,
    /// The issuer of join tokens.
    pub tokens: Option<Arc<TokenIssuer>>,
}

/// `/spiffe/bundle` and `/openid/v1/jwks`.
pub fn routes(documents: IdentityDocuments) -> Router {
    Router::new()
        .route("/spiffe/bundle", get(bundle))
        .route("/openid/v1/jwks", get(keys))
        .with_state(documents)
}

async fn bundle(State(documents): State<IdentityDocuments>) -> Response {
    let bundle = documents.authority.and_then(|authority| authority.bundle());
    // A bundle that gains a root has a later number than before, also after a restart.
    let newest = |bundle: &Bundle| bundle.roots().iter().map(|root| root.not_before().as_secs()).max();
    let written = |bundle: &Bundle| trust::write(bundle.roots(), newest(bundle).unwrap_or_default(), REFRESH);
    match bundle.map(|bundle| written(&bundle)) {
        Some(Ok(text)) => json(text),
        Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn keys(State(documents): State<IdentityDocuments>) -> Response {
    match documents.tokens.map(|tokens| serde_json::to_string(&tokens.jwks())) {
        Some(Ok(text)) => json(text),
        Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
