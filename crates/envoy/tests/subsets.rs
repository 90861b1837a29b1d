//! The endpoints of subsets, as the clusters of sidecars and of waypoints name them.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its fixture has failed")]

use std::collections::BTreeMap;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::endpoint::Assignment;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::google::protobuf::{Struct, Value};

/// A service with a pod of each version and one of the first that is not ready; its subsets have thresholds.
const WORLD: &str = "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop},
 spec: {clusterIP: 10.0.0.1, selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: shop, labels: {app: cart, version: v1}},
 spec: {containers: [{name: a}]}, status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: two, namespace: shop, labels: {app: cart, version: v2}},
 spec: {containers: [{name: a}]}, status: {phase: Running, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ill, namespace: shop, labels: {app: cart, version: v1}},
 spec: {containers: [{name: a}]}, status: {phase: Running, podIP: 10.1.0.3, podIPs: [{ip: 10.1.0.3}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints:
- {addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: one, namespace: shop}}
- {addresses: [10.1.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: two, namespace: shop}}
- {addresses: [10.1.0.3], conditions: {ready: false, serving: false, terminating: false}, targetRef: {kind: Pod, name: ill, namespace: shop}}
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec:
  host: cart
  subsets:
  - {name: v1, labels: {version: v1}, trafficPolicy: {outlierDetection: {minHealthPercent: 50}}}
  - {name: v2, labels: {version: v2}}
";

/// How many endpoints a cluster of a service in the world has.
fn count(cluster: &str) -> usize {
    let mut batch = Batch::new();
    for outcome in decode_documents(WORLD, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    let engine = Engine::new();
    engine.apply(batch);
    let metadata = BTreeMap::from([
        ("CLUSTER_ID".to_owned(), Value::from("Kubernetes")),
        ("NAMESPACE".to_owned(), Value::from("shop")),
    ]);
    let node = Node {
        id: "sidecar~10.1.0.9~client.shop~shop.svc.cluster.local".to_owned(),
        metadata: Some(Struct::from(metadata)),
        ..Default::default()
    };
    let world = engine.snapshot();
    let audiences = world.get::<AudiencesOf>(&Proxy::new(&node, None).unwrap()).unwrap();
    let cluster = format!("{cluster}|cart.shop.svc.cluster.local");
    let resource = world.get::<Assignment>(&(audiences.endpoints.clone(), cluster)).unwrap();
    let body = resource.as_ref().as_ref().unwrap().body.clone();
    let assignment = ClusterLoadAssignment::decode(body).unwrap();
    assignment.endpoints.iter().map(|group| group.lb_endpoints.len()).sum()
}

#[test]
fn labels_pick_the_endpoints_when_a_waypoint_names_the_subset() {
    assert_eq!(count("inbound-vip|80|http"), 3);
    for cluster in ["inbound-vip|80|http/v2", "inbound-vip|80|tcp/v2", "outbound|80|v2"] {
        assert_eq!(count(cluster), 1, "{cluster}");
    }
}

#[test]
fn unhealthy_endpoints_are_sent_in_spite_of_the_subset_when_a_waypoint_asks() {
    assert_eq!(count("outbound|80|v1"), 1);
    assert_eq!(count("inbound-vip|80|http/v1"), 2);
}
