//! Namespaces.

use crate::decode::slim;
use crate::macros::object;
use crate::resource::Resource;

/// A namespace. Its labels are what matters.
pub type Namespace = Resource<NamespaceSpec, NamespaceStatus>;

object! {
    /// Empty: no field of a namespace's spec is read.
    NamespaceSpec {}

    /// What became of a namespace.
    NamespaceStatus {
        /// `Active` or `Terminating`.
        phase: Box<str>,
    }
}

slim!(NamespaceSpec, NamespaceStatus);
