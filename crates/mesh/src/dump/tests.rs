use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value, value::Kind};

use super::*;
use crate::testing;
use crate::world::MeshSettings;

const WORLD: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: ns}
spec: {clusterIP: 10.1.0.1, selector: {app: a}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a-1, namespace: ns, labels: {app: a}}
spec: {serviceAccountName: sa, nodeName: n1}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-x, namespace: ns, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: a-1, namespace: ns}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: other}
spec: {hosts: [b.example.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: narrow, namespace: ns}
spec: {egress: [{hosts: ['./*']}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: root, namespace: ns}
spec: {hosts: [a], http: [{delegate: {name: leaf}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: leaf, namespace: ns}
spec: {http: [{route: [{destination: {host: a}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: to-a, namespace: ns}
spec: {host: a}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: ns}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: of-a, namespace: ns}
spec: {selector: {matchLabels: {app: a}}, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: of-b, namespace: ns}
spec: {selector: {matchLabels: {app: b}}, rules: [{}]}
";

fn engine() -> Engine {
    testing::world(MeshSettings::default(), WORLD)
}

fn proxy() -> Proxy {
    let text = |value: &str| Value { kind: Some(Kind::StringValue(value.into())) };
    let fields = [("NAMESPACE", "ns"), ("CLUSTER_ID", "Kubernetes"), ("INSTANCE_IPS", "10.0.0.1")];
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(key, value)| (key.to_owned(), text(value))).collect();
    let node = Node {
        id: "sidecar~10.0.0.1~a-1.ns~ns.svc.cluster.local".into(),
        metadata: Some(Struct { fields }),
        ..Node::default()
    };
    Proxy::new(&node, None).unwrap()
}

fn named<'a>(objects: impl IntoIterator<Item = &'a ObjectRef>) -> Vec<String> {
    objects.into_iter().map(|object| format!("{} {}", object.kind, object.name)).collect()
}

#[test]
fn services_have_the_objects_behind_them_and_their_endpoints() {
    let found =
        dump_mesh(&engine(), &DumpSelection { service: Some("a".into()), ..DumpSelection::default() })
            .unwrap();
    let [service] = found.services.as_slice() else { panic!("{found:?}") };
    assert_eq!(&*service.host, "a.ns.svc.cluster.local");
    assert_eq!((service.registry, service.resolution), ("Kubernetes", "STATIC"));
    assert_eq!(named(&service.objects), ["Service a"]);
    assert_eq!(named(&service.endpoint_objects), ["EndpointSlice a-x", "Pod a-1", "Service a"]);
    let [endpoint] = service.endpoints.as_slice() else { panic!("{service:?}") };
    assert_eq!(
        (endpoint.addresses[0].as_ref(), endpoint.port, endpoint.health),
        ("10.0.0.1", 8080, "HEALTHY")
    );
    assert_eq!(&*endpoint.identity, "spiffe://cluster.local/ns/ns/sa/sa");
    assert_eq!(named(&endpoint.object), ["Pod a-1"]);
}

#[test]
fn selection_is_by_namespace_and_by_wildcard() {
    let hosts = |selection: DumpSelection| {
        let found = dump_mesh(&engine(), &selection).unwrap();
        found.services.into_iter().map(|service| service.host.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(DumpSelection::default()).len(), 2);
    assert_eq!(
        hosts(DumpSelection { namespace: Some("other".into()), ..DumpSelection::default() }),
        ["b.example.com"]
    );
    assert_eq!(
        hosts(DumpSelection { service: Some("*.example.com".into()), ..DumpSelection::default() }),
        ["b.example.com"]
    );
    assert_eq!(hosts(DumpSelection { service: Some("b".into()), ..DumpSelection::default() }), [""; 0]);
}

#[test]
fn proxy_has_its_scope_and_its_policies() {
    let found =
        dump_mesh(&engine(), &DumpSelection { proxy: Some(proxy()), ..DumpSelection::default() }).unwrap();
    let facts = found.proxy.unwrap();
    assert_eq!(facts.scope.hosts, ["a.ns.svc.cluster.local".into()]);
    assert_eq!(found.services.len(), 1);
    assert_eq!(named(&facts.scope.sidecar), ["Sidecar narrow"]);
    let [routes] = facts.scope.virtual_services.as_slice() else { panic!("{facts:?}") };
    assert_eq!(named(&routes.objects), ["VirtualService leaf", "VirtualService root"]);
    assert_eq!(named(&facts.scope.destination_rules[0].objects), ["DestinationRule to-a"]);
    let policies = facts.policies;
    assert_eq!(policies.mutual_tls, "STRICT");
    assert_eq!(named(&policies.objects["PeerAuthentication"]), ["PeerAuthentication strict"]);
    assert_eq!(named(&policies.objects["AuthorizationPolicy"]), ["AuthorizationPolicy of-a"]);
    assert_eq!(named(&policies.objects["Telemetry"]), [""; 0]);
}

#[test]
fn dependents_are_the_queries_that_read_the_object() {
    let engine = engine();
    let watched = engine.watch::<AllServices>(());
    let selection = DumpSelection { service: Some("a".into()), dependents: true, ..DumpSelection::default() };
    let found = dump_mesh(&engine, &selection).unwrap();
    let affected = found.services[0].dependents.as_ref().unwrap();
    let of = |query: &str| affected.iter().find(|affected| affected.query == query).unwrap();
    assert_eq!(of("all_services").watched, ["all_services(())"]);
    assert_eq!(of("services_of").count, 1);
    assert!(of("services_of").watched.is_empty());
    drop(watched);
}
