//! References between objects, and who may follow them.

use crate::decode::complete;
use crate::gateway_api::GROUP;
use crate::macros::object;
use crate::resource::Resource;

/// Says which namespaces may refer to objects of this one.
pub type ReferenceGrant = Resource<ReferenceGrantSpec>;

object! {
    /// Who may refer to what.
    ReferenceGrantSpec {
        /// Who may.
        from: Vec<GrantFrom>,
        /// To what.
        to: Vec<GrantTo>,
    }

    /// Objects that may refer.
    GrantFrom {
        /// Their group.
        group: Box<str>,
        /// Their kind.
        kind: Box<str>,
        /// Their namespace.
        namespace: Box<str>,
    }

    /// Objects that may be referred to.
    GrantTo {
        /// Their group.
        group: Box<str>,
        /// Their kind.
        kind: Box<str>,
        /// The name, if only one may.
        name: Option<Box<str>>,
    }

    /// What a route is attached to.
    #[derive(Hash)]
    ParentReference {
        /// Its group; empty for a Service.
        group: Box<str> = GROUP.into(),
        /// Its kind.
        kind: Box<str> = "Gateway".into(),
        /// Its namespace; absent means the route's.
        namespace: Option<Box<str>>,
        /// Its name.
        name: Box<str>,
        /// One section of it: a listener of a gateway, a port of a service.
        section_name: Option<Box<str>>,
        /// One port of it.
        port: Option<u16>,
    }

    /// Where traffic goes, and how much of it.
    BackendRef {
        /// Its group; empty for a Service.
        group: Box<str>,
        /// Its kind.
        kind: Box<str> = "Service".into(),
        /// Its namespace; absent means the route's.
        namespace: Option<Box<str>>,
        /// Its name.
        name: Box<str>,
        /// The port, which a Service needs.
        port: Option<u16>,
        /// The share of traffic, relative to the other backends of the rule.
        weight: i32 = 1,
    }

    /// Where copies or questions go.
    BackendObjectReference {
        /// Its group; empty for a Service.
        group: Box<str>,
        /// Its kind.
        kind: Box<str> = "Service".into(),
        /// Its namespace; absent means the route's.
        namespace: Option<Box<str>>,
        /// Its name.
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
        /// One section of it: a port of a service.
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
