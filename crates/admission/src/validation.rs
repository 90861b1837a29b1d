//! The webhook that refuses objects that make no sense.
//!
//! [`answer`] takes what a client sent and gives what it is to receive, byte for byte as Istio's clients know it, and an
//! [`Outcome`] for the server to count.

mod admit;
#[cfg(test)]
mod tests;

use crate::http::{self, NO_SNIFFING, TEXT};
pub use crate::http::{MAX_BODY, Request};
pub use crate::review::Resource;
use crate::review::{self, Reply, Review, ReviewError};

/// Where the webhook is served, with everything below it.
const PATH: &str = "/validate";

/// What the client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Names and values of headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: Vec<u8>,
    /// What it amounts to.
    pub outcome: Outcome,
}

/// What an answer amounts to: what is counted, and what is worth a line in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What is counted. Parity: a dry run that fails is not counted, one that passes is.
    pub count: Option<Count>,
    /// Why an object was refused.
    pub refusal: Option<String>,
}

/// A counter to raise by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// `galley_validation_passed`, labelled with the resource.
    Passed(Resource),
    /// `galley_validation_failed`, labelled with the resource and the reason.
    Failed(Resource, Reason),
    /// `galley_validation_http_error`, labelled with the status.
    HttpError(u16),
}

/// Why an object was not validated, or not found valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is created or updated. Such requests are allowed all the same.
    UnsupportedOperation,
    /// The object is no object.
    Undecodable,
    /// The object is of a kind that the webhook is not for.
    UnknownType,
    /// The fields of the object are not of the types they have.
    ConversionError,
    /// The object breaks a rule.
    Invalid,
}

impl Reason {
    /// The value of the label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::UnsupportedOperation => "unsupported_operation",
            Self::Undecodable => "yaml_decode_error",
            Self::UnknownType => "unknown_type",
            Self::ConversionError => "crd_conversion_error",
            Self::Invalid => "invalid_resource",
        }
    }
}

/// Answers a request.
pub fn answer(request: &Request<'_>) -> Answer {
    if !http::is_below(request.path, PATH) {
        return error(404, "404 page not found", false);
    }
    if request.body.len() > MAX_BODY {
        return error(400, &format!("Request entity too large: limit is {MAX_BODY}"), false);
    }
    if request.body.is_empty() {
        return error(400, "no body found", true);
    }
    // Parity: parameters such as a charset are not accepted.
    if request.content_type != Some("application/json") {
        return error(415, "invalid Content-Type, want `application/json`", true);
    }
    match Review::read(request.body) {
        Ok(review) => reviewed(&review),
        Err(ReviewError::NoRequest) => error(400, "the admission review has no request", true),
        Err(ReviewError::Undecodable(why)) => {
            let message = format!("could not decode body: {why}");
            let body = review::respond(None, &Reply { refusal: Some(&message), ..Reply::default() });
            success(body, Outcome { count: None, refusal: Some(message) })
        }
    }
}

fn reviewed(review: &Review) -> Answer {
    let verdict = admit::admit(&review.request);
    let reply = Reply { refusal: verdict.refusal.as_deref(), warnings: &verdict.warnings, patch: None };
    let body = review::respond(Some(review.address()), &reply);
    let resource = || review.request.resource();
    let count = match verdict.reason {
        None => Some(Count::Passed(resource())),
        Some(_) if review.request.dry_run => None,
        Some(reason) => Some(Count::Failed(resource(), reason)),
    };
    success(body, Outcome { count, refusal: verdict.refusal })
}

fn success(body: Vec<u8>, outcome: Outcome) -> Answer {
    Answer { status: 200, headers: &[TEXT], body, outcome }
}

fn error(status: u16, message: &str, counted: bool) -> Answer {
    let count = counted.then_some(Count::HttpError(status));
    let outcome = Outcome { count, refusal: None };
    Answer { status, headers: &[TEXT, NO_SNIFFING], body: format!("{message}\n").into_bytes(), outcome }
}
