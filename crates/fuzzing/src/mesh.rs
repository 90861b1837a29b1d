//! What is asked of a small mesh: by whoever connects to it, and by whoever looks into it.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use canopus_api::{Options, decode_documents};
use canopus_base::spiffe::Identity;
use canopus_base::tree::Limits as TreeLimits;
use canopus_daemon::control_plane::{Client, Mesh};
use canopus_daemon::debug::{Caller, Debug, Question};
use canopus_daemon::push::{Cause, Dispatcher, Stamp};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_xds::server::read_request;
use canopus_xds::session::{Limits, Protocol};
use canopus_xds::{ControlPlane as _, Interest, Names, Peer, types};

/// Text of a private key, which nobody is shown.
const KEY: &str = "MHcCAQEEIKnobodyshallseethis";

const OBJECTS: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.1.0.1, selector: {app: cart}, ports: [{name: http, port: 80}, {name: tcp, port: 90}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: cart, namespace: shop, labels: {app: cart, version: v1}}, spec: {serviceAccountName: cart, nodeName: node-1, containers: [{name: app}]}, status: {podIP: 10.0.0.2, phase: Running, conditions: [{type: Ready, status: 'True'}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: cart, namespace: shop}, spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}], trafficPolicy: {loadBalancer: {localityLbSetting: {enabled: true}}}}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: entry, namespace: shop}, spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: cart, namespace: shop}, spec: {hosts: [cart, '*.example.com'], gateways: [entry, mesh], http: [{match: [{sourceLabels: {app: cart}}], route: [{destination: {host: cart, subset: v1}}]}, {route: [{destination: {host: cart}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: api, namespace: shop}, spec: {hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: DNS}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: cart, namespace: shop}, spec: {workloadSelector: {labels: {app: cart}}, egress: [{hosts: ['./*']}]}}
---
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: patch, namespace: shop}, spec: {configPatches: [{applyTo: CLUSTER, match: {proxy: {proxyVersion: '^1', metadata: {a: b}}}, patch: {operation: MERGE, value: {altStatName: x}}}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: deny, namespace: shop}, spec: {selector: {matchLabels: {app: cart}}, action: DENY, rules: [{from: [{source: {namespaces: [evil]}}]}]}}
---
{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: all, namespace: shop}, spec: {accessLogging: [{providers: [{name: envoy}]}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: cert, namespace: shop}, type: kubernetes.io/tls, stringData: {tls.crt: public, tls.key: MHcCAQEEIKnobodyshallseethis}}
"#;

/// Inputs after which the mesh is made anew: it keeps for a while what was made for those who are gone.
const RENEWED_AFTER: usize = 2000;

/// A mesh with one proxy, and how often it was used.
struct Lab {
    mesh: Mesh,
    debug: Debug,
    _client: Arc<Client>,
    uses: usize,
}

thread_local! {
    static LAB: RefCell<Option<Lab>> = const { RefCell::new(None) };
}

impl Lab {
    fn open() -> Self {
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        for decoded in decode_documents(OBJECTS, &TreeLimits::default(), Options::watch()) {
            let object = decoded.expect("the objects can be decoded").value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        let dispatcher = Dispatcher::unobserved(Engine::new());
        dispatcher.apply(batch, Cause::objects(Stamp::now(), Vec::new()));
        let mesh = Mesh::new(Arc::clone(&dispatcher));
        let id = "sidecar~10.0.0.2~cart.shop~shop.svc.cluster.local".to_owned();
        let client = at_once(mesh.connect(&Peer::default(), Node { id, ..Node::default() }));
        let client = client.expect("the node is complete");
        ask_for_everything(&mesh, &client);
        Self { mesh, debug: Debug::new(dispatcher), _client: client, uses: 0 }
    }
}

fn with_lab(work: impl FnOnce(&Lab)) {
    LAB.with_borrow_mut(|lab| {
        lab.take_if(|lab| lab.uses >= RENEWED_AFTER);
        let lab = lab.get_or_insert_with(Lab::open);
        lab.uses += 1;
        work(lab);
    });
}

/// Runs a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing to wait for"),
    }
}

fn ask_for_everything(mesh: &Mesh, client: &Client) {
    let named = |name: &str| Interest::Names(Names::new([name]));
    for (type_url, interest) in [
        (types::CLUSTER, Interest::Wildcard),
        (types::LISTENER, Interest::Wildcard),
        (types::ENDPOINT, named("outbound|80||cart.shop.svc.cluster.local")),
        (types::ROUTE, named("80")),
        (types::SECRET, named("kubernetes://cert")),
        (types::NAME_TABLE, Interest::Wildcard),
    ] {
        // What cannot be generated is refused; it is no reason to panic.
        let _ = mesh.resources(client, type_url, &interest);
    }
}

/// The first request of a client, whose node may say anything: it is refused, or gets what a proxy gets, and no key.
pub(crate) fn node_metadata(input: &[u8]) {
    let Ok(request) = read_request(Protocol::Delta, input, Limits::default()) else { return };
    let Some(node) = request.node else { return };
    with_lab(|lab| {
        let Ok(client) = at_once(lab.mesh.connect(&Peer::default(), node)) else { return };
        ask_for_everything(&lab.mesh, &client);
        let secret = Interest::Names(Names::new(["kubernetes://cert"]));
        let got = lab.mesh.resources(&client, types::SECRET, &secret);
        let has_key = |body: &[u8]| body.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!got.is_ok_and(|set| set.iter().any(|resource| has_key(&resource.body))), "a key is served");
        lab.mesh.disconnect(&client);
    });
}

/// A question to the debug endpoints, and on a second line the namespace of who asks: there is an answer, and no key in it.
pub(crate) fn debug_query(input: &[u8]) {
    let Some([question, namespace]) = super::lines(input) else { return };
    let caller =
        Identity::new("cluster.local", namespace, "somebody").map_or(Caller::Trusted, Caller::Proven);
    with_lab(|lab| {
        let answer = lab.debug.answer(&Question::parse(question, caller));
        assert!(!answer.body.contains(KEY), "a key is shown");
        if answer.content_type == Some("application/json") {
            assert!(
                serde_json::from_str::<serde_json::Value>(&answer.body).is_ok(),
                "no JSON: {}",
                answer.body
            );
        }
    });
}
