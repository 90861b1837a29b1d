//! From query results that changed to the sessions that are served from them.
//!
//! Sessions do not watch the engine. What serves them (a shared subscription, the keys of a proxy) has a [`ChangeSignal`],
//! which is registered for the results it is made of. After a batch, [`ChangeSignals::raise`] marks the signals of all results
//! that changed and returns the sessions that subscribed to one of them. These are woken, and nobody else.
//!
//! Invariant: a signal is marked before its sessions are woken, so that a session that looks finds what changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use canopus_base::FastMap;
use canopus_engine::RootId;
use canopus_xds::types::Types;
use parking_lot::Mutex;

use super::connections::ConnectionId;

/// The most changed results that a signal lists; if there are more, any result may have changed.
const MAX_LISTED: usize = 256;

/// Collects which results have changed, and knows the sessions that have to look at them.
pub(crate) struct ChangeSignal {
    /// The types of resources that the results are about.
    types: Types,
    pending: Mutex<Pending>,
    /// How many subscriptions each session has. A session that moves to another subscription may have two for a moment.
    subscribers: Mutex<BTreeMap<ConnectionId, u32>>,
}

/// The changes that nobody has looked at yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Pending {
    #[default]
    Nothing,
    /// These results have changed.
    Results(Vec<RootId>),
    /// Any result may have changed.
    All,
}

impl ChangeSignal {
    /// A signal for results that are about resources of these types.
    pub(crate) fn new(types: Types) -> Arc<Self> {
        Arc::new(Self { types, pending: Mutex::default(), subscribers: Mutex::default() })
    }

    /// Takes the changes since this was last called.
    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut *self.pending.lock())
    }

    /// Marks every result as changed.
    pub(crate) fn raise_all(&self) {
        *self.pending.lock() = Pending::All;
    }

    fn raise(&self, root: RootId) {
        let mut pending = self.pending.lock();
        match &mut *pending {
            Pending::Nothing => *pending = Pending::Results(vec![root]),
            Pending::Results(roots) if roots.len() < MAX_LISTED => roots.push(root),
            Pending::Results(_) | Pending::All => *pending = Pending::All,
        }
    }

    /// Has a session woken by changes until the subscription is dropped, and every other that it has.
    pub(crate) fn subscribe(self: &Arc<Self>, connection: ConnectionId) -> Subscription {
        *self.subscribers.lock().entry(connection).or_default() += 1;
        Subscription { signal: Arc::clone(self), connection }
    }
}

/// Keeps a session subscribed to a signal until dropped.
pub(crate) struct Subscription {
    signal: Arc<ChangeSignal>,
    connection: ConnectionId,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.signal.subscribers.lock().entry(self.connection) {
            match count.get() {
                2.. => *count.get_mut() -= 1,
                _ => drop(count.remove()),
            }
        }
    }
}

/// The signals of all watched results.
#[derive(Default)]
pub(super) struct ChangeSignals {
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    by_root: FastMap<RootId, Vec<Weak<ChangeSignal>>>,
    /// The size at which entries of dropped signals are removed next.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 1024;

impl ChangeSignals {
    /// Registers a signal for these results.
    pub(super) fn add(&self, roots: impl IntoIterator<Item = RootId>, signal: &Arc<ChangeSignal>) {
        let mut index = self.index.lock();
        for root in roots {
            let signals = index.by_root.entry(root).or_default();
            // Most results have one signal, and there are a hundred thousand of them.
            signals.reserve_exact(1);
            signals.push(Arc::downgrade(signal));
        }
        if index.by_root.len() >= index.sweep_at {
            index.by_root.retain(|_, signals| {
                signals.retain(|signal| signal.strong_count() > 0);
                !signals.is_empty()
            });
            index.sweep_at = SMALLEST_SWEEP.max(index.by_root.len() * 2);
        }
    }

    /// The sessions that are served from one of these results.
    pub(super) fn subscribers(&self, roots: impl IntoIterator<Item = RootId>) -> BTreeSet<ConnectionId> {
        let index = self.index.lock();
        let signals = roots.into_iter().filter_map(|root| index.by_root.get(&root)).flatten();
        let mut subscribers = BTreeSet::new();
        for signal in signals.filter_map(Weak::upgrade) {
            subscribers.extend(signal.subscribers.lock().keys().copied());
        }
        subscribers
    }

    /// The sessions that a change of these results would concern, ascending, each with the types it would look at.
    pub(super) fn concerned(&self, results: &[RootId]) -> Vec<(ConnectionId, Types)> {
        let index = self.index.lock();
        let signals = results.iter().filter_map(|root| index.by_root.get(root)).flatten();
        let mut signals: Vec<Arc<ChangeSignal>> = signals.filter_map(Weak::upgrade).collect();
        drop(index);
        signals.sort_unstable_by_key(Arc::as_ptr);
        signals.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut concerned = Vec::new();
        for signal in signals {
            concerned.extend(signal.subscribers.lock().keys().map(|subscriber| (*subscriber, signal.types)));
        }
        merged(concerned)
    }

