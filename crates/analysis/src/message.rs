//! Messages: what an analyzer reports.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::world::Origin;

/// Where messages are documented, by code.
pub const DOCUMENTATION: &str = "https://istio.io/v1.30/docs/reference/config/analysis";

/// How bad something is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A part of the configuration does not work.
    Error,
    /// A part of the configuration may not work as intended.
    Warning,
    /// A fact that the user should know.
    Info,
}

impl Level {
    /// All levels, in the order in which Istio lists them.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Error];

    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }

    /// The level of a name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// Whether this is as bad as the threshold or worse.
    pub fn reaches(self, threshold: Self) -> bool {
        self <= threshold
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A row of the [`catalogue`](crate::catalogue).
#[derive(Debug)]
pub struct MessageType {
    /// The name, such as `ReferencedResourceNotFound`.
    pub name: &'static str,
    /// The code, such as `IST0101`.
    pub code: &'static str,
    /// The level.
    pub level: Level,
    /// The text with placeholders as of Go's `Printf`.
    pub template: &'static str,
}

/// A parameter of a message's text.
#[derive(Clone, Debug)]
pub enum Parameter {
    /// A text or a number.
    Text(String),
    /// A list, printed as `[a b]`.
    List(Vec<String>),
}

impl<T: fmt::Display> From<&T> for Parameter
where
    T: ?Sized,
{
    fn from(text: &T) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<String> for Parameter {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for Parameter {
    fn from(items: Vec<String>) -> Self {
        Self::List(items)
    }
}

impl MessageType {
    /// Fills the template.
    pub(crate) fn text(&self, parameters: &[Parameter]) -> String {
        let mut text = String::with_capacity(self.template.len() + 32);
        let mut parameters = parameters.iter();
        let mut rest = self.template;
        while let Some(at) = rest.find('%') {
            text.push_str(&rest[..at]);
            let verb = rest[at + 1..].chars().next();
            match (verb, verb.and_then(|_| parameters.next())) {
                (Some('q'), Some(Parameter::Text(value))) => quote(&mut text, value),
                (Some('q'), Some(Parameter::List(items))) => {
                    list(&mut text, items, quote);
                }
                (_, Some(Parameter::Text(value))) => text.push_str(value),
                (_, Some(Parameter::List(items))) => list(&mut text, items, String::push_str),
                (_, None) => {}
            }
            rest = &rest[at + 1 + verb.map_or(0, char::len_utf8)..];
        }
        text.push_str(rest);
        text
    }
}

fn list(text: &mut String, items: &[String], print: impl Fn(&mut String, &str)) {
    text.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        print(text, item);
    }
    text.push(']');
}

fn quote(text: &mut String, value: &str) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{value:?}");
}

/// A finding of an analyzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The code.
    pub code: &'static str,
    /// How bad it is.
    pub level: Level,
    /// The object it is about.
    pub origin: Option<Arc<Origin>>,
    /// The line of the field it is about, where that is known.
    pub line: Option<u32>,
    /// The words.
    pub text: String,
    /// What to do about it, where the words do not say.
    pub remedy: Option<String>,
}

impl Message {
    /// The object and its place, as ` (VirtualService shop/v routes.yaml:4)`; empty if the message is about none.
    pub fn origin_text(&self, with_cluster: bool) -> String {
        let Some(origin) = &self.origin else { return String::new() };
        let place = self.place().map(|place| format!(" {place}")).unwrap_or_default();
        let cluster = if with_cluster { format!(" [cluster-{}]", origin.cluster) } else { String::new() };
        format!("{cluster} ({}{place})", origin.friendly_name())
    }

    /// The file and line, such as `routes.yaml:4`.
    pub fn place(&self) -> Option<String> {
        let reference = self.origin.as_ref()?.reference.as_ref()?;
        // Parity: Istio tells no lines of JSON files.
        if reference.file.ends_with(".json") {
            return Some(reference.file.to_string());
        }
        Some(format!("{}:{}", reference.file, self.line.unwrap_or(reference.line)))
    }

    /// The address of the page about this code.
    pub fn documentation(&self) -> String {
        format!("{}?ref=istioctl-analyze", self.documentation_page())
    }

    /// The same without the mark of who sends readers there.
    pub fn documentation_page(&self) -> String {
        format!("{DOCUMENTATION}/{}/", self.code.to_ascii_lowercase())
    }

    /// The message for programs.
    pub fn to_json(&self, with_cluster: bool) -> Value {
        let mut fields = Map::new();
        fields.insert("code".to_owned(), self.code.into());
        fields.insert("level".to_owned(), self.level.name().into());
        fields.insert("message".to_owned(), self.text.as_str().into());
        fields.insert("documentationUrl".to_owned(), self.documentation().into());
        if let Some(origin) = &self.origin {
            fields.insert("origin".to_owned(), origin.friendly_name().into());
            if let Some(place) = self.place() {
                fields.insert("reference".to_owned(), place.into());
            }
            if with_cluster {
                fields.insert("cluster".to_owned(), json!(&*origin.cluster));
            }
        }
        if let Some(remedy) = &self.remedy {
            fields.insert("remedy".to_owned(), remedy.as_str().into());
        }
        Value::Object(fields)
    }

    /// The order in which messages are printed: by cluster, level, code, object, words.
    pub fn print_order(&self, other: &Self) -> Ordering {
        let cluster = |message: &Self| message.origin.as_ref().map(|origin| origin.cluster.clone());
        let object = |message: &Self| {
            let origin = message.origin.as_ref()?;
            Some((origin.kind, origin.name.clone(), origin.namespace.clone()))
        };
        cluster(self)
            .cmp(&cluster(other))
            .then(self.level.cmp(&other.level))
            .then(self.code.cmp(other.code))
            .then_with(|| object(self).cmp(&object(other)))
            .then_with(|| self.to_string().cmp(&other.to_string()))
    }
}

impl fmt::Display for Message {
    /// As istioctl prints it without colours.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]{} {}", self.level, self.code, self.origin_text(false), self.text)
    }
}

#[cfg(test)]
mod tests {
    use crate::catalogue;

    #[test]
    fn templates_take_texts_numbers_and_lists() {
        let text = catalogue::CONFLICTING_SIDECAR_WORKLOAD_SELECTORS.text(&[
            vec!["a".to_owned(), "b".to_owned()].into(),
            "shop".into(),
            "pod-1".into(),
        ]);
        assert_eq!(
            text,
            "The Sidecars [a b] in namespace \"shop\" select the same workload pod \"pod-1\", which can lead to \
             undefined behavior."
        );
    }

    #[test]
    fn codes_are_unique() {
        let mut codes: Vec<_> = catalogue::ALL.iter().map(|message| message.code).collect();
        codes.sort_unstable();
        let before = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), before);
    }
}
