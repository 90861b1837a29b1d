//! A small mesh and proxies that reject every cluster with poison in it.

mod flood;
mod hostile;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine, Root};
use canopus_envoy::cluster::Clusters;
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_xds::types::{self, Types};
use canopus_xds::{Code, Interest, ResourceSet, SessionEvent};

use super::*;
use crate::provenance;
use crate::push::{ChangeSignal, Connection, Connections, Observer, Observers, Subscription};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: default}
spec: {clusterIP: 10.1.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}
";

const FILTER: &str = "EnvoyFilter default/stats";
const RULE: &str = "DestinationRule default/cart";

fn filter(text: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: stats, namespace: default}}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {{cluster: {{service: cart.default.svc.cluster.local}}}}
    patch: {{operation: MERGE, value: {{alt_stat_name: {text}}}}}
"
    )
}

fn rule(connections: u32) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: cart, namespace: default}}
spec: {{host: cart, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {connections}}}}}}}}}
"
    )
}

struct Mesh {
    dispatcher: Arc<Dispatcher>,
    controller: QuarantineController,
    clock: Instant,
    proxies: Vec<Proxy>,
}

/// A client that is sent clusters and answers.
struct Proxy {
    connection: Arc<Connection>,
    root: Root<Clusters>,
    _subscription: Subscription,
    rejects_poison: bool,
    words: String,
    last: ResourceSet,
    messages: u32,
}

impl Mesh {
    fn new(enabled: bool) -> Self {
        let quarantine = Quarantine::new(enabled);
        let observers = Observers::new([quarantine.clone() as Arc<dyn Observer>]);
        let dispatcher = Dispatcher::new(Engine::new(), Connections::new(observers.clone()), observers);
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        dispatcher.apply(batch, Cause::quarantine([]));
        // Deciding takes no time, however busy the machine is.
        let clock = Instant::now();
        let controller = QuarantineController::new(Arc::clone(&dispatcher), quarantine)
            .with_clock(Arc::new(move || clock));
        Self { dispatcher, controller, clock, proxies: Vec::new() }
    }

    /// Connects a proxy that has proved who it is.
    fn connect(&mut self, name: &str, rejects_poison: bool) {
        self.connect_as(crate::test_proxy_in(name, "default.svc.cluster.local", true), rejects_poison);
    }

    fn connect_as(&mut self, proxy: canopus_mesh::proxy::Proxy, rejects_poison: bool) {
        let connection = self.dispatcher.connect(proxy);
        let subscribed =
            SessionEvent::Subscribed { type_url: types::CLUSTER.into(), interest: Interest::Wildcard };
        self.dispatcher.connections().record(&connection, &subscribed);
        let root = self.dispatcher.engine().watch::<Clusters>(connection.proxy.clone());
        let signal = ChangeSignal::new(Types::ALL);
        self.dispatcher.signal_changes([root.id()], &signal);
        let subscription = signal.subscribe(connection.id);
        let last = ResourceSet::default();
        let words = "poison".to_owned();
        self.proxies.push(Proxy {
            connection,
            root,
            _subscription: subscription,
            rejects_poison,
            words,
            last,
            messages: 0,
        });
    }

    /// Applies documents as the apply loop does.
    fn write(&mut self, documents: &str) {
        let mut batch = Batch::new();
        let mut origins = Vec::new();
        for outcome in decode_documents(documents, &Limits::default(), Options::watch()) {
            let object = outcome.unwrap().value;
            let origin = Origin::new("Kubernetes", object.key());
            self.controller.admit(&origin, Some(&object));
            origins.push(origin.clone());
            batch.set::<Objects>(origin, object);
        }
        let revision = self.dispatcher.apply(batch, Cause::objects(Stamp::now(), origins)).revision;
        self.controller.applied(revision);
    }

    fn send(&mut self) -> bool {
        let dispatcher = &self.dispatcher;
        let sent: Vec<bool> = self.proxies.iter_mut().map(|proxy| proxy.send(dispatcher)).collect();
        sent.contains(&true)
    }

