//! Excerpts: `type`, `type name` or `type name path`.
//!
//! A path is a list of keys separated by dots. A list is followed by `[2]` for an item, `[name=x]` for the first item with
//! that value (the key may itself be a path), or `[*]` for all items; `{a,b}` keeps some keys of a mapping. `@http` stands for
//! the configuration of the HTTP connection manager of a filter chain. The name `""` is the empty one.

use anyhow::{Context as _, bail};
use canopus_base::tree::{Map, Node, Value};

/// The name of the HTTP connection manager filter.
const HTTP_CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// What to show of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) kind: String,
    /// The name of the resource; without one, the names of all resources are shown.
    pub(crate) name: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    Find(String, String),
    Each,
    Only(Vec<String>),
}

impl Excerpt {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut words = text.splitn(3, ' ');
        let kind = words.next().unwrap_or_default().to_owned();
        let name = words.next().map(|name| if name == "\"\"" { String::new() } else { name.to_owned() });
        let steps = words.next().map(steps).transpose()?.unwrap_or_default();
        Ok(Self { kind, name, steps })
    }

    /// The excerpt of a resource; null if the path leads nowhere.
    pub(crate) fn apply(&self, resource: &Node) -> Node {
        walk(resource, &self.steps).unwrap_or_default()
    }
}

fn steps(path: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (inside, after) = inner.split_once(']').context("`[` without `]`")?;
            steps.push(match inside.split_once('=') {
                Some((key, value)) => Step::Find(key.to_owned(), value.to_owned()),
                None if inside == "*" => Step::Each,
                None => Step::Index(inside.parse().context("expected a number, `*` or `key=value` in `[]`")?),
            });
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let (inside, after) = inner.split_once('}').context("`{` without `}`")?;
            steps.push(Step::Only(inside.split(',').map(|key| key.trim().to_owned()).collect()));
            rest = after;
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[', '{']).unwrap_or(rest.len());
            if end == 0 {
                bail!("an empty key in the path");
            }
            match &rest[..end] {
                "@http" => steps.extend([
                    Step::Key("filters".to_owned()),
                    Step::Find("name".to_owned(), HTTP_CONNECTION_MANAGER.to_owned()),
                    Step::Key("typedConfig".to_owned()),
                ]),
                key => steps.push(Step::Key(key.to_owned())),
            }
            rest = &rest[end..];
        }
    }
    Ok(steps)
}

fn walk(node: &Node, steps: &[Step]) -> Option<Node> {
    let Some((step, rest)) = steps.split_first() else { return Some(node.clone()) };
    match step {
        Step::Key(key) => walk(node.get(key)?, rest),
        Step::Index(index) => walk(node.as_list()?.get(*index)?, rest),
        Step::Find(key, value) => {
            let is_it = |item: &&Node| lookup(item, key).is_some_and(|found| text(found) == *value);
            walk(node.as_list()?.iter().find(is_it)?, rest)
        }
        Step::Each => {
            let items = node.as_list()?.iter().map(|item| walk(item, rest).unwrap_or_default());
            Some(Value::List(items.collect()).into())
        }
        Step::Only(keys) => {
            let kept = keys.iter().filter_map(|key| Some((key, node.get(key)?.clone())));
            walk(&Value::Map(kept.collect::<Map>()).into(), rest)
        }
    }
}

fn lookup<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    path.split('.').try_fold(node, |node, key| node.get(key))
}

fn text(node: &Node) -> String {
    match node.as_str() {
        Some(text) => text.to_owned(),
        None => node.to_json().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use canopus_base::tree::Limits;
    use canopus_base::yaml;

    use super::*;

    fn shown(path: &str) -> String {
        let tree =
            "{a: [{id: x, at: {port: 80}, v: 1}, {id: y.z, at: {port: 81}, v: 2}], b: {c: 1, d: 2, e: 3}}";
        let tree = yaml::parse_one(tree, &Limits::default()).unwrap();
        Excerpt::parse(&format!("lds name {path}")).unwrap().apply(&tree).to_json().to_string()
    }

    #[test]
    fn path_selects_items_by_position_value_and_all() {
        assert_eq!(shown("a[0].v"), "1");
        assert_eq!(shown("a[id=y.z].v"), "2");
        assert_eq!(shown("a[at.port=81].id"), "\"y.z\"");
        assert_eq!(shown("a[*].v"), "[1,2]");
        assert_eq!(shown("b{c,e}"), "{\"c\":1,\"e\":3}");
        assert_eq!(shown("b.nothing[0]"), "null");
    }

    #[test]
    fn malformed_path_is_refused() {
        for path in ["a[", "a[x]", "b{c", "a..b"] {
            assert!(Excerpt::parse(&format!("lds name {path}")).is_err(), "{path}");
        }
    }
}
