//! What a session is sent after a change is the difference between what its proxy had to have before and has to have after:
//! no less, no more, for any change of a small mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::{Options, decode_documents};
use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_base::tree::Limits as TreeLimits;
use canopus_daemon::control_plane::Mesh;
use canopus_daemon::push::{Cause, Dispatcher, Stamp};
use canopus_engine::{Batch, Engine};
use canopus_envoy::bundle::Bundle;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_xds::client::{Follower, Received, Update};
use canopus_xds::session::{Limits, Protocol, Response, Session};
use canopus_xds::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE, Types};
use canopus_xds::{ControlPlane, Interest, Peer, Refusal, Resource, ResourceSet, Source};
use proptest::prelude::*;

const TYPES: [&str; 4] = [CLUSTER, ENDPOINT, LISTENER, ROUTE];
/// Types of which a client names what it wants.
const NAMED: [&str; 2] = [ENDPOINT, ROUTE];
const NAMESPACES: [&str; 2] = ["shop", "bank"];
const SERVICES: [&str; 3] = ["cart", "list", "vault"];

/// A change: an object of a kind, of one of a few names, gets one of a few contents, or goes.
#[derive(Clone, Debug)]
struct Change {
    kind: usize,
    name: usize,
    content: usize,
}

type Content = fn(&str, &str, usize) -> String;

/// Each kind with the contents it can have; there is none with a greater number.
const KINDS: [(Content, usize); 6] =
    [(service, 4), (endpoints, 4), (virtual_service, 4), (destination_rule, 3), (sidecar, 3), (policy, 3)];

fn service(name: &str, namespace: &str, content: usize) -> String {
    let ports = [
        "{name: http, port: 80}",
        "{name: http, port: 80}, {name: tcp, port: 9000}",
        "{name: grpc, port: 7070}",
        // Of no consequence to proxies.
        "{name: http, port: 80, nodePort: 30080}",
    ][content];
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{clusterIP: {}, \
         selector: {{app: {name}}}, ports: [{ports}]}}}}",
        cluster_ip(name)
    )
}

fn cluster_ip(name: &str) -> String {
    let at = SERVICES.iter().position(|service| *service == name).unwrap_or_default();
    format!("10.1.0.{}", at + 1)
}

fn endpoints(name: &str, namespace: &str, content: usize) -> String {
    let addresses = (0..content).map(|at| {
        let ready = !(content == 3 && at == 0);
        format!("{{addresses: [10.0.{content}.{at}], conditions: {{ready: {ready}}}}}")
    });
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}-1, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, endpoints: [{}], ports: [{{name: http, \
         port: 8080}}, {{name: tcp, port: 9000}}, {{name: grpc, port: 7070}}]}}",
        addresses.collect::<Vec<_>>().join(", ")
    )
}

fn virtual_service(name: &str, namespace: &str, content: usize) -> String {
    let route = format!("route: [{{destination: {{host: {name}.{namespace}.svc.cluster.local}}}}]");
    let http = [
        format!("{{timeout: 1s, {route}}}"),
        format!("{{timeout: 2s, {route}}}"),
        format!("{{match: [{{uri: {{prefix: /a}}}}], {route}}}"),
        "{redirect: {uri: /away}}".to_owned(),
    ];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {{hosts: [{name}.{namespace}.svc.cluster.local], http: [{}]}}}}",
        http[content]
    )
}

fn destination_rule(name: &str, namespace: &str, content: usize) -> String {
    let policy = [
        "trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}",
        "subsets: [{name: v1, labels: {version: v1}}]",
        "trafficPolicy: {loadBalancer: {localityLbSetting: {enabled: true}}, outlierDetection: {interval: 3s}}",
    ][content];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {{host: {name}.{namespace}.svc.cluster.local, {policy}}}}}"
    )
}

fn sidecar(_: &str, namespace: &str, content: usize) -> String {
    let hosts = ["./*", "*/*", "bank/*"][content];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: scope, namespace: {namespace}}}, \
         spec: {{egress: [{{hosts: ['{hosts}']}}]}}}}"
    )
}

fn policy(_: &str, namespace: &str, content: usize) -> String {
    let spec =
        ["{}", "action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]", "action: AUDIT"][content];
    format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: policy, namespace: {namespace}}}, \
         spec: {{{}}}}}",
        spec.trim_matches(['{', '}'])
    )
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        (0..KINDS.len(), 0..SERVICES.len(), 0..5_usize).prop_map(|(kind, name, content)| Self {
            kind,
            name,
            content,
        })
    }

    /// The change of inputs.
    fn batch(&self) -> (Batch, Origin) {
        let (write, contents) = KINDS[self.kind];
        let (name, namespace) = (SERVICES[self.name], NAMESPACES[self.name % NAMESPACES.len()]);
        let document = write(name, namespace, self.content.min(contents - 1));
        let mut decoded = decode_documents(document, &TreeLimits::default(), Options::watch());
        let object = decoded.pop().expect("a document").expect("a good one").value;
        let origin = Origin::new("Kubernetes", object.key());
        let mut batch = Batch::new();
        if self.content < contents {
            batch.set::<Objects>(origin.clone(), object);
        } else {
            batch.remove::<Objects>(&origin);
        }
        (batch, origin)
    }
}

