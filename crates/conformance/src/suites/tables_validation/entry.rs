//! A row: its columns, and what it expects.

use anyhow::{Context, bail};
use canopus_base::tree::{Map, Node, Value};
use canopus_proto::json::{self, Unknown};
use canopus_proto::{Message, Name};

/// A row of a table; a column that is not there is the zero value of its type.
pub(super) struct Entry {
    node: Node,
    /// The name of the table.
    pub(super) test: String,
}

/// What a row expects.
pub(super) struct Expected<'a> {
    pub(super) valid: bool,
    pub(super) warning: Option<bool>,
    pub(super) error_contains: Option<&'a str>,
    pub(super) warning_contains: Option<&'a str>,
}

impl Entry {
    pub(super) fn new(node: &Node, test: &str) -> Self {
        Self { node: expanded(node), test: test.to_owned() }
    }

    /// A column that is there and not null.
    pub(super) fn get(&self, column: &str) -> Option<&Node> {
        self.node.get(column).filter(|node| !node.is_null())
    }

    /// A column of text that must be there.
    pub(super) fn text(&self, column: &str) -> anyhow::Result<&str> {
        let node = self.node.get(column).with_context(|| format!("column {column} is missing"))?;
        node.as_str().with_context(|| format!("column {column} is not a text but a {}", node.kind_name()))
    }

    pub(super) fn truth(&self, column: &str) -> bool {
        self.get(column).and_then(Node::as_bool).unwrap_or_default()
    }

    pub(super) fn integer(&self, column: &str) -> anyhow::Result<i64> {
        let node = self.node.get(column).with_context(|| format!("column {column} is missing"))?;
        node.as_i64().with_context(|| format!("column {column} is not an integer"))
    }

    pub(super) fn texts(&self, column: &str) -> anyhow::Result<Vec<String>> {
        let items = self.get(column).and_then(Node::as_list).unwrap_or_default();
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().with_context(|| format!("column {column} is not a list of texts"))
    }

    /// A column that holds a message; `None` if it is null.
    pub(super) fn message<M: Message + Name + Default>(&self, column: &str) -> anyhow::Result<Option<M>> {
        self.get(column).map(message).transpose().with_context(|| format!("column {column}"))
    }

    /// A column that holds a list of messages.
    pub(super) fn messages<M: Message + Name + Default>(&self, column: &str) -> anyhow::Result<Vec<M>> {
        let items = self.get(column).and_then(Node::as_list).unwrap_or_default();
        items.iter().map(message).collect::<Result<_, _>>().with_context(|| format!("column {column}"))
    }

    /// What the row expects, in whichever of the columns that tables have for it.
    pub(super) fn expected(&self) -> anyhow::Result<Expected<'_>> {
        let expect = self.get("expect");
        let text = |key| expect?.get(key)?.as_str();
        let truth = |key| expect?.get(key)?.as_bool();
        let column = |name| self.get(name).and_then(Node::as_bool);
        // `err` and `ok` are columns of the tables themselves, so they stand above what was made of them.
        let valid = match (column("err"), column("ok"), truth("valid")) {
            (Some(err), _, _) => !err,
            (None, Some(valid), _) | (None, None, Some(valid)) => valid,
            // The error a function returns, or nothing.
            _ if expect.is_none() && self.node.get("input").is_some() => self.get("expected").is_none(),
            _ => bail!("the row does not say whether it is valid"),
        };
        Ok(Expected {
            valid,
            warning: truth("warning").or_else(|| self.get("wantWarn").and_then(Node::as_bool)),
            error_contains: text("errorContains"),
            warning_contains: text("warningContains"),
        })
    }
}

fn message<M: Message + Name + Default>(node: &Node) -> anyhow::Result<M> {
    Ok(json::read(node, Unknown::Reject)?.value)
}

/// The same tree with `{$repeat: {text, count}}` written out, and with empty messages for the missing items of lists, which
/// is how they are read from documents.
fn expanded(node: &Node) -> Node {
    if let Some(text) = node.get("$repeat").and_then(repeated) {
        return Node::from(Value::from(text));
    }
    match &node.value {
        Value::Map(map) => {
            let entries = map.iter().map(|entry| (entry.key.to_string(), expanded(&entry.node)));
            Node::from(Value::Map(entries.collect::<Map>()))
        }
        Value::List(items) => Node::from(Value::List(items.iter().map(item).collect())),
        _ => node.clone(),
    }
}

fn item(node: &Node) -> Node {
    if node.is_null() { Value::Map(Map::new()).into() } else { expanded(node) }
}

fn repeated(repeat: &Node) -> Option<String> {
    let count = usize::try_from(repeat.get("count")?.as_i64()?).ok()?;
    Some(repeat.get("text")?.as_str()?.repeat(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_text_and_missing_items_are_written_out() {
        let node = json!({"a": [{"$repeat": {"text": "xy", "count": 3}}, null], "b": {"c": null}});
        assert_eq!(expanded(&node.into()), json!({"a": ["xyxyxy", {}], "b": {"c": null}}).into());
    }

    #[test]
    fn expectation_is_found_in_any_of_its_columns() {
        let valid = |node: serde_json::Value| {
            let entry = Entry::new(&node.into(), "");
            entry.expected().map(|expected| expected.valid).ok()
        };
        assert_eq!(valid(json!({"expect": {"valid": true}})), Some(true));
        assert_eq!(valid(json!({"ok": false})), Some(false));
        assert_eq!(valid(json!({"err": true, "expect": {"valid": true}})), Some(false));
        assert_eq!(valid(json!({"input": "x", "expected": null})), Some(true));
        assert_eq!(valid(json!({"input": "x", "expected": "bad"})), Some(false));
        assert_eq!(valid(json!({"in": "x"})), None);
    }
}
