//! One page of a listing.

use bytes::Bytes;
use canopus_base::json;
use canopus_base::tree::{Limits, Node, Value};

use crate::kubernetes::server::Failure;

/// Objects per page.
pub(super) const SIZE: usize = 500;

/// A page larger than this is asked for in smaller ones.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// A page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The objects.
    pub(super) items: Vec<Node>,
    /// What to ask for the next page with; empty at the end.
    pub(super) next: String,
    /// The version of the listing.
    pub(super) version: Box<str>,
}

impl Page {
    /// Reads a page. It may be large, so other tasks are not held up by it.
    pub(super) async fn read(bytes: Bytes) -> Result<Self, Failure> {
        let read = tokio::task::spawn_blocking(move || Self::parse(&bytes)).await;
        read.map_err(|error| Failure::Malformed(error.to_string()))?
    }

    fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let limits = Limits { max_bytes: MAX_BYTES, max_nodes: 8_000_000, ..Limits::default() };
        let mut list = json::parse(bytes, &limits).map_err(|error| Failure::Malformed(error.to_string()))?;
        let text = |path| list.pointer(path).and_then(Node::as_str).unwrap_or_default();
        let (next, version) =
            (text("/metadata/continue").to_owned(), text("/metadata/resourceVersion").into());
        let items = match list.get_mut("items").map(std::mem::take).unwrap_or_default().value {
            Value::List(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(Failure::Malformed("items are not a list".to_owned())),
        };
        Ok(Self { items, next, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_items_and_says_how_to_go_on() {
        let text = r#"{"metadata":{"continue":"abc","resourceVersion":"12"},"items":[{},{}]}"#;
        let page = Page::parse(text.as_bytes()).unwrap();
        assert_eq!((page.items.len(), page.next.as_str(), &*page.version), (2, "abc", "12"));
        let page = Page::parse(br#"{"items":null}"#).unwrap();
        assert_eq!((page.items.len(), page.next.as_str()), (0, ""));
        assert!(Page::parse(br#"{"items":"many"}"#).is_err());
    }
}
