//! A batch and what is written down of it.

use std::sync::Arc;

use canopus_api::{Kind, ObjectKey};
use canopus_engine::{Batch, Ctx, Engine, Query, Root};
use canopus_mesh::world::{MeshSettings, Origin, Settings};
use canopus_xds::types::Types;
use canopus_xds::{ResourceSet, SessionEvent};
use parking_lot::Mutex;

use super::*;

/// The trust domain, as a stand-in for a resource.
struct Domain;

impl Query for Domain {
    const NAME: &'static str = "domain";
    type Key = ();
    type Value = String;
    fn run(ctx: &Ctx<'_>, (): &()) -> String {
        ctx.read::<Settings>(&()).map(|settings| settings.trust_domain().to_owned()).unwrap_or_default()
    }
}

#[derive(Default)]
struct Converged(Mutex<Vec<u64>>);

impl Observer for Converged {
    fn converged(&self, push: &Push) {
        self.0.lock().push(push.revision);
    }
}

struct World {
    dispatcher: Arc<Dispatcher>,
    ledger: Arc<Ledger>,
    converged: Arc<Converged>,
    _root: Root<Domain>,
    signal: Arc<ChangeSignal>,
}

impl World {
    fn new() -> Self {
        let converged = Arc::new(Converged::default());
        let ledger = Ledger::new(Observers::new([converged.clone() as Arc<dyn Observer>]));
        let observers = Observers::new([ledger.clone() as Arc<dyn Observer>]);
        let connections = Connections::new(observers.clone());
        let dispatcher = Dispatcher::new(Engine::new(), connections, observers);
        let root = dispatcher.engine().watch::<Domain>(());
        let signal = ChangeSignal::new(Types::ALL);
        dispatcher.signal_changes([root.id()], &signal);
        Self { dispatcher, ledger, converged, _root: root, signal }
    }

    fn connect(&self, name: &str) -> (Arc<Connection>, Subscription) {
        let connection = self.dispatcher.connect(crate::test_proxy(name));
        let subscription = self.signal.subscribe(connection.id);
        (connection, subscription)
    }

    /// A change of the trust domain, said to come from an object.
    fn change(&self, domain: &str) -> u64 {
        let mut settings = MeshSettings::default();
        settings.mesh.trust_domain = domain.into();
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        self.dispatcher.apply(batch, Cause::objects(Stamp::now(), [object()])).revision
    }

    fn settle(&self, connection: &Connection, revision: u64) {
        self.dispatcher.connections().record(connection, &SessionEvent::Settled { revision });
    }
}

fn object() -> Origin {
    Origin::new("local", ObjectKey::new(Kind::ConfigMap, "istio-system", "istio"))
}

fn sent(nonce: &str, revision: u64) -> SessionEvent {
    SessionEvent::Sent {
        type_url: "t".into(),
        nonce: nonce.into(),
        version: Default::default(),
        revision,
        pushed: true,
        resources: 2,
        removed: 1,
        bytes: 10,
    }
}

#[test]
fn change_converges_when_the_last_session_has_settled_it() {
    let world = World::new();
    let ((first, _a), (second, _b)) = (world.connect("a"), world.connect("b"));
    let revision = world.change("shop");
    assert_eq!(first.told(), revision);
    let ledger = &world.ledger;
    assert_eq!(ledger.object(&object()).unwrap().pending, [first.id, second.id]);

    world.dispatcher.connections().record(&first, &sent("1", revision));
    world.settle(&first, revision);
    assert_eq!(ledger.unconverged()[0].pending, [second.id]);
    assert!(world.converged.0.lock().is_empty());

    world.settle(&second, revision);
    assert!(ledger.unconverged().is_empty());
    assert_eq!(*world.converged.0.lock(), [revision]);
    let push = ledger.push(revision).unwrap();
    assert!(push.change_to_ack().is_some());
    assert_eq!(push.total(), TypeTotal { messages: 1, resources: 2, removed: 1, bytes: 10 });
    assert_eq!(push.cause.reasons.keys().copied().collect::<Vec<_>>(), [Reason::Secret]);
}

#[test]
fn session_that_goes_away_is_not_waited_for() {
    let world = World::new();
    let (connection, _subscription) = world.connect("a");
    let revision = world.change("shop");
    world.dispatcher.connections().disconnect(&connection);
    assert_eq!(*world.converged.0.lock(), [revision]);
    assert!(world.dispatcher.connections().is_empty());
}

#[test]
fn batch_that_changes_nothing_is_no_push() {
    let world = World::new();
    let (_connection, _subscription) = world.connect("a");
    let revision = world.change("shop");
    assert_eq!(world.change("shop"), revision);
    assert_eq!(world.ledger.pushes().len(), 1);
}

#[test]
fn sessions_that_hold_nothing_of_it_are_not_woken() {
    let world = World::new();
    let stranger = world.dispatcher.connect(crate::test_proxy("a"));
    let revision = world.change("shop");
    assert!(stranger.outstanding().is_empty());
    assert_eq!(world.ledger.push(revision).unwrap().woken, 0);
    assert_eq!(*world.converged.0.lock(), [revision], "it concerns nobody");
}

#[test]
fn later_settlement_covers_earlier_revisions() {
    let world = World::new();
    let (connection, _subscription) = world.connect("a");
    let revisions = [world.change("a"), world.change("b"), world.change("c")];
    assert_eq!(connection.outstanding(), revisions);
    world.settle(&connection, revisions[2]);
    assert_eq!(*world.converged.0.lock(), revisions);
}

#[test]
fn rejection_stays_visible_until_the_object_changes_again() {
    let world = World::new();
    let (connection, _subscription) = world.connect("a");
    let revision = world.change("shop");
    world.dispatcher.connections().record(&connection, &sent("1", revision));
    let refusal = SessionEvent::Nacked {
        type_url: "t".into(),
        nonce: "1".into(),
        code: 3,
        message: "no".into(),
        accepted: ResourceSet::default(),
        refused: ResourceSet::default(),
    };
    world.dispatcher.connections().record(&connection, &refusal);
    world.settle(&connection, revision);
    let state = &world.ledger.unconverged()[0];
    assert_eq!((&state.rejected[..], state.pending.len()), (&[connection.id][..], 0));
    assert_eq!(&*connection.status("t").unwrap().rejected.unwrap().message, "no");

    let revision = world.change("other");
    world.settle(&connection, revision);
    assert!(world.ledger.unconverged().is_empty());
}

#[test]
fn ledger_forgets_the_oldest() {
    let world = World::new();
    for number in 0..300 {
        world.change(&format!("d{number}"));
    }
    let pushes = world.ledger.pushes();
    assert_eq!(pushes.len(), 256);
    assert!(pushes[0].revision > pushes[255].revision);
}
