//! What is answered: a status, a type, a body.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use canopus_engine::QueryError;
use serde_json::Value;

use super::Question;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status it has over HTTP.
    pub status: StatusCode,
    /// The type of the body; `None` for no body.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A tree, in lines if the question asks for it.
    pub(super) fn json(question: &Question, value: &Value) -> Self {
        let pretty = question.parameters.has("pretty");
        let body = if pretty { format!("{value:#}") } else { value.to_string() };
        Self { status: StatusCode::OK, content_type: Some(JSON), body }
    }

    /// A text.
    pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, content_type: Some(TEXT), body: body.into() }
    }

    /// A page.
    pub(super) fn page(body: String) -> Self {
        Self { status: StatusCode::OK, content_type: Some(HTML), body }
    }

    /// Answers that the endpoint does not exist.
    pub(super) fn not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// The client is not authenticated. Parity: Istio hides the reason.
    pub(super) fn unauthorized() -> Self {
        Self::bare(StatusCode::UNAUTHORIZED)
    }

    /// The caller may not ask this.
    pub(super) fn forbidden() -> Self {
        Self::bare(StatusCode::FORBIDDEN)
    }

    /// The question is about a proxy and does not say which.
    pub(super) fn no_proxy_named() -> Self {
        Self::text(StatusCode::BAD_REQUEST, "You must provide a proxyID in the query string\n")
    }

    /// The proxy is not connected, or nobody the caller may know of.
    pub(super) fn not_connected() -> Self {
        Self::text(
            StatusCode::NOT_FOUND,
            "Proxy not connected to this Pilot instance. It may be connected to another instance.\n",
        )
    }

    /// A result has no value.
    pub(super) fn failed(error: &QueryError) -> Self {
        Self::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    pub(super) fn bare(status: StatusCode) -> Self {
        Self { status, content_type: None, body: String::new() }
    }
}

impl From<Answer> for Response<Body> {
    fn from(answer: Answer) -> Self {
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        if let Some(content_type) = answer.content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        response
    }
}
