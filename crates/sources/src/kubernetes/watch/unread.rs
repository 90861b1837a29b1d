//! Objects that cannot be read, by name: what is last known of them stays, and nothing else suffers.

use canopus_base::tree::Node;
use serde::Deserialize;

/// An object that is too deep, too large or otherwise not to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) struct Unread {
    pub(in crate::kubernetes) namespace: Box<str>,
    /// Empty if even the name cannot be read.
    pub(in crate::kubernetes) name: Box<str>,
    /// The version it has; empty if that cannot be read.
    pub(in crate::kubernetes) version: Box<str>,
    /// Why.
    pub(in crate::kubernetes) reason: String,
}

/// What is read of an object to name it. Everything else is skipped without being looked at, however deep it is.
#[derive(Default, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    pub(super) metadata: Metadata,
}

/// The part of an object's metadata that identifies it.
#[derive(Default, Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: Box<str>,
    #[serde(default)]
    pub(super) namespace: Box<str>,
    #[serde(default, rename = "resourceVersion")]
    pub(super) version: Box<str>,
}

/// The same in a line of a watch.
#[derive(Deserialize)]
struct Line {
    r#type: Box<str>,
    object: Named,
}

impl Unread {
    /// The name of an object that cannot be read for this reason.
    pub(super) fn new(object: &[u8], reason: String) -> Self {
        Self::from_named(serde_json::from_slice::<Named>(object).unwrap_or_default(), reason)
    }

    /// The same of a line of a watch, and whether the line says that the object is gone; `None` if it names none.
    pub(super) fn in_line(line: &[u8], reason: String) -> Option<(Self, bool)> {
        let line: Line = serde_json::from_slice(line).ok()?;
        let is_gone = &*line.r#type == "DELETED";
        let is_told = is_gone || matches!(&*line.r#type, "ADDED" | "MODIFIED");
        let unread = Self::from_named(line.object, reason);
        (is_told && !unread.name.is_empty()).then_some((unread, is_gone))
    }

    /// The known fields as an object.
    pub(super) fn outline(&self) -> Node {
        serde_json::json!({"metadata": {"name": self.name, "namespace": self.namespace}}).into()
    }

    fn from_named(Named { metadata }: Named, reason: String) -> Self {
        let Metadata { name, namespace, version } = metadata;
        Self { namespace, name, version, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_named_however_deep_it_is() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let line = |kind: &str| {
            format!(
                r#"{{"type":"{kind}","object":{{"spec":{deep},"metadata":{{"name":"a","namespace":"n"}}}}}}"#
            )
        };
        let (unread, is_gone) = Unread::in_line(line("MODIFIED").as_bytes(), "deep".into()).unwrap();
        assert_eq!((&*unread.namespace, &*unread.name, is_gone), ("n", "a", false));
        assert!(Unread::in_line(line("DELETED").as_bytes(), String::new()).unwrap().1);
        assert!(Unread::in_line(line("BOOKMARK").as_bytes(), String::new()).is_none());
    }

    #[test]
    fn what_has_no_name_is_not_named() {
        for text in ["", "7", r#"{"type":"ADDED","object":{}}"#, r#"{"type":"ADDED","object":7}"#] {
            assert!(Unread::in_line(text.as_bytes(), String::new()).is_none(), "{text}");
        }
        assert_eq!(&*Unread::new(b"{", "no".into()).name, "");
    }
}
