//! Messages as JSON and YAML, as Go prints them.

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node, Value};
use canopus_base::{json, yaml};
use canopus_proto::{Message, Name};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};

/// How configuration is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Short,
    Json,
    Yaml,
}

impl Format {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "short" => Ok(Self::Short),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => bail!("output format {other:?} not supported"),
        }
    }
}

/// A list of messages.
pub(crate) fn messages<M: Message + Name>(messages: &[M], format: Format) -> String {
    let nodes: Vec<Node> = messages.iter().map(canopus_proto::json::write).collect();
    node(&Value::List(nodes).into(), format)
}

/// One message.
pub(crate) fn message<M: Message + Name>(message: &M, format: Format) -> String {
    node(&canopus_proto::json::write(message), format)
}

/// A tree, with a line break behind it as Go's `Println` adds one.
pub(crate) fn node(node: &Node, format: Format) -> String {
    match format {
        Format::Yaml => format!("{}\n", yaml::node_to_string(node)),
        Format::Json | Format::Short => format!("{}\n", indented(node, b"    ")),
    }
}

/// JSON with Go's escapes, in which `<`, `>` and `&` are safe for HTML.
pub(crate) fn indented(node: &Node, indent: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(indent));
    // A tree always has a JSON form, and writing to memory does not fail.
    let _ = node.serialize(&mut serializer);
    let text = String::from_utf8(bytes).unwrap_or_default();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// YAML of a JSON text.
pub(crate) fn json_to_yaml(text: &[u8]) -> anyhow::Result<String> {
    Ok(node(&parse(text)?, Format::Yaml))
}

/// Reads JSON of any size: it comes from a proxy or a file that the user named.
pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Node> {
    let limits = Limits { max_bytes: text.len(), max_nodes: usize::MAX, ..Limits::default() };
    json::parse(text, &limits).context("not JSON")
}