    /// Lets proxies and controller go on until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..40 {
            let sent = self.send();
            self.clock += Duration::from_millis(100);
            let before = self.dispatcher.engine().revision();
            self.controller.act(self.clock);
            let acted = self.dispatcher.engine().revision() != before;
            if !sent && !acted && self.controller.case.is_none() && self.controller.gathered.is_none() {
                return;
            }
        }
        panic!("it never settles");
    }

    fn held(&self) -> Vec<String> {
        let holds = self.controller.quarantine().holds();
        assert!(holds.iter().all(|(_, hold)| hold.is_guilty));
        holds.iter().map(|(origin, _)| origin.key.to_string()).collect()
    }

    /// Whether the cluster of a proxy contains a text.
    fn serves(&self, proxy: usize, text: &str) -> bool {
        let last = &self.proxies[proxy].last;
        last.iter().any(|cluster| contains(&cluster.body, text))
    }
}

impl Proxy {
    /// Sends what is new, if anything is, and has it answered.
    fn send(&mut self, dispatcher: &Dispatcher) -> bool {
        let world = dispatcher.engine_of(self.connection.id).snapshot();
        let revision = dispatcher.engine().revision().number();
        assert!(self.root.value().is_ok());
        let now: ResourceSet =
            provenance::resources(&world, &self.connection, types::CLUSTER).unwrap().into_iter().collect();
        let is_new = now != self.last || self.messages == 0;
        if is_new {
            self.messages += 1;
            self.exchange(dispatcher, revision, now);
        }
        dispatcher.connections().record(&self.connection, &SessionEvent::Settled { revision });
        is_new
    }

    fn exchange(&mut self, dispatcher: &Dispatcher, revision: u64, now: ResourceSet) {
        let type_url: Arc<str> = types::CLUSTER.into();
        let nonce: Arc<str> = self.messages.to_string().into();
        let sent = SessionEvent::Sent {
            type_url: Arc::clone(&type_url),
            nonce: nonce.clone(),
            version: now.digest(),
            revision,
            pushed: true,
            resources: now.len(),
            removed: 0,
            bytes: 0,
        };
        dispatcher.connections().record(&self.connection, &sent);
        let poisoned = now.iter().find(|cluster| contains(&cluster.body, "poison"));
        let event = match poisoned.filter(|_| self.rejects_poison) {
            None => SessionEvent::Acked { type_url, nonce, accepted: now.clone() },
            Some(cluster) => SessionEvent::Nacked {
                type_url,
                nonce: nonce.to_string(),
                code: Code::Internal as i32,
                message: format!("Error adding/updating cluster(s) {}: {}", cluster.name, self.words),
                accepted: ResourceSet::default(),
                refused: now.clone(),
            },
        };
        self.last = now;
        dispatcher.connections().record(&self.connection, &event);
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn guilty_object_is_held_and_what_changed_with_it_is_served() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good"), &rule(7)].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    assert!(mesh.serves(0, "good") && mesh.held().is_empty());
    let before = mesh.proxies[0].last.clone();

    mesh.write(&[filter("poison"), rule(8)].join("---"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    assert!(mesh.serves(0, "good") && !mesh.serves(0, "poison"));
    assert_ne!(mesh.proxies[0].last, before, "the rule has an effect");
    assert_eq!(mesh.controller.quarantine().total(), 1);
    let holds = mesh.controller.quarantine().holds();
    let hold = &holds[0].1;
    assert!(hold.served.is_some() && hold.grounds.proxies.contains("a.default"));
    assert_eq!(&*hold.grounds.resources[0].name, "outbound|80||cart.default.svc.cluster.local");

    let held = mesh.proxies[0].last.clone();
    mesh.write(&rule(9));
    mesh.settle();
    assert_ne!(mesh.proxies[0].last, held, "what changes later is served too");
    assert_eq!(mesh.held(), [FILTER]);
}

#[test]
fn hold_ends_when_the_owner_changes_the_object_and_comes_back_if_that_is_no_better() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);

    let revision = mesh.dispatcher.engine().revision();
    mesh.write(&filter("poison"));
    assert_eq!(mesh.dispatcher.engine().revision(), revision, "the same again changes nothing");

    mesh.write(&filter("more-poison"));
    assert!(mesh.held().is_empty());
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    assert!(mesh.serves(0, "good"), "it is still the value that was accepted");

    mesh.write(&filter("better"));
    mesh.settle();
    assert!(mesh.held().is_empty() && mesh.serves(0, "better"));
}

#[test]
fn new_object_is_held_absent() {
    let mut mesh = Mesh::new(true);
    mesh.write(SERVICE);
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&[filter("poison"), rule(8)].join("---"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    let holds = mesh.controller.quarantine().holds();
    assert!(holds[0].1.served.is_none());
}

#[test]
fn deletion_ends_the_hold() {
    let mut mesh = Mesh::new(true);
    mesh.write(SERVICE);
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    let origin = mesh.controller.quarantine().holds()[0].0.clone();
    mesh.controller.admit(&origin, None);
    assert!(mesh.held().is_empty());
}

#[test]
fn nothing_is_held_for_what_another_proxy_accepts() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("picky", true);
    mesh.connect("plain", false);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert!(mesh.held().is_empty());
    assert!(mesh.serves(1, "poison"));
    assert_eq!(mesh.controller.quarantine().nacks().len(), 1);
}

#[test]
fn nothing_is_held_before_all_whom_it_concerns_have_answered() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("picky", true);
    mesh.connect("slow", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    let slow = mesh.proxies.pop().unwrap();
    mesh.send();
    for _ in 0..20 {
        mesh.clock += Duration::from_millis(100);
        mesh.controller.act(mesh.clock);
    }
    assert!(mesh.controller.case.is_none() && mesh.held().is_empty(), "the slow one is waited for");
    mesh.proxies.push(slow);
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER], "both reject it");
    let holds = mesh.controller.quarantine().holds();
    assert_eq!(holds[0].1.members.identities.len(), 2);
}

