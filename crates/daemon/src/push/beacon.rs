//! From results that changed to the sessions that hold them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use canopus_base::FastMap;
use canopus_engine::RootId;
use canopus_xds::types::Types;
use parking_lot::Mutex;

use super::connections::ConnectionId;

/// Changed results that a beacon tells apart; of more it says that anything may have changed.
const TOLD_APART: usize = 256;

/// Lights up when a result it stands for has changed, for the sessions that look at it.
pub(crate) struct Beacon {
    /// The types that its results are of.
    types: Types,
    light: Mutex<Light>,
    watchers: Mutex<BTreeSet<ConnectionId>>,
}

/// What a beacon says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Light {
    /// Nothing has changed.
    #[default]
    Off,
    /// These results have changed.
    Results(Vec<RootId>),
    /// Any result may have changed.
    All,
}

impl Beacon {
    /// A beacon for results that say what there is of these types.
    pub(crate) fn new(types: Types) -> Arc<Self> {
        Arc::new(Self { types, light: Mutex::default(), watchers: Mutex::default() })
    }

    /// What changed since this was last asked.
    pub(crate) fn take(&self) -> Light {
        std::mem::take(&mut *self.light.lock())
    }

    /// Says that anything may have changed.
    pub(crate) fn light(&self) {
        *self.light.lock() = Light::All;
    }

    fn light_for(&self, root: RootId) {
        let mut light = self.light.lock();
        match &mut *light {
            Light::Off => *light = Light::Results(vec![root]),
            Light::Results(roots) if roots.len() < TOLD_APART => roots.push(root),
            Light::Results(_) | Light::All => *light = Light::All,
        }
    }

    /// Has a session woken when it lights up, until the seat is given up.
    pub(crate) fn seat(self: &Arc<Self>, connection: ConnectionId) -> Seat {
        self.watchers.lock().insert(connection);
        Seat { beacon: Arc::clone(self), connection }
    }
}

/// A session's place before a beacon.
pub(crate) struct Seat {
    beacon: Arc<Beacon>,
    connection: ConnectionId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.beacon.watchers.lock().remove(&self.connection);
    }
}

/// The beacons of all watched results.
#[derive(Default)]
pub(super) struct Beacons {
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    by_root: FastMap<RootId, Vec<Weak<Beacon>>>,
    /// Size at which entries nobody needs are dropped next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 1024;

impl Beacons {
    /// From now on `beacon` lights up when one of these results changes.
    pub(super) fn add(&self, roots: impl IntoIterator<Item = RootId>, beacon: &Arc<Beacon>) {
        let mut index = self.index.lock();
        for root in roots {
            index.by_root.entry(root).or_default().push(Arc::downgrade(beacon));
        }
        if index.by_root.len() >= index.sweep_at {
            index.by_root.retain(|_, beacons| {
                beacons.retain(|beacon| beacon.strong_count() > 0);
                !beacons.is_empty()
            });
            index.sweep_at = SMALLEST_SWEEP.max(index.by_root.len() * 2);
        }
    }

    /// The sessions before the beacons of these results.
    pub(super) fn watchers(&self, roots: impl IntoIterator<Item = RootId>) -> BTreeSet<ConnectionId> {
        let index = self.index.lock();
        let beacons = roots.into_iter().filter_map(|root| index.by_root.get(&root)).flatten();
        let mut watchers = BTreeSet::new();
        for beacon in beacons.filter_map(Weak::upgrade) {
            watchers.extend(beacon.watchers.lock().iter().copied());
        }
        watchers
    }

    /// Lights the beacons of results that changed; the sessions before them, each with the types they are of.
    pub(super) fn light(&self, changed: &[RootId]) -> BTreeMap<ConnectionId, Types> {
        let mut index = self.index.lock();
        let mut woken: BTreeMap<ConnectionId, Types> = BTreeMap::new();
        for root in changed {
            let Some(beacons) = index.by_root.get_mut(root) else { continue };
            beacons.retain(|beacon| {
                let Some(beacon) = beacon.upgrade() else { return false };
                beacon.light_for(*root);
                for watcher in beacon.watchers.lock().iter() {
                    let types = woken.entry(*watcher).or_default();
                    *types = types.and(beacon.types);
                }
                true
            });
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use canopus_engine::{Batch, Ctx, Engine, Input, Query};
    use canopus_xds::Peer;
    use canopus_xds::types::ENDPOINT;

    use super::super::connections::Connections;
    use super::*;

    struct Number;

    impl Input for Number {
        const NAME: &'static str = "number";
        type Key = u8;
        type Value = u8;
        type Index = ();
        fn index(_: &u8, _: &u8) -> Vec<()> {
            Vec::new()
        }
    }

    struct Doubled;

    impl Query for Doubled {
        const NAME: &'static str = "doubled";
        type Key = u8;
        type Value = u8;
        fn run(ctx: &Ctx<'_>, key: &u8) -> u8 {
            ctx.read::<Number>(key).map_or(0, |number| *number * 2)
        }
    }

    #[test]
    fn beacon_tells_few_results_apart_and_many_not() {
        let engine = Engine::new();
        let root = engine.watch::<Doubled>(1).id();
        let beacon = Beacon::new(Types::ALL);
        assert_eq!(beacon.take(), Light::Off);
        beacon.light_for(root);
        assert_eq!(beacon.take(), Light::Results(vec![root]));
        (0..=TOLD_APART).for_each(|_| beacon.light_for(root));
        assert_eq!(beacon.take(), Light::All);
        assert_eq!(beacon.take(), Light::Off);
    }

    #[test]
    fn only_sessions_whose_result_changed_are_woken() {
        let engine = Engine::new();
        let (beacons, connections) = (Beacons::default(), Connections::default());
        let watched: Vec<_> = [1, 2].map(|key| engine.watch::<Doubled>(key)).into();
        let sessions: Vec<_> = watched
            .iter()
            .map(|root| {
                let beacon = Beacon::new(Types::of(ENDPOINT));
                beacons.add([root.id()], &beacon);
                let connection = connections.open(crate::test_proxy("a"), &Peer::default(), 0);
                (beacon.seat(connection.id), connection.id)
            })
            .collect();

        let mut batch = Batch::new();
        batch.set::<Number>(2, 21);
        let applied = engine.apply(batch);
        assert_eq!(beacons.light(&applied.changed), BTreeMap::from([(sessions[1].1, Types::of(ENDPOINT))]));

        drop(sessions);
        let mut batch = Batch::new();
        batch.set::<Number>(2, 3);
        assert!(beacons.light(&engine.apply(batch).changed).is_empty(), "nobody is there any more");
    }
}
