//! What the webhooks need of HTTP.

/// The longest body that is read: twice what the API server would store, and as much again.
pub const MAX_BODY: usize = 6 << 20;

pub(crate) const TEXT: (&str, &str) = ("content-type", "text/plain; charset=utf-8");
pub(crate) const NO_SNIFFING: (&str, &str) = ("x-content-type-options", "nosniff");

/// A request, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path, perhaps with a query.
    pub path: &'a str,
    /// The content type, if the client said it.
    pub content_type: Option<&'a str>,
    /// The body. A server may stop reading once it has more than [`MAX_BODY`] bytes.
    pub body: &'a [u8],
}

/// What the client receives, and what a webhook tells its server about the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<O> {
    /// The HTTP status.
    pub status: u16,
    /// Names and values of headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: Vec<u8>,
    /// What is counted and logged.
    pub outcome: O,
}

impl<O> Answer<O> {
    /// The answer to a review.
    pub(crate) fn review(body: Vec<u8>, outcome: O) -> Self {
        Self { status: 200, headers: &[TEXT], body, outcome }
    }

    /// An error, as Go's HTTP server writes it.
    pub(crate) fn error(status: u16, message: &str, outcome: O) -> Self {
        Self { status, headers: &[TEXT, NO_SNIFFING], body: format!("{message}\n").into_bytes(), outcome }
    }
}

/// A request that is not worth reading: the status and message of the answer.
///
/// Parity: parameters of the content type, such as a charset, are not accepted.
pub(crate) fn refuse(request: &Request<'_>, root: &str) -> Option<(u16, String)> {
    if !is_below(request.path, root) {
        return Some((404, "404 page not found".to_owned()));
    }
    if request.body.len() > MAX_BODY {
        return Some((400, format!("Request entity too large: limit is {MAX_BODY}")));
    }
    if request.body.is_empty() {
        return Some((400, "no body found".to_owned()));
    }
    (request.content_type != Some("application/json"))
        .then(|| (415, "invalid Content-Type, want `application/json`".to_owned()))
}

/// The path without the query.
pub(crate) fn path_only(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Whether a path is the given one or below it.
pub(crate) fn is_below(path: &str, root: &str) -> bool {
    path_only(path).strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
