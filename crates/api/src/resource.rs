//! An object of one kind: metadata, spec, status.

use canopus_base::tree::{Map, Node, Value};

use crate::decode::{Decoded, Options, Part, PartPosition, Problem, Unknown};
use crate::meta::Meta;
use crate::registry::Info;

/// An object whose spec is an `S` and whose status is a `T`.
///
/// Kinds that have no `spec` of their own, such as Secret, have their other fields as the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource<S, T = ()> {
    /// What the object says about itself.
    pub meta: Meta,
    /// What is wanted.
    pub spec: S,
    /// What was observed.
    pub status: T,
}

impl<S: Part, T: Part> Resource<S, T> {
    /// An object with this name and spec and an empty status.
    pub fn new(namespace: &str, name: &str, spec: S) -> Self {
        Self { meta: Meta::new(namespace, name), spec, status: T::default() }
    }

    pub(crate) fn read(node: &Node, options: Options) -> Result<Decoded<Self>, Vec<Problem>> {
        let null = Node::default();
        let field = |name| node.get(name).unwrap_or(&null);
        let mut problems = Problems::default();
        let meta = problems.take(Meta::read(field("metadata"), options).map(Decoded::whole), "metadata");
        let spec = match S::POSITION {
            PartPosition::Own => problems.take(S::read(field("spec"), options), "spec"),
            PartPosition::Root => problems.take(S::read(node, options), ""),
        };
        let status = problems.take_status(T::read(field("status"), options), options);
        match (meta, spec) {
            (Some(meta), Some(spec)) if problems.fatal.is_empty() => {
                Ok(Decoded { value: Self { meta, spec, status }, ignored: problems.ignored })
            }
            _ => Err(problems.fatal),
        }
    }

    pub(crate) fn write(&self, info: &Info) -> Node {
        let mut object = Map::new();
        object.insert("apiVersion", Value::from(info.api_version()).into());
        object.insert("kind", Value::from(info.kind).into());
        object.insert("metadata", self.meta.write());
        let spec = self.spec.write();
        match (S::POSITION, spec.value) {
            (PartPosition::Own, Value::Null) => {}
            (PartPosition::Own, spec) => {
                object.insert("spec", spec.into());
            }
            (PartPosition::Root, Value::Map(fields)) => {
                for entry in fields.into_entries() {
                    object.insert(entry.key, entry.node);
                }
            }
            (PartPosition::Root, _) => {}
        }
        let status = self.status.write();
        if !status.is_null() && self.status != T::default() {
            object.insert("status", status);
        }
        Value::Map(object).into()
    }
}

/// What was found wrong in the parts read so far.
#[derive(Default)]
struct Problems {
    fatal: Vec<Problem>,
    ignored: Vec<Problem>,
}

impl Problems {
    fn take<P>(&mut self, part: Result<Decoded<P>, Vec<Problem>>, field: &str) -> Option<P> {
        let under = |problem: Problem| if field.is_empty() { problem } else { problem.under(field) };
        match part {
            Ok(decoded) => {
                self.ignored.extend(decoded.ignored.into_iter().map(under));
                Some(decoded.value)
            }
            Err(problems) => {
                self.fatal.extend(problems.into_iter().map(under));
                None
            }
        }
    }

    /// A stored object is worth reading even if somebody wrote nonsense to its status.
    fn take_status<T: Default>(&mut self, status: Result<Decoded<T>, Vec<Problem>>, options: Options) -> T {
        match status {
            Err(problems) if options.unknown == Unknown::Report => {
                self.ignored.extend(problems.into_iter().map(|problem| problem.under("status")));
                T::default()
            }
            other => self.take(other, "status").unwrap_or_default(),
        }
    }
}
