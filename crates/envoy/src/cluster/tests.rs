use canopus_api::{Options, decode_documents};
use canopus_base::tree::{Limits, Node as Tree};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::json;

use super::*;

/// A service `a` in `ns` with an HTTP port, a TCP port and one pod.
const SERVICE: &str = "
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: ns}, spec: {clusterIP: 10.0.0.1, selector: {app: a},
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 90, targetPort: 9090}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-1, namespace: ns, labels: {app: a, security.istio.io/tlsMode: istio}},
  spec: {serviceAccountName: a}, status: {podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], phase: Running}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a, namespace: ns,
  labels: {kubernetes.io/service-name: a}}, addressType: IPv4, ports: [{name: http, port: 8080}, {name: tcp, port: 9090}],
  endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: a-1, namespace: ns}}]}
";

fn world(documents: &[&str]) -> Engine {
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    let text = documents.join("\n---\n");
    for outcome in decode_documents(&text, &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    engine
}

fn rule(spec: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: r, namespace: ns}}, spec: {{{spec}}}}}"
    )
}

fn proxy(kind: &str, address: &str, namespace: &str, labels: &[(&str, &str)]) -> Proxy {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    let metadata = [
        ("NAMESPACE".to_owned(), namespace.into()),
        ("CLUSTER_ID".to_owned(), "Kubernetes".into()),
        ("LABELS".to_owned(), Value::from(Struct { fields: labels })),
    ];
    let node = Node {
        id: format!("{kind}~{address}~p.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct { fields: metadata.into() }),
        ..Default::default()
    };
    Proxy::new(&node, None).unwrap()
}

fn sidecar() -> Proxy {
    proxy("sidecar", "10.9.0.1", "client", &[])
}

/// A cluster of a proxy, as JSON; null if it has none of the name.
fn cluster(engine: &Engine, proxy: &Proxy, name: &str) -> Tree {
    let clusters = engine.get::<Clusters>(proxy).unwrap();
    let found = clusters.iter().find(|cluster| *cluster.name == *name);
    found.map_or_else(Tree::default, |found| json::write(&Cluster::decode(found.body.clone()).unwrap()))
}

/// What stands at a path such as `a.b.0.c`, as JSON text.
fn at(tree: &Tree, path: &str) -> String {
    let mut place = Some(tree.to_json());
    for part in path.split('.') {
        place = place.and_then(|value| match part.parse::<usize>() {
            Ok(index) => value.get(index).cloned(),
            Err(_) => value.get(part).cloned(),
        });
    }
    place.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

const HTTP: &str = "outbound|80||a.ns.svc.cluster.local";
const MUTUAL: &str = "transportSocketMatches.0.transportSocket.typedConfig";

#[test]
fn endpoints_are_asked_for_and_mutual_tls_is_detected_when_nothing_is_configured() {
    let found = cluster(&world(&[SERVICE]), &sidecar(), HTTP);
    assert_eq!(at(&found, "type"), "\"EDS\"");
    assert_eq!(at(&found, "edsClusterConfig.serviceName"), format!("\"{HTTP}\""));
    assert_eq!(at(&found, "lbPolicy"), "\"LEAST_REQUEST\"");
    assert_eq!(at(&found, "transportSocketMatches.0.name"), "\"tlsMode-istio\"");
    let sni = at(&found, &format!("{MUTUAL}.sni"));
    assert_eq!(sni, "\"outbound_.80_._.a.ns.svc.cluster.local\"");
    let context = format!("{MUTUAL}.commonTlsContext.combinedValidationContext.defaultValidationContext");
    let account = at(&found, &format!("{context}.matchSubjectAltNames.0.exact"));
    assert_eq!(account, "\"spiffe://cluster.local/ns/ns/sa/a\"");
}

#[test]
fn subsets_have_clusters_that_add_to_the_rules_policy() {
    let rule = rule(
        "host: a, trafficPolicy: {tls: {mode: DISABLE}, connectionPool: {tcp: {maxConnections: 7}}},
         subsets: [{name: v1, labels: {v: '1'}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]",
    );
    let engine = world(&[SERVICE, &rule]);
    let found = cluster(&engine, &sidecar(), "outbound|80|v1|a.ns.svc.cluster.local");
    assert_eq!(at(&found, "lbPolicy"), "\"RANDOM\"");
    assert_eq!(at(&found, "circuitBreakers.thresholds.0.maxConnections"), "7");
    assert_eq!(at(&found, "transportSocketMatches"), "null");
    assert_eq!(at(&found, "metadata.filterMetadata.istio.subset"), "\"v1\"");
    let config = at(&found, "metadata.filterMetadata.istio.config");
    assert_eq!(config, "\"/apis/networking.istio.io/v1/namespaces/ns/destination-rule/r\"");
    assert_eq!(at(&cluster(&engine, &sidecar(), HTTP), "lbPolicy"), "\"LEAST_REQUEST\"");
}

#[test]
fn connections_go_where_the_client_wanted_when_the_balancer_is_passthrough() {
    let rule = rule("host: a, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}");
    let found = cluster(&world(&[SERVICE, &rule]), &sidecar(), HTTP);
    assert_eq!(at(&found, "type"), "\"ORIGINAL_DST\"");
    assert_eq!(at(&found, "lbPolicy"), "\"CLUSTER_PROVIDED\"");
    assert_eq!(at(&found, "edsClusterConfig"), "null");
    // The endpoint takes mutual TLS, and there is no choosing per endpoint.
    assert_eq!(at(&found, "transportSocket.name"), "\"envoy.transport_sockets.tls\"");
}

#[test]
fn connections_to_subsets_go_where_the_client_wanted_when_those_to_all_do() {
    let rule = rule(
        "host: a, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}},
         subsets: [{name: v1, labels: {v: '1'}, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}}]",
    );
    let found = cluster(&world(&[SERVICE, &rule]), &sidecar(), "outbound|80|v1|a.ns.svc.cluster.local");
    assert_eq!(at(&found, "type"), "\"ORIGINAL_DST\"");
    assert_eq!(at(&found, "lbPolicy"), "\"CLUSTER_PROVIDED\"");
}

#[test]
fn credentials_are_for_gateways_and_for_selected_workloads_only() {
    let tls = "trafficPolicy: {tls: {mode: SIMPLE, credentialName: mine}}";
    let engine = world(&[SERVICE, &rule(&format!("host: a, {tls}"))]);
    let gateway = proxy("router", "10.9.0.2", "edge", &[]);
    assert_eq!(at(&cluster(&engine, &sidecar(), HTTP), "transportSocket"), "null");
    let secret = "transportSocket.typedConfig.commonTlsContext.combinedValidationContext.validationContextSdsSecretConfig.name";
    assert_eq!(at(&cluster(&engine, &gateway, HTTP), secret), "\"kubernetes://mine-cacert\"");
    let selected = rule(&format!("host: a, {tls}, workloadSelector: {{matchLabels: {{app: b}}}}"));
    let chosen = proxy("sidecar", "10.9.0.3", "ns", &[("app", "b")]);
    assert_eq!(
        at(&cluster(&world(&[SERVICE, &selected]), &chosen, HTTP), secret),
        "\"kubernetes://mine-cacert\""
    );
}

#[test]
fn ports_of_the_workload_have_clusters_that_do_not_capture_their_own_traffic() {
    let own = proxy("sidecar", "10.1.0.1", "ns", &[("app", "a")]);
    let found = cluster(&world(&[SERVICE]), &own, "inbound|8080||");
    assert_eq!(at(&found, "type"), "\"ORIGINAL_DST\"");
    assert_eq!(at(&found, "upstreamBindConfig.sourceAddress.address"), "\"127.0.0.6\"");
    assert_eq!(at(&found, "metadata.filterMetadata.istio.services.0.name"), "\"a\"");
    assert_eq!(cluster(&world(&[SERVICE]), &sidecar(), "inbound|8080||"), Tree::default());
}

#[test]
fn proxies_of_different_namespaces_share_the_clusters_of_a_service() {
    let engine = world(&[SERVICE]);
    let others = [sidecar(), proxy("sidecar", "10.9.0.4", "other", &[("app", "x")])];
    let bodies = others.map(|proxy| {
        let clusters = engine.get::<Clusters>(&proxy).unwrap();
        clusters.iter().find(|cluster| &*cluster.name == HTTP).unwrap().body.as_ptr()
    });
    assert_eq!(bodies[0], bodies[1]);
}
