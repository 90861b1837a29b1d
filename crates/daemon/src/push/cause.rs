//! Why there is a push.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_mesh::world::Origin;

use super::stamp::Stamp;

/// What a batch changed, and since when that is known.
#[derive(Clone, Debug)]
pub struct Cause {
    /// When the first of the changes was seen.
    pub seen: Stamp,
    /// The objects that were created, changed or deleted, in order.
    pub objects: Arc<[Origin]>,
    /// How often each reason applies.
    pub reasons: BTreeMap<Reason, usize>,
}

impl Cause {
    /// Changes of these objects.
    pub fn objects(seen: Stamp, objects: impl IntoIterator<Item = Origin>) -> Self {
        let objects: Arc<[Origin]> = objects.into_iter().collect();
        let mut reasons = BTreeMap::new();
        for origin in objects.iter() {
            *reasons.entry(Reason::for_kind(origin.key.kind)).or_default() += 1;
        }
        Self { seen, objects, reasons }
    }

    /// These objects are served at another value than their owners wrote, or no longer so.
    pub fn quarantine(objects: impl IntoIterator<Item = Origin>) -> Self {
        let objects: Arc<[Origin]> = objects.into_iter().collect();
        let reasons = BTreeMap::from([(Reason::Quarantine, objects.len())]);
        Self { seen: Stamp::now(), objects, reasons }
    }

    /// A cause that is not an object, such as a key set that was fetched.
    pub fn reason(reason: Reason) -> Self {
        Self { seen: Stamp::now(), objects: Arc::default(), reasons: BTreeMap::from([(reason, 1)]) }
    }

    /// The same cause, and this reason too.
    #[must_use]
    pub fn and(mut self, reason: Reason) -> Self {
        *self.reasons.entry(reason).or_default() += 1;
        self
    }
}

/// The kinds of change Istio tells apart, in the words of its metric `pilot_push_triggers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Where a service is to be found.
    Endpoint,
    /// What the user configured.
    Config,
    /// A service.
    Service,
    /// A workload.
    Proxy,
    /// The mesh configuration.
    Global,
    /// A secret or what stands for one.
    Secret,
    /// The networks of the mesh.
    Networks,
    /// A namespace.
    Namespace,
    /// Data from outside that the mesh depends on, such as fetched keys.
    DependentResource,
    /// A push that was requested over a debug endpoint.
    Debug,
    /// An object is held at an earlier value, or no longer; Istio has no such reason.
    Quarantine,
}

impl Reason {
    /// The reason an object of this kind is.
    pub fn for_kind(kind: Kind) -> Self {
        match kind {
            Kind::EndpointSlice | Kind::WorkloadEntry => Self::Endpoint,
            Kind::Service | Kind::ServiceEntry | Kind::Node => Self::Service,
            Kind::Pod => Self::Proxy,
            Kind::Secret | Kind::ConfigMap => Self::Secret,
            Kind::Namespace => Self::Namespace,
            _ => Self::Config,
        }
    }

    /// The label of the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Config => "config",
            Self::Service => "service",
            Self::Proxy => "proxy",
            Self::Global => "global",
            Self::Secret => "secret",
            Self::Networks => "networks",
            Self::Namespace => "namespace",
            // Parity: dashboards know the label as Istio spells it.
            Self::DependentResource => "depdendentresource",
            Self::Debug => "debug",
            Self::Quarantine => "quarantine",
        }
    }
}
