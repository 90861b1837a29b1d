//! Changes of a world, and the world they make.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use canopus_api::mesh_config;
use canopus_engine::Batch;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use proptest::prelude::*;

use crate::objects::{KINDS, Slot};

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An object is there from now on, in one of its forms.
    Set(Slot, u8),
    /// An object is gone.
    Remove(Slot),
    /// The mesh has another configuration.
    Mesh(usize),
}

/// What the mesh as a whole may be told.
const MESHES: [&str; 11] = [
    "{}",
    "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
    "{accessLogFile: /dev/stdout}",
    "{enableAutoMtls: false}",
    "{defaultServiceExportTo: [.], defaultVirtualServiceExportTo: [.]}",
    "{discoverySelectors: [{matchLabels: {mesh: 'on'}}]}",
    "{trustDomain: other, trustDomainAliases: [cluster.local]}",
    "{enableTracing: true}",
    "{localityLbSetting: {enabled: true, failover: [{from: r, to: s}]}}",
    "{extensionProviders: [{name: z, zipkin: {service: x.a.svc.cluster.local, port: 80}}], defaultProviders: {tracing: [z]}}",
    "{inboundClusterStatName: '%SERVICE%', defaultConfig: {holdApplicationUntilProxyStarts: true}}",
];

/// A batch of changes.
pub(crate) fn changes(count: RangeInclusive<usize>) -> impl Strategy<Value = Vec<Change>> {
    let slot =
        || (0..KINDS.len(), 0..3usize, 0..3usize).prop_map(|(kind, space, name)| Slot { kind, space, name });
    let change = prop_oneof![
        14 => (slot(), 0..32u8).prop_map(|(slot, form)| Change::Set(slot, form)),
        5 => slot().prop_map(Change::Remove),
        1 => (0..MESHES.len()).prop_map(Change::Mesh),
    ];
    proptest::collection::vec(change, count)
}

/// What was set and is still there.
#[derive(Default)]
pub(crate) struct World {
    objects: BTreeMap<Origin, (Slot, u8)>,
    mesh: Option<usize>,
}

impl World {
    /// Makes changes, and the batch that makes an engine follow.
    pub(crate) fn change(&mut self, changes: &[Change]) -> Batch {
        let mut batch = Batch::new();
        for change in changes {
            match change {
                Change::Set(slot, form) => {
                    self.objects.insert(slot.origin(), (*slot, *form));
                    batch.set::<Objects>(slot.origin(), slot.object(*form));
                }
                Change::Remove(slot) => {
                    self.objects.remove(&slot.origin());
                    batch.remove::<Objects>(&slot.origin());
                }
                Change::Mesh(which) => {
                    self.mesh = Some(*which);
                    batch.set::<Settings>((), settings(*which));
                }
            }
        }
        batch
    }

    /// The whole world in one batch.
    pub(crate) fn all(&self) -> Batch {
        let mut batch = Batch::new();
        for (origin, (slot, form)) in &self.objects {
            batch.set::<Objects>(origin.clone(), slot.object(*form));
        }
        if let Some(which) = self.mesh {
            batch.set::<Settings>((), settings(which));
        }
        batch
    }

    /// Takes everything away.
    pub(crate) fn clear(&mut self) -> Batch {
        let mut batch = Batch::new();
        for origin in std::mem::take(&mut self.objects).keys() {
            batch.remove::<Objects>(origin);
        }
        if self.mesh.take().is_some() {
            batch.remove::<Settings>(&());
        }
        batch
    }
}

fn settings(which: usize) -> MeshSettings {
    let defaults = MeshSettings::default();
    let mesh = mesh_config::apply(MESHES[which], &defaults.mesh).unwrap().value;
    MeshSettings { mesh, ..defaults }
}
