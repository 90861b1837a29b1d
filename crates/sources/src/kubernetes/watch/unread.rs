//! Objects that cannot be read, by name: what is last known of them stays, and nothing else suffers.

use std::fmt;

use canopus_base::tree::Node;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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

/// The same in a line of a watch, as far as the line goes: what names the object comes before most of what it says, so that the
/// beginning of a line that is too long, or one that is malformed further on, names it too.
#[derive(Default)]
struct NamedLine {
    kind: Box<str>,
    /// Once the whole of it was read: a name without its namespace would be another object's.
    metadata: Metadata,
}

/// Reads what names an object out of a line, or out of the object in it.
struct Reader<'a> {
    named: &'a mut NamedLine,
    is_object: bool,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Box<str>>()? {
            match (&*key, self.is_object) {
                ("type", false) => self.named.kind = map.next_value()?,
                ("object", false) => map.next_value_seed(Reader { named: self.named, is_object: true })?,
                ("metadata", true) => self.named.metadata = map.next_value()?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

impl Unread {
    /// The name of an object that cannot be read for this reason.
    pub(super) fn new(object: &[u8], reason: String) -> Self {
        Self::from_named(serde_json::from_slice::<Named>(object).unwrap_or_default(), reason)
    }

    /// The same of a line of a watch or the beginning of one, and whether it says that the object is gone; `None` if it names
    /// none.
    pub(super) fn in_line(line: &[u8], reason: String) -> Option<(Self, bool)> {
        let mut named = NamedLine::default();
        let reader = Reader { named: &mut named, is_object: false };
        // What was read before the line breaks off is what counts.
        let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(line));
        let NamedLine { kind, metadata } = named;
        let is_gone = &*kind == "DELETED";
        let is_told = is_gone || matches!(&*kind, "ADDED" | "MODIFIED");
        let unread = Self::from_named(Named { metadata }, reason);
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
    fn object_is_named_by_the_beginning_of_its_line_once_its_metadata_is_whole() {
        let line = r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"a","managedFields":[{}],"namespace":"n","resourceVersion":"7"},"data":{"key":"value"}}}"#;
        let metadata = line.find(r#","data""#).unwrap();
        for end in 0..line.len() {
            let unread = Unread::in_line(&line.as_bytes()[..end], "large".into());
            let named = unread.map(|(unread, _)| (unread.namespace, unread.name, unread.version));
            assert_eq!(named, (end >= metadata).then(|| ("n".into(), "a".into(), "7".into())), "{end}");
        }
    }

    #[test]
    fn what_has_no_name_is_not_named() {
        for text in ["", "7", r#"{"type":"ADDED","object":{}}"#, r#"{"type":"ADDED","object":7}"#] {
            assert!(Unread::in_line(text.as_bytes(), String::new()).is_none(), "{text}");
        }
        assert_eq!(&*Unread::new(b"{", "no".into()).name, "");
    }
}
