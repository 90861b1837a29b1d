//! What the API server asks before it stores an object.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use canopus_inject::validation::{self, Count, MAX_BODY, Resource};
use tracing::info;

use crate::metrics::AdmissionMetrics;
use crate::spans::{Attribute, Tracer, Within};

/// Who is told of what the webhooks answer.
#[derive(Clone)]
pub struct Admission {
    /// Counts it.
    pub metrics: Arc<AdmissionMetrics>,
    /// Records spans of it.
    pub tracer: Arc<Tracer>,
}

impl Admission {
    fn answered(&self, started: SystemTime, count: &Count) {
        self.metrics.count(count);
        if !self.tracer.is_on() {
            return;
        }
        let (resource, allowed) = match count {
            Count::Passed(Resource { resource, .. }) => (resource.as_str(), true),
            Count::Failed(Resource { resource, .. }, _) => (resource.as_str(), false),
            Count::HttpError(_) => ("", false),
        };
        let attributes = [
            ("canopus.resource", Attribute::Text(resource.to_owned())),
            ("canopus.valid", Attribute::Truth(allowed)),
        ];
        self.tracer.record("admission", Within::Itself, started, attributes);
    }
}

/// The webhooks, to stand on a port of their own or beside others.
pub fn router(admission: Admission) -> Router {
    Router::new()
        .route("/validate", any(validate))
        .route("/validate/{*rest}", any(validate))
        .route("/inject", any(inject))
        .route("/inject/{*rest}", any(inject))
        .with_state(admission)
}

async fn validate(State(admission): State<Admission>, request: Request<Body>) -> Response {
    let started = SystemTime::now();
    let (head, content) = request.into_parts();
    // One byte more than is allowed is enough to know that it is too much.
    let content = body::to_bytes(content, MAX_BODY + 1).await;
    let content = content.unwrap_or_else(|_| vec![0; MAX_BODY + 1].into());
    let answer = tokio::task::block_in_place(|| {
        validation::answer(&validation::Request {
            path: head.uri.path_and_query().map_or("/", |path| path.as_str()),
            content_type: head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()),
            body: &content,
        })
    });
    if let Some(count) = &answer.outcome.count {
        admission.answered(started, count);
    }
    if let Some(refusal) = &answer.outcome.refusal {
        info!("an object was refused: {refusal}");
    }
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        response.headers_mut().insert(*name, header::HeaderValue::from_static(value));
    }
    response
}

async fn inject() -> impl IntoResponse {
    let text =
        "sidecar injection is not available in this version: start pods with their sidecars written out\n";
    (StatusCode::NOT_IMPLEMENTED, text)
}
