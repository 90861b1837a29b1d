//! The webhook that refuses objects that make no sense.
//!
//! [`answer`] takes what a client sent and gives what it is to receive, byte for byte as Istio's clients know it, and an
//! [`Outcome`] for the server to count.

mod admit;
#[cfg(test)]
mod tests;

use crate::http;
pub use crate::http::{MAX_BODY, Request};
pub use crate::review::Resource;
use crate::review::{self, Reply, Review, ReviewError};

/// Where the webhook is served, with everything below it.
const PATH: &str = "/validate";

/// What the client receives.
pub type Answer = http::Answer<Outcome>;

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
    /// The operation neither creates nor updates an object. Such requests are allowed all the same.
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
    if let Some((status, message)) = http::refuse(request, PATH) {
        // Parity: a request that is too large is not counted.
        let counted = status != 404 && request.body.len() <= MAX_BODY;
        return error(status, &message, counted);
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
    Answer::review(body, outcome)
}

fn error(status: u16, message: &str, counted: bool) -> Answer {
    let count = counted.then_some(Count::HttpError(status));
    let outcome = Outcome { count, refusal: None };
    Answer::error(status, message, outcome)
}