/// What a proxy has to have: hashes by name, by type.
type Expected = BTreeMap<&'static str, BTreeMap<Arc<str>, ContentHash>>;

fn expected(engine: &Engine, proxy: &Proxy) -> Expected {
    let bundle = Bundle::generate(&engine.snapshot(), proxy).expect("the bundle");
    let hashes = |resources: &[Resource]| resources.iter().map(|it| (it.name.clone(), it.version)).collect();
    BTreeMap::from([
        (CLUSTER, hashes(&bundle.clusters)),
        (ENDPOINT, hashes(&bundle.endpoints)),
        (LISTENER, hashes(&bundle.listeners)),
        (ROUTE, hashes(&bundle.routes)),
    ])
}

/// A session of the control plane, and a client that follows it.
struct Pair {
    link: Link,
    session: Session,
    follower: Follower,
    proxy: Proxy,
}

struct Link {
    mesh: Arc<Mesh>,
    client: Arc<<Mesh as ControlPlane>::Client>,
}

impl Source for Link {
    fn resources(&self, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        self.mesh.resources(&self.client, type_url, interest)
    }
}

impl Pair {
    async fn connect(mesh: &Arc<Mesh>, protocol: Protocol, id: &str) -> Self {
        let node = Node { id: id.to_owned(), ..Default::default() };
        let peer = Peer { protocol, ..Peer::default() };
        let client = mesh.connect(&peer, node.clone()).await.expect("a proper node");
        let proxy = Proxy::new(&node, None).expect("a proper node");
        let mut follower = Follower::new(protocol, node);
        follower.follow_references();
        follower.watch_everything(CLUSTER);
        follower.watch_everything(LISTENER);
        let session = Session::new(protocol, 1, Limits::default(), Arc::default());
        let mut pair = Self { link: Link { mesh: Arc::clone(mesh), client }, session, follower, proxy };
        pair.converse(Vec::new());
        pair
    }

    /// The world is another; all that is said then.
    fn revised(&mut self, revision: u64) -> Vec<Update> {
        self.session.on_revision(revision, Types::ALL);
        let pushed = self.responses();
        self.converse(pushed)
    }

    /// Takes in what is said until neither side has anything to say.
    fn converse(&mut self, mut said: Vec<Update>) -> Vec<Update> {
        let mut heard = Vec::new();
        loop {
            said.iter().for_each(|update| self.follower.accept(update));
            heard.append(&mut said);
            let requests = self.follower.take_requests();
            if requests.is_empty() {
                return heard;
            }
            for request in requests {
                self.session.on_request(request, &self.link).expect("a proper request");
                said.extend(self.responses());
            }
        }
    }

    fn responses(&mut self) -> Vec<Update> {
        let next = || self.session.next_response(&self.link).expect("an answer");
        std::iter::from_fn(next).map(|response| update(&response)).collect()
    }

    /// The client has what its proxy has to have.
    fn check_held(&self, expected: &Expected) {
        for type_url in TYPES {
            let held: BTreeMap<Arc<str>, ContentHash> = self
                .follower
                .held(type_url)
                .map(|(name, held)| (name.into(), ContentHash::compute(&held.body.value)))
                .collect();
            assert_eq!(held, expected[type_url], "{type_url}");
        }
    }

