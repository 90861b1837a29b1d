//! References between objects, and who may follow them.

use crate::decode::complete;
use crate::gateway_api::GROUP;
use crate::macros::object;
use crate::resource::Resource;

/// Says which namespaces may refer to objects of this one.
pub type ReferenceGrant = Resource<ReferenceGrantSpec>;

object! {
    /// Lets objects of one namespace refer to objects of another.
    ReferenceGrantSpec {
        /// Objects that may refer.
        from: Vec<GrantFrom>,
        /// To what.
        to: Vec<GrantTo>,
    }

    /// Objects that may refer.
    GrantFrom {
        /// Group of the objects that may refer.
        group: Box<str>,
        /// Kind of the objects that may refer.
        kind: Box<str>,
        /// Namespace of the objects that may refer.
        namespace: Box<str>,
    }

    /// Objects that may be referred to.
    GrantTo {
        /// Group of the objects that may be referred to.
        group: Box<str>,
        /// Kind of the objects that may be referred to.
        kind: Box<str>,
        /// The name, if only one may.
        name: Option<Box<str>>,
    }

    /// What a route is attached to.
    #[derive(Hash)]
    ParentReference {
        /// Group of the parent; empty for a Service.
        group: Box<str> = GROUP.into(),
        /// Kind of the parent.
        kind: Box<str> = "Gateway".into(),
        /// Namespace of the parent; absent means the route's.
        namespace: Option<Box<str>>,
        /// Name of the parent.
        name: Box<str>,
        /// Section of the parent: a listener of a gateway, a port of a service.
        section_name: Option<Box<str>>,
        /// Port of the parent.
        port: Option<u16>,
    }

    /// Where traffic goes, and how much of it.
    BackendRef {
        /// Group of the backend; empty for a Service.
        group: Box<str>,
        /// Kind of the backend.
        kind: Box<str> = "Service".into(),
        /// Namespace of the backend; absent means the route's.
        namespace: Option<Box<str>>,
        /// Name of the backend.
        name: Box<str>,
        /// The port, which a Service needs.
        port: Option<u16>,
        /// The share of traffic, relative to the other backends of the rule.
        weight: i32 = 1,
    }

    /// Where copies or questions go.
    BackendObjectReference {
        /// Group of the backend; empty for a Service.
        group: Box<str>,
        /// Kind of the backend.
        kind: Box<str> = "Service".into(),
        /// Namespace of the backend; absent means the route's.
        namespace: Option<Box<str>>,
        /// Name of the backend.
        name: Box<str>,
        /// The port, which a Service needs.
        port: Option<u16>,
    }

    /// Where a certificate and its key are.
    SecretReference {
        /// The group; empty for a Secret.
        group: Box<str>,
        /// The kind.
        kind: Box<str> = "Secret".into(),
        /// The namespace; absent means the referring object's.
        namespace: Option<Box<str>>,
        /// The name.
        name: Box<str>,
    }

    /// An object of whatever kind and namespace.
    ObjectReference {
        /// The group; empty for a core kind.
        group: Box<str>,
        /// The kind.
        kind: Box<str>,
        /// The namespace; absent means the referring object's.
        namespace: Option<Box<str>>,
        /// The name.
        name: Box<str>,
    }

    /// An object of the same namespace.
    LocalObjectReference {
        /// The group; empty for a core kind.
        group: Box<str>,
        /// The kind.
        kind: Box<str>,
        /// The name.
        name: Box<str>,
    }

    /// What a policy is attached to.
    PolicyTargetReference {
        /// The group; empty for a core kind.
        group: Box<str>,
        /// The kind.
        kind: Box<str>,
        /// The name.
        name: Box<str>,
        /// Section of the target: a port of a service.
        section_name: Option<Box<str>>,
    }
}

complete!(ReferenceGrantSpec);

/// Where traffic goes, seen alike in all kinds of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<'a> {
    /// The group; empty for a core kind.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The namespace; absent means the route's.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The port.
    pub port: Option<u16>,
    /// The share of traffic; zero sends none.
    pub weight: i32,
}

/// Gives a reference type its view as a [`Backend`].
macro_rules! backend {
    ($($type:ty: $weight:expr),+ $(,)?) => {$(
        impl $type {
            /// Where traffic goes, seen alike in all kinds of routes.
            pub fn backend(&self) -> $crate::gateway_api::Backend<'_> {
                let weight: fn(&Self) -> i32 = $weight;
                $crate::gateway_api::Backend {
                    group: &self.group,
                    kind: &self.kind,
                    namespace: self.namespace.as_deref(),
                    name: &self.name,
                    port: self.port,
                    weight: weight(self),
                }
            }
        }
    )+};
}

pub(super) use backend;

backend!(BackendRef: |backend| backend.weight, BackendObjectReference: |_| 1);
