//! An object of any kind.

use std::fmt;
use std::sync::Arc;

use canopus_base::tree::Node;

use crate::decode::{DecodeError, Decoded, Options, Part, Problem, Reason};
use crate::meta::Meta;
use crate::resource::Resource;

use super::lookup::LookupError;
use super::{Kind, Object};

/// What names one object: no two objects of a cluster have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for objects of the cluster.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// A key.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    /// `VirtualService default/reviews`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.info().kind;
        match (&*self.namespace, &*self.name) {
            ("", name) => write!(f, "{kind} {name}"),
            (namespace, name) => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// A type that holds the objects of exactly one kind.
pub trait Typed: Sized + Clone + PartialEq + Send + Sync + 'static {
    /// The kind.
    const KIND: Kind;

    /// The metadata.
    fn meta(&self) -> &Meta;

    /// The typed object inside `object`, if it is of this kind.
    fn downcast(object: &Object) -> Option<&Arc<Self>>;

    /// The object of any kind that holds this one.
    fn into_object(this: Arc<Self>) -> Object;

    /// Reads an object that is known to be of this kind; `apiVersion` and `kind` are not looked at.
    fn read(node: &Node, options: Options) -> Result<Decoded<Self>, DecodeError>;
}

impl Object {
    /// Reads an object by what its `apiVersion` and `kind` say it is.
    pub fn decode(node: &Node, options: Options) -> Result<Decoded<Self>, DecodeError> {
        let kind = kind_of(node)?;
        Self::decode_as(kind, node, options)
    }

    /// Reads an object that is known to be of this kind, as the items of a typed list are.
    pub fn decode_as(kind: Kind, node: &Node, options: Options) -> Result<Decoded<Self>, DecodeError> {
        Self::read(kind, node, options).map_err(|problems| invalid(kind, node, problems))
    }

    /// What names this object.
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey::new(self.kind(), &meta.namespace, &meta.name)
    }

    /// The object as a type of its own, if it is of that kind: `object.get::<VirtualService>()`.
    pub fn get<T: Typed>(&self) -> Option<&Arc<T>> {
        T::downcast(self)
    }
}

impl<T: Typed> From<T> for Object {
    fn from(typed: T) -> Self {
        T::into_object(Arc::new(typed))
    }
}

/// The kind a document says it is.
fn kind_of(node: &Node) -> Result<Kind, DecodeError> {
    let fail = |reason| Err(DecodeError::new(node, reason));
    if node.as_map().is_none() {
        let message = format!("expected an object with apiVersion and kind, found a {}", node.kind_name());
        return fail(Reason::NotAnObject(Box::new(Problem::new("", node.at, message))));
    }
    let text = |field: &'static str| match node.get(field).map(|value| (value, value.as_str())) {
        Some((_, Some(text))) if !text.is_empty() => Ok(text),
        Some((value, None)) if !value.is_null() => {
            Err(Problem::new(field, value.at, format!("expected a string, found a {}", value.kind_name())))
        }
        _ => Err(Problem::new(field, node.at, "is missing")
            .with_remedy("every object says its apiVersion and kind")),
    };
    let (api_version, kind) = match (text("apiVersion"), text("kind")) {
        (Ok(api_version), Ok(kind)) => (api_version, kind),
        (Err(problem), _) | (_, Err(problem)) => return fail(Reason::NotAnObject(Box::new(problem))),
    };
    match Kind::lookup(api_version, kind) {
        Ok(kind) => Ok(kind),
        Err(LookupError::UnknownKind) => fail(Reason::UnknownKind),
        Err(LookupError::UnknownVersion(kind)) => {
            fail(Reason::UnknownVersion { served: kind.info().versions })
        }
    }
}

/// The error of an object whose fields cannot be read.
fn invalid(kind: Kind, node: &Node, mut problems: Vec<Problem>) -> DecodeError {
    if kind == Kind::Secret {
        // The usual words quote the value, and a value of a Secret may be the secret.
        for problem in &mut problems {
            problem.message = "is not of the type that a Secret has there".to_owned();
        }
    }
    DecodeError::new(node, Reason::Invalid(problems))
}

/// [`Typed::read`] for any resource.
pub(crate) fn read_typed<S: Part, T: Part>(
    kind: Kind,
    node: &Node,
    options: Options,
) -> Result<Decoded<Resource<S, T>>, DecodeError> {
    Resource::read(node, options).map_err(|problems| invalid(kind, node, problems))
}
