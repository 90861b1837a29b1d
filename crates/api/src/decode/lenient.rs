//! All problems of a document at once, where serde stops at the first.

use canopus_base::tree::{self, Node, Value};
use serde::de::DeserializeOwned;

use super::Problem;

/// After so many problems the rest of the document says nothing new.
const ENOUGH: usize = 32;

/// Everything that keeps `node` from being a `T`, given the first such thing.
///
/// The offending value is taken out and the document read again, until it can be read. Only documents that are wrong pay
/// for it.
pub(super) fn all_problems<T: DeserializeOwned>(node: &Node, first: tree::DecodeError) -> Vec<Problem> {
    let mut rest = node.clone();
    let mut problems = Vec::new();
    let mut next = Some(first);
    while let Some(error) = next {
        let taken = take_out(&mut rest, &error.path);
        problems.push(located(error, node));
        let go_on = taken && problems.len() < ENOUGH;
        next = if go_on { rest.decode::<T>().err() } else { None };
    }
    problems
}

/// A field that a type holding all fields of its object does not have.
pub(super) fn unknown_field(node: &Node, path: &serde_ignored::Path<'_>) -> Problem {
    let mut steps = Vec::new();
    collect(path, &mut steps);
    let at = steps.split_last().and_then(|(last, parents)| {
        let parent = parents.iter().try_fold(node, |node, step| match step {
            Step::Key(key) => node.get(key),
            Step::Index(index) => node.as_list()?.get(*index),
        })?;
        match last {
            Step::Key(key) => parent.as_map()?.get_entry(key).map(|entry| entry.key_at),
            Step::Index(index) => parent.as_list()?.get(*index).map(|item| item.at),
        }
    });
    let name = match steps.last() {
        Some(Step::Key(key)) => format!("unknown field {key:?}"),
        _ => "unknown element".to_owned(),
    };
    Problem::new(text_of(&steps), at.unwrap_or_default(), name)
        .with_remedy("remove it, or correct its spelling or indentation")
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn collect<'a>(path: &'a serde_ignored::Path<'a>, steps: &mut Vec<Step<'a>>) {
    use serde_ignored::Path;
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            collect(parent, steps);
            steps.push(Step::Index(*index));
        }
        Path::Map { parent, key } => {
            collect(parent, steps);
            steps.push(Step::Key(key));
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            collect(parent, steps);
        }
    }
}

fn text_of(steps: &[Step<'_>]) -> String {
    steps.iter().fold(String::new(), |text, step| match step {
        Step::Key(key) if text.is_empty() => (*key).to_owned(),
        Step::Key(key) => format!("{text}.{key}"),
        Step::Index(index) => format!("{text}[{index}]"),
    })
}

fn located(error: tree::DecodeError, node: &Node) -> Problem {
    let mut problem = Problem::from(error);
    if !problem.at.is_known() {
        problem.at = node.at;
    }
    problem
}

/// Makes the value at an error's path `null`, which every reader takes as "not given". False if it was that already.
fn take_out(node: &mut Node, path: &str) -> bool {
    let Some(found) = find(node, path) else {
        return false;
    };
    !std::mem::replace(&mut found.value, Value::Null).eq(&Value::Null)
}

/// The node at a path as [`tree::DecodeError`] writes it: `spec.http[0]["odd.key"]`.
fn find<'a>(node: &'a mut Node, path: &str) -> Option<&'a mut Node> {
    if path.is_empty() {
        return Some(node);
    }
    if let Some(quoted) = path.strip_prefix("[\"") {
        let (key, rest) = quoted.split_once("\"]")?;
        return find(node.get_mut(key)?, rest.trim_start_matches('.'));
    }
    if let Some(bracket) = path.strip_prefix('[') {
        let (index, rest) = bracket.split_once(']')?;
        let item = node.as_list_mut()?.get_mut(index.parse::<usize>().ok()?)?;
        return find(item, rest.trim_start_matches('.'));
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let rest = path[end..].trim_start_matches('.');
    find(node.get_mut(&path[..end])?, rest)
}