    /// Marks the signals of results that changed; the sessions to wake, ascending, each with the types it has to look at.
    pub(super) fn raise(&self, changed: &[RootId]) -> Vec<(ConnectionId, Types)> {
        let mut raised: Vec<Arc<ChangeSignal>> = Vec::new();
        let mut index = self.index.lock();
        for root in changed {
            let Some(signals) = index.by_root.get_mut(root) else { continue };
            signals.retain(|signal| {
                let Some(signal) = signal.upgrade() else { return false };
                signal.raise(*root);
                raised.push(signal);
                true
            });
        }
        drop(index);
        // A signal of many results is raised by each that changed, and tells its sessions once.
        raised.sort_unstable_by_key(Arc::as_ptr);
        raised.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut woken = Vec::new();
        for signal in raised {
            woken.extend(signal.subscribers.lock().keys().map(|subscriber| (*subscriber, signal.types)));
        }
        merged(woken)
    }
}

/// The sessions in order, each once, with all types it has to look at.
pub(super) fn merged(mut woken: Vec<(ConnectionId, Types)>) -> Vec<(ConnectionId, Types)> {
    // What one signal contributed is in order, and a stable sort merges such runs.
    woken.sort_by_key(|(id, _)| *id);
    woken.dedup_by(|(id, types), (kept, all)| {
        let is_same = id == kept;
        if is_same {
            *all = all.union(*types);
        }
        is_same
    });
    woken
}

#[cfg(test)]
mod tests {
    use canopus_engine::{Batch, Ctx, Engine, Input, Query};
    use canopus_xds::Peer;
    use canopus_xds::types::{CLUSTER, ENDPOINT};

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
    fn signal_lists_few_results_and_not_many() {
        let engine = Engine::new();
        let root = engine.watch::<Doubled>(1).id();
        let signal = ChangeSignal::new(Types::ALL);
        assert_eq!(signal.take(), Pending::Nothing);
        signal.raise(root);
        assert_eq!(signal.take(), Pending::Results(vec![root]));
        (0..=MAX_LISTED).for_each(|_| signal.raise(root));
        assert_eq!(signal.take(), Pending::All);
        assert_eq!(signal.take(), Pending::Nothing);
    }

    #[test]
    fn session_is_woken_for_as_long_as_it_has_a_subscription() {
        let engine = Engine::new();
        let (signals, connections) = (ChangeSignals::default(), Connections::default());
        let root = engine.watch::<Doubled>(1).id();
        let signal = ChangeSignal::new(Types::ALL);
        signals.add([root], &signal);
        let session = connections.connect(crate::test_proxy("a"), &Peer::default(), 0).id;
        let old = signal.subscribe(session);
        let new = signal.subscribe(session);
        drop(old);
        assert_eq!(signals.subscribers([root]), BTreeSet::from([session]));
        drop(new);
        assert!(signals.subscribers([root]).is_empty());
    }

    #[test]
    fn session_is_woken_once_for_all_types_it_has_to_look_at() {
        let connections = Connections::default();
        let [first, second] =
            ["a", "b"].map(|name| connections.connect(crate::test_proxy(name), &Peer::default(), 0).id);
        let (endpoints, clusters) = (Types::only(ENDPOINT), Types::only(CLUSTER));
        let woken = merged(vec![(first, endpoints), (second, endpoints), (first, clusters)]);
        assert_eq!(woken, [(first, endpoints.union(clusters)), (second, endpoints)]);
    }

    #[test]
    fn only_sessions_whose_result_changed_are_woken() {
        let engine = Engine::new();
        let (signals, connections) = (ChangeSignals::default(), Connections::default());
        let watched: Vec<_> = [1, 2].map(|key| engine.watch::<Doubled>(key)).into();
        let sessions: Vec<_> = watched
            .iter()
            .map(|root| {
                let signal = ChangeSignal::new(Types::only(ENDPOINT));
                signals.add([root.id()], &signal);
                let connection = connections.connect(crate::test_proxy("a"), &Peer::default(), 0);
                (signal.subscribe(connection.id), connection.id)
            })
            .collect();

        let mut batch = Batch::new();
        batch.set::<Number>(2, 21);
        let applied = engine.apply(batch);
        assert_eq!(signals.raise(&applied.changed), [(sessions[1].1, Types::only(ENDPOINT))]);

        drop(sessions);
        let mut batch = Batch::new();
        batch.set::<Number>(2, 3);
        assert!(signals.raise(&engine.apply(batch).changed).is_empty(), "nobody is there any more");
    }
}
