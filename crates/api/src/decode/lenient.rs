//! All problems of a document at once, where serde stops at the first.

use canopus_base::tree::{self, Node, Value};
use serde::de::DeserializeOwned;

use super::Problem;
use super::path::{self, Step};

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
    let (at, message) = match steps.split_last() {
        Some((Step::Key(key), parents)) => {
            let parent = path::follow(node, parents).and_then(Node::as_map);
            let entry = parent.and_then(|map| map.get_entry(key));
            (entry.map(|entry| entry.key_at), format!("unknown field {key:?}"))
        }
        _ => (None, "unknown element".to_owned()),
    };
    Problem::new(path::render(&steps), at.unwrap_or(node.at), message)
        .with_remedy("remove it, or correct its spelling or indentation")
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

fn located(error: tree::DecodeError, node: &Node) -> Problem {
    let mut problem = Problem::from(error);
    if !problem.at.is_known() {
        problem.at = node.at;
    }
    problem
}

/// Makes the value at an error's path `null`, which every reader takes as "not given". False if it was that already.
fn take_out(node: &mut Node, path: &str) -> bool {
    let Some(found) = path::get_mut(node, path) else {
        return false;
    };
    !std::mem::replace(&mut found.value, Value::Null).eq(&Value::Null)
}
