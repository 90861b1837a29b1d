//! One page of a listing.

use bytes::Bytes;
use canopus_base::json;
use canopus_base::tree::{Limits, Node};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::unread::Unread;
use crate::kubernetes::server::Failure;

/// Objects per page.
pub(super) const SIZE: usize = 500;

/// A page larger than this is asked for in smaller ones.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// How many pages are read at once: at start every kind is listed, and pages are large.
static PARSERS: Semaphore = Semaphore::const_new(4);

/// The most nodes one object may have.
const MAX_NODES: usize = 2_000_000;

/// A page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The objects, those that cannot be read by name.
    pub(super) items: Vec<Result<Node, Unread>>,
    /// What to ask for the next page with; empty at the end.
    pub(super) next: String,
    /// The version of the listing.
    pub(super) version: Box<str>,
}

/// The outline of a page: its items are looked at one by one, so that none stands in the way of the others.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The metadata of a listing.
#[derive(Default, Deserialize)]
pub(super) struct ListMeta {
    #[serde(default, rename = "continue")]
    pub(super) next: Option<String>,
    #[serde(default, rename = "resourceVersion")]
    pub(super) version: Option<String>,
}

impl Page {
    /// Reads a page. It may be large, so other tasks are not held up by it.
    pub(super) async fn read(bytes: Bytes) -> Result<Self, Failure> {
        // The semaphore is never closed.
        let _turn = PARSERS.acquire().await;
        let read = tokio::task::spawn_blocking(move || Self::parse(&bytes)).await;
        read.map_err(|error| Failure::Malformed(error.to_string()))?
    }

    fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let outline: Outline<'_> =
            serde_json::from_slice(bytes).map_err(|error| Failure::Malformed(error.to_string()))?;
        let limits = Limits { max_bytes: MAX_BYTES, max_nodes: MAX_NODES, ..Limits::default() };
        let items = outline.items.unwrap_or_default().into_iter().map(|item| {
            let text = item.get().as_bytes();
            json::parse(text, &limits).map_err(|error| Unread::new(text, error.to_string()))
        });
        Ok(Self {
            items: items.collect(),
            next: outline.metadata.next.unwrap_or_default(),
            version: outline.metadata.version.unwrap_or_default().into(),
        })
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

    #[test]
    fn object_that_cannot_be_read_leaves_the_others_of_its_page() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let text = format!(
            r#"{{"metadata":{{"resourceVersion":"12"}},"items":[
                {{"metadata":{{"name":"good"}}}},
                {{"spec":{deep},"metadata":{{"name":"deep","namespace":"shop","resourceVersion":"7"}}}},
                {{"metadata":{{"name":"last"}}}}]}}"#
        );
        let page = Page::parse(text.as_bytes()).unwrap();
        let names: Vec<_> = page.items.iter().map(Result::is_ok).collect();
        assert_eq!(names, [true, false, true]);
        let unread = page.items[1].as_ref().unwrap_err();
        assert_eq!((&*unread.namespace, &*unread.name), ("shop", "deep"));
        assert!(!unread.reason.is_empty());
    }
}