#[test]
fn first_value_can_be_guilty_too() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &rule(7), &filter("poison")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    assert!(mesh.serves(0, "cart.default") && !mesh.serves(0, "poison"));
}

#[test]
fn newcomer_that_rejects_what_others_live_with_gets_nothing_held() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &rule(7), &filter("poison")].join("---"));
    mesh.connect("old", false);
    mesh.settle();
    mesh.connect("new", true);
    mesh.settle();
    assert!(mesh.held().is_empty(), "{:?}", mesh.held());
}

#[test]
fn two_guilty_objects_are_both_held() {
    let mut mesh = Mesh::new(true);
    mesh.write(SERVICE);
    mesh.connect("a", true);
    mesh.settle();
    let other = filter("more-poison").replace("name: stats", "name: other");
    mesh.write(&[filter("poison"), other, rule(8)].join("---"));
    mesh.settle();
    assert_eq!(mesh.held(), ["EnvoyFilter default/other", FILTER]);
    assert!(!mesh.held().contains(&RULE.to_owned()));
}

#[test]
fn rejection_is_recorded_and_nothing_held_when_quarantine_is_off() {
    let mut mesh = Mesh::new(false);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert!(mesh.held().is_empty() && mesh.serves(0, "poison"));
    let nacks = mesh.controller.quarantine().nacks();
    assert_eq!((nacks.len(), &*nacks[0].proxy), (1, "a.default"));
    assert!(nacks[0].resources[0].accepted.is_some());
}

#[test]
fn case_is_dropped_when_its_judge_leaves() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&[filter("poison"), rule(8)].join("---"));
    mesh.send();
    for _ in 0..3 {
        mesh.clock += Duration::from_millis(100);
        mesh.controller.act(mesh.clock);
    }
    assert!(mesh.controller.case.is_some());
    let proxy = mesh.proxies.pop().unwrap();
    mesh.dispatcher.connections().disconnect(&proxy.connection);
    mesh.settle();
    assert!(mesh.held().is_empty());
}

/// A filter beside [`filter`], on another field.
fn other_filter(text: &str) -> String {
    let field = format!("metadata: {{filter_metadata: {{other: {{text: {text}}}}}}}");
    filter("x").replace("alt_stat_name: x", &field).replace("name: stats", "name: other")
}

/// Lets the case get so far that its judge has all suspects held before it.
fn begin(mesh: &mut Mesh) {
    mesh.send();
    for _ in 0..2 {
        mesh.clock += Duration::from_millis(100);
        mesh.controller.act(mesh.clock);
    }
    assert!(mesh.controller.case.is_some());
}

