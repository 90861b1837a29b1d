//! Custom resource definitions: what a cluster itself checks of an object, and our own definitions of Istio's kinds.
//!
//! A [`Crd`] is read from its document. Each of its versions checks objects as the API server does: defaults, unknown
//! fields, the structural schema, and the rules in `x-kubernetes-validations`. So a file can be judged without a cluster,
//! with the verdict and the words that the cluster would have.
//!
//! Two things are not done: what an object was before does not excuse what is wrong with it now (the API server lets
//! unchanged faults pass on update), and `metadata` is left to others.

mod cel;
mod check;
mod error;
mod lists;
pub mod own;
mod path;
mod pattern;
mod rule;
mod schema;
mod shape;

#[cfg(test)]
mod tests;

use canopus_base::tree::{Node, Pos};

use path::Path;
use rule::Compiler;

pub use cel::check as check_expression;
pub use error::{ErrorKind, FieldError};
pub use schema::Schema;

/// Why a document is not a CRD.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct CrdError {
    /// The field.
    pub path: String,
    /// Where it, or what is around it, stands in the document.
    pub at: Pos,
    /// What is wrong with it.
    pub problem: String,
}

/// A custom resource definition.
#[derive(Clone, Debug)]
pub struct Crd {
    /// The API group: `networking.istio.io`.
    pub group: Box<str>,
    /// The kind: `VirtualService`.
    pub kind: Box<str>,
    /// The versions, in the order of the document.
    pub versions: Vec<CrdVersion>,
}

/// One version of a custom resource definition.
#[derive(Clone, Debug)]
pub struct CrdVersion {
    /// The name: `v1beta1`.
    pub name: Box<str>,
    /// Whether objects can be read and written in this version.
    pub served: bool,
    /// Whether objects are stored in this version.
    pub storage: bool,
    /// What objects look like.
    pub schema: Schema,
}

/// What became of an object on its way into a cluster.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The object as it would be stored: with defaults, without unknown fields.
    pub object: Node,
    /// The paths of the fields that were dropped because the schema does not know them.
    pub unknown: Vec<String>,
    /// Why it is refused; empty if it is not.
    pub errors: Vec<FieldError>,
    /// Whether rules were tried; they are not on an object whose shape is wrong.
    pub rules_tried: bool,
}

impl Crd {
    /// Reads a CRD from its document, of version `apiextensions.k8s.io/v1`.
    pub fn parse(document: &Node) -> Result<Self, CrdError> {
        let at = |pointer: &str| document.pointer(pointer);
        let wrong = |path: &str, problem: &str| CrdError {
            path: path.to_owned(),
            at: document.at,
            problem: problem.to_owned(),
        };
        let text = |pointer: &str, path: &str| {
            at(pointer).and_then(Node::as_str).map(Into::into).ok_or_else(|| wrong(path, "expected a text"))
        };
        if at("/kind").and_then(Node::as_str) != Some("CustomResourceDefinition") {
            return Err(wrong("kind", "not a CustomResourceDefinition"));
        }
        let versions = at("/spec/versions").and_then(Node::as_list).unwrap_or_default();
        let mut compiler = Compiler::default();
        let version = |(index, node)| CrdVersion::parse(node, index, &mut compiler);
        Ok(Self {
            group: text("/spec/group", "spec.group")?,
            kind: text("/spec/names/kind", "spec.names.kind")?,
            versions: versions.iter().enumerate().map(version).collect::<Result<_, _>>()?,
        })
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| *version.name == *name)
    }

    /// The version for objects with this `apiVersion` and `kind`, if they are defined here and served.
    pub fn serving(&self, api_version: &str, kind: &str) -> Option<&CrdVersion> {
        let (group, version) = api_version.split_once('/')?;
        let version = if group == &*self.group && kind == &*self.kind { self.version(version) } else { None };
        version.filter(|version| version.served)
    }
}

impl CrdVersion {
    fn parse(node: &Node, index: usize, compiler: &mut Compiler) -> Result<Self, CrdError> {
        let (spec, versions) = (Path::ROOT.field("spec"), "versions");
        let versions = spec.field(versions);
        let path = versions.index(index);
        let wrong = |field: &str, problem: &str| CrdError {
            path: path.field(field).to_string(),
            at: node.at,
            problem: problem.to_owned(),
        };
        let flag = |key: &str| node.get(key).and_then(Node::as_bool).unwrap_or_default();
        let name = node.get("name").and_then(Node::as_str).ok_or_else(|| wrong("name", "expected a text"))?;
        let document = node.pointer("/schema/openAPIV3Schema");
        let document = document.ok_or_else(|| wrong("schema.openAPIV3Schema", "expected a schema"))?;
        let schema = schema::parse(document, path.field("schema").field("openAPIV3Schema"), compiler)?;
        Ok(Self { name: name.into(), served: flag("served"), storage: flag("storage"), schema })
    }

    /// What the API server does with an object that is created, or changed from `old`.
    pub fn admit(&self, object: &Node, old: Option<&Node>) -> Admission {
        let mut object = object.clone();
        let unknown = shape::prune(&self.schema, &mut object);
        shape::drop_nulls(Some(&self.schema), &mut object);
        shape::fill(&self.schema, &mut object);
        let (errors, rules_tried) = self.judge(&object, old);
        Admission { object, unknown, errors, rules_tried }
    }

    /// As [`CrdVersion::admit`], for an object as its author wrote it: nulls are held against the schema, not dropped.
    pub fn review(&self, object: &Node) -> Admission {
        let mut object = object.clone();
        shape::fill(&self.schema, &mut object);
        let (errors, rules_tried) = self.judge(&object, None);
        let unknown = shape::prune(&self.schema, &mut object);
        Admission { object, unknown, errors, rules_tried }
    }

    fn judge(&self, object: &Node, old: Option<&Node>) -> (Vec<FieldError>, bool) {
        let mut errors = check::check(&self.schema, object);
        errors.extend(lists::check(&self.schema, object));
        let rules_tried = !errors.iter().any(|error| error.kind.hides_rules());
        if rules_tried {
            errors.extend(rule::check(&self.schema, object, old));
        }
        (errors, rules_tried)
    }
}
