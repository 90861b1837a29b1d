//! The objects of a simulated mesh: two namespaces, `shop` and `lab`, and what changes in them.

use std::collections::BTreeMap;

use canopus_api::{Object, ObjectKey, Options, decode_documents};
use canopus_base::tree::Limits;

use super::random::Random;

/// Texts that only proxies of `lab` may be sent.
pub(super) const OF_LAB: &str = "of-the-lab-alone";

/// What proxies that are strict reject.
pub(super) const POISON: &str = "poison";

/// The private key in the Secret, and the account that may read it.
pub(super) const PRIVATE_KEY: &str = "simulated-private-key";
pub(super) const SECRET_READER: &str = "gateway";

/// The versions of workloads, by which some objects select proxies.
pub(super) const VERSIONS: [&str; 2] = ["v1", "v2"];

/// A change of the truth.
pub(super) enum Change {
    Set(Box<Object>),
    Remove(ObjectKey),
}

fn object(document: &str) -> Object {
    let mut decoded = decode_documents(document, &Limits::default(), Options::watch());
    decoded.remove(0).unwrap_or_else(|error| panic!("{error}: {document}")).value
}

fn service(namespace: &str, name: &str, port: usize) -> Object {
    object(&format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{clusterIP: 10.1.0.{}, selector: {{app: {name}}}, ports: [{{name: http, port: {port}}}]}}
",
        name.len() + port % 50
    ))
}

fn endpoints(namespace: &str, name: &str, addresses: usize) -> Object {
    let list: Vec<String> = (1..=addresses)
        .map(|n| format!("{{addresses: [10.2.0.{n}], conditions: {{ready: true}}}}"))
        .collect();
    object(&format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
endpoints: [{}]
ports: [{{name: http, port: 8080}}]
",
        list.join(", ")
    ))
}

fn rule(connections: usize) -> Object {
    object(&format!(
        "apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: cart, namespace: shop}}
spec: {{host: cart, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {connections}}}}}}}}}
"
    ))
}

fn routes(timeout: usize) -> Object {
    object(&format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: cart, namespace: shop}}
spec: {{hosts: [cart], http: [{{timeout: {timeout}s, route: [{{destination: {{host: cart}}}}]}}]}}
"
    ))
}

/// A filter that changes the cluster of `cart` for proxies of one namespace.
fn filter(namespace: &str, name: &str, text: &str) -> Object {
    object(&format!(
        "apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {{cluster: {{service: cart.shop.svc.cluster.local}}}}
    patch: {{operation: MERGE, value: {{alt_stat_name: {text}}}}}
"
    ))
}

/// An outside host that only `lab` may see.
fn entry(number: usize) -> Object {
    object(&format!(
        "apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: entry-{number}, namespace: lab}}
spec:
  hosts: [{OF_LAB}-{number}.example.com]
  exportTo: ['.']
  resolution: DNS
  ports: [{{number: 80, name: http, protocol: HTTP}}]
"
    ))
}

/// A policy for everybody, or for the proxies of a version. The first of a namespace, and the first that selects by a label,
/// gives proxies other audiences.
fn policy(name: &str, selector: &str, path: usize) -> Object {
    object(&format!(
        "apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: {name}, namespace: shop}}
spec: {{{selector}action: DENY, rules: [{{to: [{{operation: {{paths: [/{path}]}}}}]}}]}}
"
    ))
}

fn selector(version: &str) -> String {
    format!("selector: {{matchLabels: {{version: {version}}}}}, ")
}

/// Mutual TLS for the proxies of a version.
fn peers(version: &str, mode: &str) -> Object {
    object(&format!(
        "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: peers-{version}, namespace: shop}}
spec: {{{}mtls: {{mode: {mode}}}}}
",
        selector(version)
    ))
}

/// Access logs of the proxies of a version.
fn telemetry(version: &str, expression: &str) -> Object {
    object(&format!(
        "apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {{name: logs-{version}, namespace: shop}}
spec: {{{}accessLogging: [{{providers: [{{name: envoy}}], filter: {{expression: \"{expression}\"}}}}]}}
",
        selector(version)
    ))
}

/// What the proxies of a version of one namespace may call.
fn sidecar(version: &str, host: &str) -> Object {
    object(&format!(
        "apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: only-{version}, namespace: shop}}
spec: {{workloadSelector: {{labels: {{version: {version}}}}}, egress: [{{hosts: [\"./{host}\"]}}]}}
"
    ))
}

fn secret() -> Object {
    use base64::Engine as _;
    let encode = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    object(&format!(
        "apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {{name: cert, namespace: shop}}
data: {{tls.crt: {}, tls.key: {}}}
",
        encode("a certificate"),
        encode(PRIVATE_KEY)
    ))
}

/// What there is at the beginning.
pub(super) fn first() -> Vec<Object> {
    vec![
        service("shop", "cart", 80),
        endpoints("shop", "cart", 2),
        service("shop", "web", 8080),
        rule(7),
        routes(5),
        secret(),
        entry(0),
    ]
}

/// Changes something.
pub(super) fn change(random: &mut Random, truth: &mut BTreeMap<ObjectKey, Object>) -> Option<Change> {
    let version = random.choose(&VERSIONS);
    let object = match random.below(17) {
        0 => service("shop", random.choose(&["cart", "web", "new"]), random.choose(&[80, 8080])),
        1 | 2 => endpoints("shop", random.choose(&["cart", "web"]), random.below(4)),
        3 => rule(1 + random.below(5)),
        4 => routes(1 + random.below(5)),
        5 => filter("lab", "stats", random.choose(&[POISON, OF_LAB, "of-the-lab-alone-2"])),
        6 => filter("shop", "stats", random.choose(&[POISON, "fine", "fine-2"])),
        7 => filter("shop", "more", random.choose(&["more-1", "more-2"])),
        8 => entry(random.below(3)),
        9 => policy("deny", "", random.below(4)),
        10 | 11 => policy(&format!("deny-{version}"), &selector(version), random.below(4)),
        12 => peers(version, random.choose(&["STRICT", "PERMISSIVE"])),
        13 => telemetry(version, random.choose(&["true", "response.code >= 400"])),
        14 => sidecar(version, random.choose(&["*", "cart.shop.svc.cluster.local"])),
        _ => {
            let keys: Vec<&ObjectKey> = truth.keys().collect();
            let key = (*keys.get(random.below(keys.len()))?).clone();
            return Some(Change::Remove(key));
        }
    };
    Some(Change::Set(Box::new(object)))
}