#[test]
fn second_bad_object_during_a_trial_does_not_incriminate_the_innocent() {
    for steps in 0..4 {
        let mut mesh = Mesh::new(true);
        mesh.write(&[SERVICE, &filter("good"), &rule(7)].join("---"));
        mesh.connect("a", true);
        mesh.settle();
        mesh.write(&[filter("poison"), rule(8)].join("---"));
        begin(&mut mesh);
        for _ in 0..steps {
            mesh.send();
            mesh.controller.act(mesh.clock);
        }
        mesh.write(&other_filter("more-poison"));
        mesh.settle();
        assert_eq!(mesh.held(), ["EnvoyFilter default/other", FILTER], "after {steps} steps");
    }
}

#[test]
fn bad_object_for_another_resource_during_a_trial_is_a_case_of_its_own() {
    let second = SERVICE.replace("cart", "list").replace("10.1.0.1", "10.1.0.2");
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &second, &filter("good"), &rule(7)].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&[filter("poison"), rule(8)].join("---"));
    begin(&mut mesh);
    mesh.write(&other_filter("more-poison").replace("cart", "list"));
    mesh.settle();
    assert_eq!(mesh.held(), ["EnvoyFilter default/other", FILTER]);
}

#[test]
fn harmless_change_during_a_trial_is_served() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good"), &rule(7)].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    begin(&mut mesh);
    mesh.write(&rule(8));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
}

#[test]
fn two_first_values_can_be_guilty_together() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &rule(7), &filter("poison"), &other_filter("more-poison")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    assert_eq!(mesh.held(), ["EnvoyFilter default/other", FILTER]);
    assert!(mesh.serves(0, "cart.default") && !mesh.serves(0, "poison"));
}

#[test]
fn applying_goes_on_when_a_decision_panics() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good"), &rule(7)].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&[filter("poison"), rule(8)].join("---"));
    begin(&mut mesh);
    mesh.controller.is_broken = true;
    mesh.controller.act(mesh.clock);
    assert!(mesh.controller.case.is_none() && mesh.held().is_empty(), "what was only suspected is served");
    assert_eq!(mesh.controller.quarantine().panics(), 1);
    mesh.send();
    assert!(mesh.serves(0, "poison"), "as its owner wants it");

    mesh.write(&filter("better"));
    mesh.settle();
    assert!(mesh.serves(0, "better") && mesh.held().is_empty());
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER], "and the next bad object is found again");
}

#[test]
fn no_words_of_a_proxy_end_the_process() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.proxies[0].words = "«ClusterValidationError.Name\u{10FFFF} éValidationError.é".to_owned();
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    let holds = mesh.controller.quarantine().holds();
    assert_eq!(holds[0].1.grounds.nack.field().as_deref(), Some("Cluster.Name > ."));
    assert_eq!(mesh.controller.quarantine().panics(), 0);
}

/// Lets time pass with proxies that answer and a controller that looks.
fn wait(mesh: &mut Mesh, seconds: u64) {
    for _ in 0..seconds * 4 {
        mesh.clock += Duration::from_millis(250);
        mesh.controller.act(mesh.clock);
        mesh.send();
    }
    mesh.settle();
}

#[test]
fn anonymous_proxy_never_causes_a_hold() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect_as(crate::test_proxy("a"), true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert!(mesh.held().is_empty());
    let nacks = mesh.controller.quarantine().nacks();
    assert!(nacks[0].outcome().is_some_and(|outcome| outcome.contains("proved no identity")));
}

/// A proxy of an audience of its own: [`OWN_BYTES`] patches its cluster.
fn set_apart(name: &str) -> canopus_mesh::proxy::Proxy {
    use canopus_proto::google::protobuf::value::Kind as Field;
    use canopus_proto::google::protobuf::{Struct, Value};
    let value = |kind| Value { kind: Some(kind) };
    let labels =
        Struct { fields: [("app".to_owned(), value(Field::StringValue("apart".to_owned())))].into() };
    let node = canopus_proto::envoy::config::core::v3::Node {
        id: format!("sidecar~10.0.0.2~{name}.default~default.svc.cluster.local"),
        metadata: Some(Struct { fields: [("LABELS".to_owned(), value(Field::StructValue(labels)))].into() }),
        ..Default::default()
    };
    let identity = format!("spiffe://cluster.local/ns/default/sa/{name}").parse().unwrap();
    canopus_mesh::proxy::Proxy::new(&node, Some(identity)).unwrap()
}

