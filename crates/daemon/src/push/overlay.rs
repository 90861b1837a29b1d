//! What single clients are served in place of the present world, while they cannot take it.
//!
//! The engine always has what owners want. A client with an [`Overlay`] is served from a fork of the present world in which a
//! few objects have other values; clients with the same values share the fork, and with it all that is generated for them.
//!
//! Invariant: nobody without an overlay reads from a fork, so an overlay changes no byte for anybody but its own clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use canopus_api::Object;
use canopus_engine::{Batch, Engine, Input, Revision};
use canopus_mesh::world::{Objects, Origin};
use parking_lot::Mutex;

use super::connections::ConnectionId;

/// The objects that are served at another value than their owners gave them; `None` means absent.
pub(crate) type Replaced = BTreeMap<Origin, Option<Arc<Object>>>;

/// Objects of which is remembered when a client was served another value.
const MAX_SPELLS: usize = 64;

/// The world as it is but for a few objects.
pub(crate) struct Overlay {
    id: u64,
    replaced: Replaced,
    /// The fork, and the revision of the world that it is one of.
    fork: Mutex<Option<(Revision, Engine)>>,
}

impl Overlay {
    /// Names the overlay; never used twice.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The present world with other values, and the revision of the world that it was made from.
    pub(crate) fn engine(&self, present: &Engine) -> (Revision, Engine) {
        let mut fork = self.fork.lock();
        // Read before forking: what is applied between the two makes another fork the next time.
        let revision = present.revision();
        if let Some((made_from, engine)) = &*fork
            && *made_from == revision
        {
            return (revision, engine.clone());
        }
        let engine = present.fork_unwatched();
        engine.apply(batch(&self.replaced));
        *fork = Some((revision, engine.clone()));
        (revision, engine)
    }
}

/// The batch that gives objects these values.
pub(crate) fn batch<'a>(values: impl IntoIterator<Item = (&'a Origin, &'a Option<Arc<Object>>)>) -> Batch {
    let mut batch = Batch::new();
    for (origin, value) in values {
        match value {
            Some(object) => batch.set_shared::<Objects>(origin.clone(), Arc::clone(object)),
            None => batch.remove::<Objects>(origin),
        };
    }
    batch
}

/// The overlays of all clients that have one.
#[derive(Default)]
pub(crate) struct Overlays {
    /// Whether any client has one. Mostly none has, and every session asks whenever it looks at anything.
    are_in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_client: BTreeMap<ConnectionId, Arc<Overlay>>,
    /// Clients that have got another overlay, or none any more, and have not been woken since.
    changed: BTreeSet<ConnectionId>,
    spells: BTreeMap<ConnectionId, VecDeque<Spell>>,
    last: u64,
}

/// A time in which a client was served another value of an object, by revisions of the world.
struct Spell {
    origin: Origin,
    served: Option<Arc<Object>>,
    from: u64,
    until: Option<u64>,
}

impl Overlays {
    /// What a client is served in place of the present world, if it is.
    pub(crate) fn get(&self, client: ConnectionId) -> Option<Arc<Overlay>> {
        // A client that gets one is woken after this is set.
        let are_in_use = self.are_in_use.load(Ordering::Acquire);
        are_in_use.then(|| self.state.lock().by_client.get(&client).cloned()).flatten()
    }

    /// Whether a client is served another value of an object.
    pub(crate) fn replaces(&self, client: ConnectionId, origin: &Origin) -> bool {
        self.get(client).is_some_and(|overlay| overlay.replaced.contains_key(origin))
    }

    /// The values that a client was served at a revision, of objects that it is served as they are again.
    pub(crate) fn past(&self, client: ConnectionId, revision: u64) -> Replaced {
        let state = self.state.lock();
        let spells = state.spells.get(&client).into_iter().flatten();
        let then = spells
            .filter(|spell| spell.from <= revision && spell.until.is_some_and(|until| revision < until));
        let mut past: Replaced = then.map(|spell| (spell.origin.clone(), spell.served.clone())).collect();
        if let Some(overlay) = state.by_client.get(&client) {
            past.retain(|origin, _| !overlay.replaced.contains_key(origin));
        }
        past
    }

