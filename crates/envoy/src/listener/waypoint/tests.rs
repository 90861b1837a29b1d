use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_runtime::flags::Flags;

use super::super::Listeners;
use super::*;

/// The waypoint `w` of `ns`, its pod and its service, and a service that uses it.
fn world(traffic: &str, ports: &str) -> Engine {
    let documents = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: ns}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
  metadata: {{name: w, namespace: ns, labels: {{istio.io/waypoint-for: {traffic}}}}},
  spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]}},
  status: {{addresses: [{{type: Hostname, value: w.ns.svc.cluster.local}}]}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: w, namespace: ns}},
  spec: {{clusterIP: 10.1.0.9, selector: {{gateway.networking.k8s.io/gateway-name: w}},
    ports: [{{name: hbone, port: 15008}}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: w-0, namespace: ns,
    labels: {{gateway.networking.k8s.io/gateway-name: w, gateway.istio.io/managed: istio.io-mesh-controller}}}},
  spec: {{serviceAccountName: w}}, status: {{podIP: 10.0.0.9, phase: Running}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: a, namespace: ns, labels: {{istio.io/use-waypoint: w}}}},
  spec: {{clusterIP: 10.1.0.1, selector: {{app: a}}, ports: [{ports}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: a-0, namespace: ns,
    labels: {{app: a, istio.io/use-waypoint: w}}}},
  spec: {{serviceAccountName: a}}, status: {{podIP: 10.0.0.1, phase: Running}}}}
"
    );
    let engine = Engine::new();
    let mut batch = Batch::new();
    let flags = Flags::read(&[("PILOT_ENABLE_AMBIENT", "true")]);
    batch.set::<Settings>((), MeshSettings { flags: Arc::new(flags), ..MeshSettings::default() });
    for outcome in decode_documents(documents, &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    engine
}

fn listeners(engine: &Engine) -> BTreeMap<String, Listener> {
    let labels = [
        ("gateway.networking.k8s.io/gateway-name".to_owned(), Value::from("w")),
        ("gateway.istio.io/managed".to_owned(), Value::from("istio.io-mesh-controller")),
    ];
    let fields = BTreeMap::from([
        ("NAMESPACE".to_owned(), Value::from("ns")),
        ("CLUSTER_ID".to_owned(), Value::from("Kubernetes")),
        ("LABELS".to_owned(), Struct { fields: labels.into() }.into()),
    ]);
    let node = Node {
        id: "waypoint~10.0.0.9~w-0.ns~ns.svc.cluster.local".into(),
        metadata: Some(Struct { fields }),
        ..Default::default()
    };
    let found = engine.get::<Listeners>(&Proxy::new(&node, None).unwrap()).unwrap();
    let decoded = found.iter().map(|resource| Listener::decode(resource.body.clone()).unwrap());
    decoded.map(|listener| (listener.name.clone(), listener)).collect()
}

fn chains(engine: &Engine) -> Vec<String> {
    listeners(engine)[MAIN_INTERNAL].filter_chains.iter().map(|chain| chain.name.clone()).collect()
}

const HTTP: &str = "{name: http, port: 80}";
const HOST: &str = "a.ns.svc.cluster.local";

#[test]
fn waypoint_ends_tunnels_and_opens_others() {
    let found = listeners(&world("service", HTTP));
    let expected = [
        "connect_originate",
        "connect_terminate",
        "inner_connect_originate",
        MAIN_INTERNAL,
        "outer_connect_originate",
    ];
    assert_eq!(found.keys().collect::<Vec<_>>(), expected);
}

#[test]
fn port_has_the_chains_of_what_may_be_spoken_on_it() {
    let direct = ["direct-tcp".to_owned(), "direct-http".to_owned()];
    let of = |ports: &str, names: &[String]| {
        assert_eq!(chains(&world("service", ports)), [names, &direct].concat(), "{ports}");
    };
    of(HTTP, &[format!("inbound-vip|80|http|{HOST}")]);
    of("{name: tcp, port: 90}", &[format!("inbound-vip|90|tcp|{HOST}")]);
    of("{name: a, port: 90}", &["tcp", "http"].map(|kind| format!("inbound-vip|90|{kind}|{HOST}")));
}

#[test]
fn service_has_no_chains_when_the_waypoint_is_for_workloads() {
    assert_eq!(chains(&world("workload", HTTP)), ["direct-tcp", "direct-http"]);
}

#[test]
fn everything_is_inspected_when_workloads_are_called_by_address() {
    let disabled = |traffic: &str| {
        let found = listeners(&world(traffic, HTTP));
        let inspector = &found[MAIN_INTERNAL].listener_filters[1];
        inspector.filter_disabled.is_some()
    };
    assert!(disabled("service"));
    assert!(!disabled("all"));
}