/// Gives the proxies that are [`set_apart`] bytes of their own.
const OWN_BYTES: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: apart, namespace: default}
spec:
  workloadSelector: {labels: {app: apart}}
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: cart.default.svc.cluster.local}}
    patch: {operation: MERGE, value: {metadata: {filter_metadata: {apart: {own: true}}}}}
";

#[test]
fn audience_that_rejects_goes_on_with_what_it_accepted_and_the_other_has_the_new() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good"), &rule(7), OWN_BYTES].join("---"));
    mesh.connect("content", false);
    mesh.connect_as(set_apart("picky"), true);
    mesh.settle();
    mesh.write(&[filter("poison"), rule(8)].join("---"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    assert!(mesh.serves(0, "poison"), "who accepts it has it");
    assert!(mesh.serves(1, "good") && !mesh.serves(1, "poison"), "who rejects it keeps what it had");
    let members = mesh.controller.quarantine().holds()[0].1.members.clone();
    assert_eq!(members.connections, BTreeSet::from([mesh.proxies[1].connection.id]));

    let before = mesh.proxies[1].last.clone();
    mesh.write(&rule(9));
    mesh.settle();
    assert_ne!(mesh.proxies[1].last, before, "all else flows to both");
    assert!(mesh.serves(1, "good"));

    mesh.write(&filter("more-poison"));
    mesh.settle();
    assert!(mesh.serves(0, "more-poison"));
    assert!(mesh.serves(1, "good"), "it is back at what it accepted, not at what others did");
    mesh.write(&filter("better"));
    mesh.settle();
    assert!(mesh.held().is_empty() && mesh.serves(0, "better") && mesh.serves(1, "better"));
}

#[test]
fn audiences_that_reject_the_same_object_are_held_each_at_what_it_accepted() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good"), OWN_BYTES].join("---"));
    mesh.connect("here", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    mesh.connect_as(set_apart("there"), true);
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER, FILTER], "for two sets of proxies");
    assert_eq!(mesh.controller.quarantine().len(), 1);
    assert!(mesh.serves(0, "good"));
    assert!(!mesh.serves(1, "good") && !mesh.serves(1, "poison"), "it has never accepted any");
}

#[test]
fn newcomer_is_first_sent_what_the_owner_wants() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    mesh.connect("picky", true);
    mesh.send();
    assert!(mesh.serves(1, "poison"), "the first message");
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER], "the same hold");
    assert!(mesh.serves(1, "good"), "as it rejects that too");
    assert_eq!(mesh.controller.quarantine().holds()[0].1.members.connections.len(), 2);
    mesh.connect("content", false);
    mesh.send();
    assert!(mesh.serves(2, "poison"), "the first message");
    mesh.settle();
    assert!(mesh.held().is_empty(), "somebody accepts it");
}

#[test]
fn two_connections_of_one_identity_do_not_decide_for_a_silent_other() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("twin", true);
    mesh.connect("twin", true);
    mesh.connect("silent", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    let silent = mesh.proxies.pop().unwrap();
    wait(&mut mesh, 30);
    assert!(mesh.held().is_empty(), "one identity is not enough where there are two");
    let nacks = mesh.controller.quarantine().nacks();
    let outcomes: Vec<_> = nacks.iter().filter_map(|nack| nack.outcome()).collect();
    assert!(outcomes.iter().any(|outcome| outcome.contains("have answered")), "{outcomes:?}");
    drop(silent);
}

#[test]
fn two_identities_are_enough_without_a_silent_third() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    for name in ["one", "two", "silent"] {
        mesh.connect(name, true);
    }
    mesh.settle();
    mesh.write(&filter("poison"));
    let silent = mesh.proxies.pop().unwrap();
    wait(&mut mesh, 30);
    assert_eq!(mesh.held(), [FILTER]);
    let members = mesh.controller.quarantine().holds()[0].1.members.clone();
    assert!(!members.connections.contains(&silent.connection.id), "it is served what the owner wants");
    mesh.proxies.push(silent);
    mesh.send();
    assert!(mesh.serves(2, "poison"));
    mesh.settle();
    assert!(mesh.serves(2, "good"), "and is one of them once it rejects that too");
}