    /// Serves exactly these clients other values, from the next revision on; whether that changes anything for anybody.
    pub(super) fn replace(&self, wanted: BTreeMap<ConnectionId, Replaced>, next: u64) -> bool {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.by_client);
        for (client, overlay) in &before {
            if wanted.get(client).is_none_or(|wanted| *wanted != overlay.replaced) {
                state.changed.insert(*client);
                let spells = state.spells.entry(*client).or_default();
                spells.iter_mut().for_each(|spell| _ = spell.until.get_or_insert(next));
            }
        }
        let mut known: Vec<Arc<Overlay>> = before.values().cloned().collect();
        for (client, replaced) in wanted {
            let same = known.iter().find(|overlay| overlay.replaced == replaced);
            let overlay = same.cloned().unwrap_or_else(|| {
                state.last += 1;
                let made = Arc::new(Overlay { id: state.last, replaced, fork: Mutex::default() });
                known.push(Arc::clone(&made));
                made
            });
            if before.get(&client).is_none_or(|before| before.replaced != overlay.replaced) {
                state.changed.insert(client);
                let begun = overlay.replaced.iter().map(|(origin, served)| Spell {
                    origin: origin.clone(),
                    served: served.clone(),
                    from: next,
                    until: None,
                });
                let spells = state.spells.entry(client).or_default();
                spells.extend(begun);
                let excess = spells.len().saturating_sub(MAX_SPELLS);
                spells.drain(..excess);
            }
            state.by_client.insert(client, overlay);
        }
        self.are_in_use.store(!state.by_client.is_empty(), Ordering::Release);
        !state.changed.is_empty()
    }

    /// Forgets what clients were served that are gone.
    pub(super) fn forget_all_but(&self, is_connected: impl Fn(ConnectionId) -> bool) {
        self.state.lock().spells.retain(|client, _| is_connected(*client));
    }

    /// Takes the connections that have to compare everything after a batch: a fork does not report which results changed.
    pub(super) fn take_woken(&self) -> BTreeSet<ConnectionId> {
        let mut state = self.state.lock();
        let changed = std::mem::take(&mut state.changed);
        state.by_client.keys().copied().chain(changed).collect()
    }
}

/// How often overlays have changed: an input that no query reads, so that such a change is a revision of its own.
pub(super) struct OverlayChanges;

impl Input for OverlayChanges {
    const NAME: &'static str = "overlay_changes";
    type Key = ();
    type Value = u64;
    type Index = ();
}

#[cfg(test)]
mod tests {
    use canopus_api::{Kind, ObjectKey};
    use canopus_xds::Peer;

    use super::super::connections::Connections;
    use super::*;

    fn origin(name: &str) -> Origin {
        Origin::new("c", ObjectKey::new(Kind::EnvoyFilter, "n", name))
    }

    fn absent(names: &[&str]) -> Replaced {
        names.iter().map(|name| (origin(name), None)).collect()
    }

    #[test]
    fn clients_with_the_same_values_share_a_fork() {
        let (overlays, connections) = (Overlays::default(), Connections::default());
        let [a, b, c] =
            ["a", "b", "c"].map(|name| connections.connect(crate::test_proxy(name), &Peer::default(), 0).id);
        assert!(overlays.get(a).is_none());
        let wanted = BTreeMap::from([(a, absent(&["x"])), (b, absent(&["x"])), (c, absent(&["y"]))]);
        assert!(overlays.replace(wanted, 5));
        assert_eq!(overlays.get(a).unwrap().id(), overlays.get(b).unwrap().id());
        assert_ne!(overlays.get(a).unwrap().id(), overlays.get(c).unwrap().id());
        assert_eq!(overlays.take_woken(), BTreeSet::from([a, b, c]));
        let wanted = BTreeMap::from([(a, absent(&["x"])), (c, absent(&["y"]))]);
        assert!(overlays.replace(wanted, 6), "b has none any more");
        assert_eq!(overlays.take_woken(), BTreeSet::from([a, b, c]), "and has to be told");
        assert_eq!(overlays.take_woken(), BTreeSet::from([a, c]));
    }

    #[test]
    fn value_at_a_revision_is_what_was_served_then() {
        let (overlays, connections) = (Overlays::default(), Connections::default());
        let a = connections.connect(crate::test_proxy("a"), &Peer::default(), 0).id;
        overlays.replace(BTreeMap::from([(a, absent(&["x"]))]), 5);
        assert!(overlays.past(a, 5).is_empty(), "it is still served that");
        overlays.replace(BTreeMap::new(), 8);
        for (revision, served) in [(4, false), (5, true), (7, true), (8, false)] {
            assert_eq!(overlays.past(a, revision).contains_key(&origin("x")), served, "{revision}");
        }
    }

    #[test]
    fn overlay_follows_the_world() {
        let engine = Engine::new();
        let present = |engine: &Engine, name| engine.read::<Objects>(&origin(name)).is_some();
        let document = |name: &str| {
            let text = format!(
                "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: {name}, namespace: demo}}"
            );
            let mut all =
                canopus_api::decode_documents(&text, &Default::default(), canopus_api::Options::watch());
            Arc::new(all.pop().unwrap().unwrap().value)
        };
        engine.apply(batch([(&origin("held"), &Some(document("held")))]));
        let overlay = Overlay { id: 1, replaced: absent(&["held"]), fork: Mutex::default() };
        let fork = overlay.engine(&engine).1;
        assert!(present(&engine, "held") && !present(&fork, "held"));
        engine.apply(batch([(&origin("free"), &Some(document("free")))]));
        let fork = overlay.engine(&engine).1;
        assert!(present(&fork, "free") && !present(&fork, "held"));
    }
}
