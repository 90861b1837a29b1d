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

/// The path without the query.
pub(crate) fn path_only(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Whether a path is the given one or below it.
pub(crate) fn is_below(path: &str, root: &str) -> bool {
    path_only(path).strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
