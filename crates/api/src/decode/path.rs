//! Field paths as problems write them: `spec.http[0].headers["odd.key"]`.

use std::fmt::Write as _;

use canopus_base::tree::Node;

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Into a map.
    Key(&'a str),
    /// Into a list.
    Index(usize),
}

/// Splits a path. `None` if it is not written as paths are.
fn parse(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (key, tail) = quoted.split_once("\"]")?;
            steps.push(Step::Key(key));
            rest = tail;
        } else if let Some(bracket) = rest.strip_prefix('[') {
            let (index, tail) = bracket.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = tail;
        } else {
            let key = rest.strip_prefix('.').unwrap_or(rest);
            let end = key.find(['.', '[']).unwrap_or(key.len());
            steps.push(Step::Key(&key[..end]));
            rest = &key[end..];
        }
    }
    Some(steps)
}

/// Writes a path.
pub(crate) fn render(steps: &[Step<'_>]) -> String {
    let mut path = String::new();
    for step in steps {
        let written = match step {
            Step::Key(key) if path.is_empty() => write!(path, "{key}"),
            Step::Key(key) => write!(path, ".{key}"),
            Step::Index(index) => write!(path, "[{index}]"),
        };
        written.expect("a string takes all that is written to it");
    }
    path
}

/// The node that some steps lead to.
pub(crate) fn follow<'a>(node: &'a Node, steps: &[Step<'_>]) -> Option<&'a Node> {
    steps.iter().try_fold(node, |node, step| match step {
        Step::Key(key) => node.get(key),
        Step::Index(index) => node.as_list()?.get(*index),
    })
}

/// The node at a path.
pub(crate) fn get<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    follow(node, &parse(path)?)
}

/// The node at a path, for change.
pub(crate) fn get_mut<'a>(node: &'a mut Node, path: &str) -> Option<&'a mut Node> {
    parse(path)?.into_iter().try_fold(node, |node, step| match step {
        Step::Key(key) => node.get_mut(key),
        Step::Index(index) => node.as_list_mut()?.get_mut(index),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_leads_through_maps_lists_and_odd_keys() {
        let node = Node::from(serde_json::json!({"a": [{"b": {"c.d": 1}}]}));
        assert_eq!(get(&node, r#"a[0].b["c.d"]"#).and_then(Node::as_i64), Some(1));
        assert_eq!(get(&node, "").map(Node::kind_name), Some("map"));
        assert_eq!(get(&node, "a[1].b"), None);
        assert_eq!(get(&node, "a[x]"), None);
    }
}
