//! Why an object could not be read.

use std::fmt;

use canopus_base::tree::{Node, Pos};

use super::Problem;

/// Who an object says it is, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `networking.istio.io/v1`; empty if not given.
    pub api_version: Box<str>,
    /// `VirtualService`; empty if not given.
    pub kind: Box<str>,
    /// The namespace; empty if not given.
    pub namespace: Box<str>,
    /// The name; empty if not given.
    pub name: Box<str>,
}

impl Identity {
    /// What `node` says of itself; anything that is not a string counts as not given.
    pub fn read(node: &Node) -> Self {
        let text = |pointer| node.pointer(pointer).and_then(Node::as_str).unwrap_or_default().into();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }
}

impl fmt::Display for Identity {
    /// `networking.istio.io/v1 VirtualService default/reviews`, without the parts that are not given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &self.kind };
        if !self.api_version.is_empty() {
            write!(f, "{} ", self.api_version)?;
        }
        f.write_str(kind)?;
        match (&*self.namespace, &*self.name) {
            (_, "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

/// An object that could not be read, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Which document of a stream it was, from zero; `None` if it did not come from one.
    pub document: Option<usize>,
    /// Where the object starts.
    pub at: Pos,
    /// Who it says it is.
    pub object: Box<Identity>,
    /// What is wrong.
    pub reason: Reason,
}

/// The ways in which a document is not an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The text is not YAML or JSON, or is larger or deeper than is read.
    Syntax(String),
    /// The document is something else than an object with `apiVersion` and `kind`.
    NotAnObject(Box<Problem>),
    /// A kind the mesh does not read. It is no mistake of the user: other programs have objects too.
    UnknownKind,
    /// A known kind in a version that nobody serves.
    UnknownVersion {
        /// The versions that are served, the preferred one first.
        served: &'static [&'static str],
    },
    /// Fields that cannot be read; never empty.
    Invalid(Vec<Problem>),
}

impl DecodeError {
    pub(crate) fn new(node: &Node, reason: Reason) -> Self {
        Self { document: None, at: node.at, object: Box::new(Identity::read(node)), reason }
    }

    /// Whether the document is simply of a kind that the mesh does not read.
    pub const fn is_unknown_kind(&self) -> bool {
        matches!(self.reason, Reason::UnknownKind)
    }

    /// The single problems; empty unless there are fields that cannot be read.
    pub fn problems(&self) -> &[Problem] {
        match &self.reason {
            Reason::Invalid(problems) => problems,
            Reason::NotAnObject(problem) => std::slice::from_ref(problem),
            Reason::Syntax(_) | Reason::UnknownKind | Reason::UnknownVersion { .. } => &[],
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.document {
            write!(f, "document {}, ", index + 1)?;
        }
        match &self.reason {
            Reason::Syntax(message) => write!(f, "{}: {message}", self.at),
            Reason::NotAnObject(problem) => problem.fmt(f),
            Reason::UnknownKind => {
                write!(f, "{}{}: the mesh does not read this kind", self.object, AtPosition(self.at))
            }
            Reason::UnknownVersion { served } => write!(
                f,
                "{}{}: this version is not served; use {}",
                self.object,
                AtPosition(self.at),
                served.join(" or ")
            ),
            Reason::Invalid(problems) => {
                write!(f, "{}: ", self.object)?;
                for (index, problem) in problems.iter().enumerate() {
                    let separator = if index > 0 { "; " } else { "" };
                    write!(f, "{separator}{problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// ` at line 3, column 1`, or nothing for a tree built in memory.
struct AtPosition(Pos);

impl fmt::Display for AtPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_known() {
            write!(f, " at {}", self.0)?;
        }
        Ok(())
    }
}
