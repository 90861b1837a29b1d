//! From resources that are rejected to the objects that may be why: what they rest on, tried out on copies of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::{Kind, Object};
use canopus_base::hash::ContentHash;
use canopus_engine::{Engine, Snapshot};
use canopus_mesh::world::{Objects, Origin};

use super::Quarantine;
use super::history::may_be_held;
use super::nack::Contested;
use crate::provenance;
use crate::push::{Connection, ConnectionId, Dispatcher, overlay_batch};

/// Objects that are tried out for one rejection.
const MOST_TRIED: usize = 64;

/// Objects that are held one after the other for a proxy that has accepted nothing yet.
const MOST_HELD_IN_TURN: usize = 16;

/// The value an object is held at: what was accepted, or nothing.
pub(super) type Served = Option<Arc<Object>>;

/// A rejection to be explained.
pub(super) struct Question<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) quarantine: &'a Quarantine,
    pub(super) client: &'a Connection,
    pub(super) type_url: &'a str,
    pub(super) resources: &'a [Contested],
}

/// What becomes of the contested resources if an object is another.
struct Effect {
    /// One of the resources differs.
    changes: bool,
    /// All of them are what was accepted.
    restores: bool,
    /// All of them exist.
    keeps: bool,
}

impl Question<'_> {
    /// The world that the client is served from.
    fn engine(&self) -> Engine {
        self.dispatcher.engine_of(self.client.id)
    }

    /// Whether the resources are still those that were rejected.
    pub(super) fn is_current(&self) -> bool {
        let versions = self.versions(&self.engine().snapshot());
        self.resources.iter().all(|one| versions.get(&one.name) == Some(&one.rejected))
    }

    /// The resources with the versions they have now, those that still exist.
    pub(super) fn as_they_are(&self) -> Vec<Contested> {
        let versions = self.versions(&self.engine().snapshot());
        let now = |one: &Contested| {
            versions.get(&one.name).map(|version| Contested { rejected: *version, ..one.clone() })
        };
        self.resources.iter().filter_map(now).collect()
    }

    /// The changed objects without whose change the resources would be others, with their earlier values.
    ///
    /// If undoing one change alone brings back what was accepted, it is only that one. If it takes more than those that make a
    /// difference by themselves, as one may hide another, it is all of them.
    pub(super) fn among(&self, mut before: BTreeMap<Origin, Served>) -> BTreeMap<Origin, Served> {
        let read = self.reads();
        before.retain(|origin, _| read.contains(origin));
        let all: BTreeMap<Origin, Served> = before.into_iter().take(MOST_TRIED).collect();
        let mut suspects = BTreeMap::new();
        let mut restoring = Vec::new();
        for (origin, served) in &all {
            let effect = self.effect([(origin, served)]);
            if effect.restores {
                restoring.push(origin);
            }
            if effect.changes {
                suspects.insert(origin.clone(), served.clone());
            }
        }
        if let [one] = restoring[..] {
            suspects.retain(|origin, _| origin == one);
        } else if !self.effect(&suspects).restores && self.effect(&all).restores {
            return all;
        }
        suspects
    }

    /// The objects without which the resources would be others, the likeliest first, less those whose effect somebody else has
    /// accepted. Objects without which a resource would not exist come last.
    pub(super) fn all(&self) -> Vec<Origin> {
        let mut tried: Vec<Origin> = self.reads().into_iter().collect();
        tried.sort_by_key(|origin| rank(origin.key.kind));
        tried.truncate(MOST_TRIED);
        let mut suspects: Vec<(bool, Origin)> = Vec::new();
        for origin in tried {
            let effect = self.effect([(&origin, &None)]);
            if effect.changes && !self.is_proven(&origin) {
                suspects.push((!effect.keeps, origin));
            }
        }
        suspects.sort_by_key(|(removes, _)| *removes);
        suspects.into_iter().map(|(_, origin)| origin).take(MOST_HELD_IN_TURN).collect()
    }

    /// The objects the resources rest on that may be held and are not held for the client already.
    fn reads(&self) -> BTreeSet<Origin> {
        let world = self.engine().snapshot();
        let mut origins = BTreeSet::new();
        for one in self.resources {
            let reads = provenance::quarantined_reads(&world, &self.client.proxy, self.type_url, &one.name);
            for read in reads.unwrap_or_default() {
                if let Some(origin) = read.subject.input::<Objects>()
                    && may_be_held(origin.key.kind)
                    && world.read::<Objects>(origin).is_some()
                {
                    origins.insert(origin.clone());
                }
            }
        }
        origins.retain(|origin| !self.quarantine.is_held_for(origin, self.client.id));
        origins
    }

    /// What becomes of the resources if these objects have these values.
    fn effect<'b>(&self, values: impl IntoIterator<Item = (&'b Origin, &'b Served)>) -> Effect {
        let fork = self.engine().fork_unwatched();
        fork.apply(overlay_batch(values));
        let versions = self.versions(&fork.snapshot());
        let of = |one: &Contested| versions.get(&one.name).copied();
        Effect {
            changes: self.resources.iter().any(|one| of(one) != Some(one.rejected)),
            restores: self.resources.iter().all(|one| of(one) == one.accepted),
            keeps: self.resources.iter().all(|one| of(one).is_some()),
        }
    }

    /// The versions the contested resources have in a world.
    fn versions(&self, world: &Snapshot) -> BTreeMap<Arc<str>, ContentHash> {
        let names: BTreeSet<&str> = self.resources.iter().map(|one| &*one.name).collect();
        let all = provenance::resources(world, self.client, self.type_url).unwrap_or_default();
        let contested = all.into_iter().filter(|resource| names.contains(&*resource.name));
        contested.map(|resource| (resource.name, resource.version)).collect()
    }

    /// Whether another client has accepted everything it was sent, of which some follows from this object.
    fn is_proven(&self, origin: &Origin) -> bool {
        let dependents = self.dispatcher.engine().dependents::<Objects>(origin);
        let watchers = self.dispatcher.subscribers(dependents.iter().filter_map(|dependent| dependent.root));
        let is_served = |id: &ConnectionId| !self.dispatcher.overlays().replaces(*id, origin);
        let others = watchers.into_iter().filter(|id| *id != self.client.id).filter(is_served);
        others.filter_map(|id| self.dispatcher.connections().get(id)).any(|other| {
            let types = other.types();
            let accepted = types.get(self.type_url).is_some_and(|status| status.accepted.is_some());
            accepted && types.values().all(|status| status.rejected.is_none())
        })
    }
}

/// How likely an object of a kind is to be what a proxy rejects, the likeliest first: what says most about the proxy's own
/// configuration and is least checked.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::EnvoyFilter => 0,
        Kind::WasmPlugin | Kind::Telemetry => 1,
        Kind::VirtualService | Kind::DestinationRule => 2,
        Kind::Service => 5,
        Kind::ServiceEntry | Kind::WorkloadEntry => 4,
        _ => 3,
    }
}