    /// What was said is what tells one state from the other.
    fn check_said(&self, said: &[Update], before: &Expected, after: &Expected) {
        let is_delta = self.follower.protocol() == Protocol::Delta;
        for type_url in TYPES {
            let said: Vec<&Update> = said.iter().filter(|update| update.type_url == type_url).collect();
            let names: Vec<&str> = said.iter().flat_map(|update| update.names()).collect();
            let sent: BTreeSet<&str> = names.iter().copied().collect();
            let removed: BTreeSet<&str> =
                said.iter().flat_map(|update| update.removed.iter().map(String::as_str)).collect();
            let named = NAMED.contains(&type_url);
            let mut changed = changed(&before[type_url], &after[type_url]);
            if type_url == ENDPOINT {
                // A cluster that is new or changed waits for its endpoints, whether they are new or not.
                let clusters = self::changed(&before[CLUSTER], &after[CLUSTER]);
                changed.extend(clusters.into_iter().filter(|name| after[ENDPOINT].contains_key(*name)));
            }
            let gone = gone(&before[type_url], &after[type_url]);
            let differs = !changed.is_empty() || !gone.is_empty();
            if !named && !is_delta && differs {
                changed = after[type_url].keys().map(|name| &**name).collect();
            }
            // The last word on a table may come before the listeners that no longer name it, and clusters stay until nothing
            // names them: the state of the world is told with all of them first, then without any.
            let may_outlive = [ROUTE, CLUSTER].contains(&type_url);
            let sent: BTreeSet<&str> =
                sent.into_iter().filter(|name| !may_outlive || !gone.contains(name)).collect();
            let most = if type_url == CLUSTER && !is_delta && !gone.is_empty() { 2 } else { 1 };
            let times = |name: &&str| names.iter().filter(|other| other == &name).count();
            assert!(sent.iter().all(|name| times(name) <= most), "{type_url}: {names:?}");
            assert_eq!(sent, changed, "{type_url}");
            let told = if is_delta && !named { gone } else { BTreeSet::new() };
            assert_eq!(removed, told, "{type_url}");
        }
    }
}

fn changed<'a>(
    before: &BTreeMap<Arc<str>, ContentHash>,
    after: &'a BTreeMap<Arc<str>, ContentHash>,
) -> BTreeSet<&'a str> {
    after.iter().filter(|(name, hash)| before.get(*name) != Some(hash)).map(|(name, _)| &**name).collect()
}

fn gone<'a>(
    before: &'a BTreeMap<Arc<str>, ContentHash>,
    after: &BTreeMap<Arc<str>, ContentHash>,
) -> BTreeSet<&'a str> {
    before.keys().filter(|name| !after.contains_key(*name)).map(|name| &**name).collect()
}

/// A response as its client reads it.
fn update(response: &Response) -> Update {
    let received = |resource: &Resource| Received {
        name: resource.name.to_string(),
        version: response.version_of(resource).to_string(),
        aliases: Vec::new(),
        body: Any { type_url: response.type_url().to_string(), value: resource.body.clone() },
    };
    Update {
        type_url: response.type_url().to_string(),
        nonce: response.nonce().to_owned(),
        version: response.version().to_string(),
        resources: response.resources().map(received).collect(),
        removed: response.removed().iter().map(ToString::to_string).collect(),
        identifier: None,
    }
}

/// A mesh with a workload behind `cart`, and sessions of both variants.
async fn follow(changes: Vec<Change>) {
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: cart-1, namespace: shop, labels: {app: cart}}, \
               spec: {containers: [{name: app}]}, status: {podIP: 10.0.1.0, phase: Running}}";
    for decoded in decode_documents(pod, &TreeLimits::default(), Options::watch()) {
        let object = decoded.expect("a good document").value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    let dispatcher = Dispatcher::unobserved(engine.clone());
    let mesh = Arc::new(Mesh::new(Arc::clone(&dispatcher)));
    let mut pairs = Vec::new();
    for (protocol, id) in [
        (Protocol::Delta, "sidecar~10.0.1.0~cart-1.shop~shop.svc.cluster.local"),
        (Protocol::Sotw, "sidecar~10.0.1.0~cart-1.shop~shop.svc.cluster.local"),
        (Protocol::Delta, "sidecar~10.0.9.9~clerk-1.bank~bank.svc.cluster.local"),
        (Protocol::Delta, "router~10.0.9.8~gateway-1.bank~bank.svc.cluster.local"),
    ] {
        let pair = Pair::connect(&mesh, protocol, id).await;
        pair.check_held(&expected(&engine, &pair.proxy));
        pairs.push(pair);
    }
    let bundles = |pairs: &[Pair]| {
        let each = pairs.iter().map(|pair| (pair.proxy.clone(), expected(&engine, &pair.proxy)));
        each.collect::<FastMap<Proxy, Expected>>()
    };
    let mut before = bundles(&pairs);
    for change in changes {
        let (batch, origin) = change.batch();
        let revision = dispatcher.apply(batch, Cause::objects(Stamp::now(), [origin])).revision;
        let after = bundles(&pairs);
        for pair in &mut pairs {
            let said = pair.revised(revision);
            pair.check_said(&said, &before[&pair.proxy], &after[&pair.proxy]);
            pair.check_held(&after[&pair.proxy]);
        }
        before = after;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn sessions_are_sent_the_difference_after_any_change(
        changes in proptest::collection::vec(Change::any(), 100),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        runtime.expect("a runtime").block_on(follow(changes));
    }
}