#[test]
fn look_into_a_rejection_takes_a_tenth_of_the_time_at_most() {
    let mut mesh = Mesh::new(true);
    // Each look at the clock is a second later, so every look into a rejection takes long.
    let clock = Arc::new(parking_lot::Mutex::new(mesh.clock));
    mesh.controller.clock = Arc::new(move || {
        *clock.lock() += Duration::from_secs(1);
        *clock.lock()
    });
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("content", false);
    mesh.connect("picky", true);
    mesh.connect("silent", true);
    mesh.settle();
    let _silent = mesh.proxies.pop();
    let _content = mesh.proxies.remove(0);
    mesh.write(&filter("poison"));
    mesh.send();
    let start = mesh.clock;
    let mut looks = Vec::new();
    for _ in 0..600 {
        mesh.clock += Duration::from_millis(50);
        let before = mesh.controller.gathered;
        mesh.controller.act(mesh.clock);
        if before.is_some() && mesh.controller.gathered != before {
            looks.push(mesh.clock - start);
        }
    }
    assert!(looks.len() >= 2, "{looks:?}");
    let pauses: Vec<Duration> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_secs(10)), "{pauses:?}");
}

#[test]
fn hold_is_tried_again_when_the_proxy_comes_back_repaired() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    let broken = mesh.proxies.pop().unwrap();
    mesh.dispatcher.connections().disconnect(&broken.connection);
    mesh.connect("a", false);
    wait(&mut mesh, 4);
    assert!(mesh.held().is_empty() && mesh.serves(0, "poison"));
}

#[test]
fn hold_is_tried_again_now_and_then_less_and_less_often() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    let rejections = |mesh: &Mesh| mesh.proxies[0].connection.status(types::CLUSTER).unwrap().rejections;
    let first = rejections(&mesh);
    wait(&mut mesh, 50);
    assert_eq!(rejections(&mesh), first, "not so soon");
    wait(&mut mesh, 20);
    let second = rejections(&mesh);
    assert!(second > first && mesh.held() == [FILTER], "tried once, rejected, and held again");
    assert_eq!(mesh.controller.quarantine().holds()[0].1.tries, 1);
    wait(&mut mesh, 100);
    assert_eq!(rejections(&mesh), second, "the second pause is twice as long");
    mesh.proxies[0].rejects_poison = false;
    wait(&mut mesh, 30);
    assert!(mesh.held().is_empty() && mesh.serves(0, "poison"), "repaired without a reconnect");
}

#[test]
fn hold_ends_when_somebody_connects_who_has_not_rejected_it() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", true);
    mesh.settle();
    mesh.write(&filter("poison"));
    mesh.settle();
    assert_eq!(mesh.held(), [FILTER]);
    mesh.connect("b", false);
    wait(&mut mesh, 2);
    assert!(mesh.held().is_empty() && mesh.serves(1, "poison"));
}

#[test]
fn what_protects_the_mesh_is_never_held() {
    use super::super::history::may_be_held;
    use canopus_api::Kind;
    for kind in
        [Kind::AuthorizationPolicy, Kind::PeerAuthentication, Kind::RequestAuthentication, Kind::Secret]
    {
        assert!(!may_be_held(kind), "{kind:?}");
    }
    assert!(may_be_held(Kind::EnvoyFilter) && may_be_held(Kind::VirtualService));
}

#[test]
fn rejection_of_another_message_than_the_last_counts_for_nothing() {
    let mut mesh = Mesh::new(true);
    mesh.write(&[SERVICE, &filter("good")].join("---"));
    mesh.connect("a", false);
    mesh.settle();
    mesh.write(&filter("better"));
    mesh.send();
    let nack = |nonce: &str| SessionEvent::Nacked {
        type_url: types::CLUSTER.into(),
        nonce: nonce.to_owned(),
        code: Code::Internal as i32,
        message: "no".to_owned(),
        accepted: ResourceSet::default(),
        refused: mesh.proxies[0].last.clone(),
    };
    for nonce in ["", "0", "1", "made up"] {
        mesh.dispatcher.connections().record(&mesh.proxies[0].connection, &nack(nonce));
    }
    assert!(mesh.controller.quarantine().nacks().is_empty());
    for _ in 0..1000 {
        mesh.dispatcher.connections().record(&mesh.proxies[0].connection, &nack("2"));
    }
    assert_eq!(mesh.controller.quarantine().nacks().len(), 1, "a flood is one rejection");
    assert_eq!(mesh.controller.quarantine().take_waiting().len(), 1);
}
