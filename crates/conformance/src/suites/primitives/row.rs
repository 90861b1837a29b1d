//! A row of a table: columns by name, where a column that is not there is the zero value of its type.

use std::fmt::Debug;

use anyhow::{Context, bail};
use canopus_base::labels::Labels;
use canopus_base::tree::{Map, Node, Value};

use crate::compare::Difference;
use crate::compare::tree::{self, Rules};

#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    entry: &'a Node,
}

impl<'a> Row<'a> {
    pub(super) fn new(entry: &'a Node) -> Self {
        Self { entry }
    }

    /// A column that is there and not null.
    pub(super) fn get(self, column: &str) -> Option<&'a Node> {
        self.entry.get(column).filter(|node| !node.is_null())
    }

    /// A column that holds further columns.
    pub(super) fn row(self, column: &str) -> anyhow::Result<Row<'a>> {
        self.get(column).map(Row::new).with_context(|| format!("column {column} is missing"))
    }

    pub(super) fn text(self, column: &str) -> anyhow::Result<&'a str> {
        match self.get(column) {
            None => Ok(""),
            Some(node) => node
                .as_str()
                .with_context(|| format!("column {column} is not a text but a {}", node.kind_name())),
        }
    }

    pub(super) fn truth(self, column: &str) -> anyhow::Result<bool> {
        match self.get(column) {
            None => Ok(false),
            Some(node) => node.as_bool().with_context(|| format!("column {column} is not a truth value")),
        }
    }

    pub(super) fn integer(self, column: &str) -> anyhow::Result<i64> {
        match self.get(column) {
            None => Ok(0),
            Some(node) => node.as_i64().with_context(|| format!("column {column} is not an integer")),
        }
    }

    /// A list of texts; an empty one may be written as an empty mapping.
    pub(super) fn texts(self, column: &str) -> anyhow::Result<Vec<String>> {
        match self.get(column).map(|node| &node.value) {
            None => Ok(Vec::new()),
            Some(Value::Map(map)) if map.is_empty() => Ok(Vec::new()),
            Some(Value::List(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .with_context(|| format!("column {column} is not a list of texts")),
            Some(_) => bail!("column {column} is not a list of texts"),
        }
    }

    pub(super) fn labels(self, column: &str) -> anyhow::Result<Labels> {
        match self.get(column) {
            None => Ok(Labels::new()),
            Some(node) => Ok(node.decode()?),
        }
    }
}

/// Compares a value with the expectation in a column.
pub(super) fn equal<T: PartialEq + Debug>(column: &str, expected: &T, got: &T) -> Vec<Difference> {
    if expected == got {
        return Vec::new();
    }
    vec![Difference::new(format!("/{column}"), format_args!("{expected:?}"), format_args!("{got:?}"))]
}

/// Compares a tree with the expectation in a column.
pub(super) fn equal_tree(expected: &Node, got: &Node) -> Vec<Difference> {
    tree::difference(expected, got, &Rules::default())
}

/// The same tree with all keys in lower case: tables spell the fields of a struct both `Name` and `name`.
pub(super) fn with_lower_case_keys(node: &Node) -> Node {
    match &node.value {
        Value::Map(map) => {
            let entries =
                map.iter().map(|entry| (entry.key.to_ascii_lowercase(), with_lower_case_keys(&entry.node)));
            Node::from(Value::Map(entries.collect::<Map>()))
        }
        Value::List(items) => Node::from(Value::List(items.iter().map(with_lower_case_keys).collect())),
        _ => node.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_column_is_the_zero_value() {
        let entry = Node::from(json!({"a": null}));
        let row = Row::new(&entry);
        assert_eq!(row.text("a").unwrap(), "");
        assert!(!row.truth("b").unwrap());
        assert_eq!(row.integer("b").unwrap(), 0);
        assert_eq!(row.texts("b").unwrap(), [""; 0]);
        assert!(row.row("b").is_err());
    }

    #[test]
    fn column_of_another_type_is_an_error() {
        let entry = Node::from(json!({"a": 1, "b": {}, "c": {"x": 1}, "d": ["x"]}));
        let row = Row::new(&entry);
        assert!(row.text("a").is_err() && row.truth("a").is_err() && row.integer("b").is_err());
        assert!(row.texts("b").unwrap().is_empty());
        assert!(row.texts("c").is_err());
        assert_eq!(row.texts("d").unwrap(), ["x"]);
    }

    #[test]
    fn differing_values_are_shown() {
        assert_eq!(equal("c", &1, &1), []);
        assert_eq!(equal("c", &"a", &"b"), [Difference::new("/c", "\"a\"", "\"b\"")]);
    }

    #[test]
    fn keys_are_lowered_at_every_depth() {
        let node = Node::from(json!({"Aa": [{"Bb": "Cc"}]}));
        assert_eq!(with_lower_case_keys(&node), json!({"aa": [{"bb": "Cc"}]}).into());
    }
}
