//! What a line of a watch says.

use canopus_base::json;
use canopus_base::tree::{Limits, Node};

use super::MAX_OBJECT_BYTES;
use crate::kubernetes::server::Failure;

/// Set on the bookmark that ends a listing.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One line.
#[derive(Debug)]
pub(super) enum WireEvent {
    /// An object is new or different.
    Object(Node),
    /// An object is gone.
    Gone(Node),
    /// All changes up to this version were sent.
    Bookmark(Node),
    /// The watch cannot go on.
    Error(Failure),
}

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<WireEvent, Failure> {
    let limits = Limits { max_bytes: MAX_OBJECT_BYTES, ..Limits::default() };
    let mut line = json::parse(line, &limits).map_err(|error| Failure::Malformed(error.to_string()))?;
    let object = line.get_mut("object").map(std::mem::take).unwrap_or_default();
    match line.get("type").and_then(Node::as_str) {
        Some("ADDED" | "MODIFIED") => Ok(WireEvent::Object(object)),
        Some("DELETED") => Ok(WireEvent::Gone(object)),
        Some("BOOKMARK") => Ok(WireEvent::Bookmark(object)),
        Some("ERROR") => Ok(WireEvent::Error(Failure::from_status(&object))),
        other => Err(Failure::Malformed(format!("an event of type {other:?}"))),
    }
}

/// Whether a bookmark ends a listing.
pub(super) fn ends_listing(bookmark: &Node) -> bool {
    let annotations = bookmark.pointer("/metadata/annotations");
    annotations.and_then(|annotations| annotations.get(INITIAL_EVENTS_END)).and_then(Node::as_str)
        == Some("true")
}

/// Namespace, name and version of an object; empty where it names none.
pub(super) fn identity(object: &Node) -> (&str, &str, &str) {
    let text = |path| object.pointer(path).and_then(Node::as_str).unwrap_or_default();
    (text("/metadata/namespace"), text("/metadata/name"), text("/metadata/resourceVersion"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_their_type() {
        let said = |text: &str| parse(text.as_bytes()).unwrap();
        let object = r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}"#;
        let WireEvent::Object(object) = said(object) else { panic!("an object") };
        assert_eq!(identity(&object), ("", "a", "7"));
        assert!(matches!(said(r#"{"type":"DELETED","object":{}}"#), WireEvent::Gone(_)));

        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let WireEvent::Bookmark(bookmark) = said(bookmark) else { panic!("a bookmark") };
        assert!(ends_listing(&bookmark) && !ends_listing(&object));
        assert_eq!(identity(&bookmark), ("", "", ""));

        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let WireEvent::Error(failure) = said(error) else { panic!("an error") };
        assert!(failure.needs_listing());
        assert_eq!(failure.to_string(), "too old (status 410)");
    }

    #[test]
    fn nonsense_is_an_error() {
        for nonsense in [&b"{"[..], b"[]", b"{\"type\":\"NEW\"}", b"\xff\xfe", b""] {
            assert!(parse(nonsense).is_err(), "{}", String::from_utf8_lossy(nonsense));
        }
    }
}
