//! Streams of objects: YAML documents and lists.

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use crate::decode::{DecodeError, Decoded, Options, Problem, Reason};
use crate::kinds::Object;

/// One object of a stream, or why it is none.
pub type Outcome = Result<Decoded<Object>, DecodeError>;

/// Reads every object of a YAML or JSON text, the items of lists included, in the order they stand in.
///
/// Each object stands alone: one that cannot be read, or is of a kind the mesh does not read
/// ([`DecodeError::is_unknown_kind`]), does not keep the others from being read.
pub fn decode_documents(text: impl AsRef<[u8]>, limits: &Limits, options: Options) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for document in yaml::parse_all(text, limits) {
        match document {
            Ok(document) => decode_document(&document.node, document.index, options, &mut outcomes),
            Err(error) => outcomes.push(Err(unreadable(&error))),
        }
    }
    outcomes
}

/// Reads one document, which may be a list.
fn decode_document(node: &Node, index: usize, options: Options, outcomes: &mut Vec<Outcome>) {
    let in_document = |mut error: DecodeError| {
        error.document = Some(index);
        error
    };
    match items_of_list(node) {
        None => outcomes.push(Object::decode(node, options).map_err(in_document)),
        Some(Err(problem)) => {
            let error = DecodeError::new(node, Reason::Invalid(vec![problem]));
            outcomes.push(Err(in_document(error)));
        }
        Some(Ok(items)) => {
            outcomes.extend(items.iter().map(|item| Object::decode(item, options).map_err(in_document)));
        }
    }
}

/// The items of a `v1` List; `None` if the document is none.
fn items_of_list(node: &Node) -> Option<Result<&[Node], Problem>> {
    let says = |field, text| node.get(field).and_then(Node::as_str) == Some(text);
    if !says("apiVersion", "v1") || !says("kind", "List") {
        return None;
    }
    let items = match node.get("items") {
        None => Ok(&[][..]),
        Some(items) if items.is_null() => Ok(&[][..]),
        Some(items) => items.as_list().ok_or_else(|| {
            Problem::new("items", items.at, format!("expected a list, found a {}", items.kind_name()))
        }),
    };
    Some(items)
}

fn unreadable(error: &yaml::Error) -> DecodeError {
    DecodeError {
        document: Some(error.document),
        at: error.at,
        object: Box::default(),
        reason: Reason::Syntax(error.kind.to_string()),
    }
}
