use crate::audience::AudiencesOf;
use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::{HealthStatus, Node};
use canopus_proto::envoy::config::endpoint::v3::LbEndpoint;
use canopus_proto::google::protobuf::Struct;
use canopus_runtime::flags::Flags;

use super::*;

const HTTP: &str = "outbound|80||a.ns.svc.cluster.local";

/// A service `a` with one pod, whose node is called `one`.
fn service(meta: &str, spec: &str, labels: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Service, metadata: {{name: a, namespace: ns, {meta}}}, spec: {{clusterIP: 10.0.0.1,
  selector: {{app: a}}, ports: [{{name: http, port: 80, targetPort: 8080}}], {spec}}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: a-1, namespace: ns, labels: {{app: a, {labels}}}}},
  spec: {{nodeName: one}}, status: {{podIP: 10.1.0.1, podIPs: [{{ip: 10.1.0.1}}], phase: Running}}}}
---
{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a, namespace: ns,
  labels: {{kubernetes.io/service-name: a}}}}, addressType: IPv4, ports: [{{name: http, port: 8080}}],
  endpoints: [{{addresses: [10.1.0.1], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: a-1, namespace: ns}}}}]}}
"
    )
}

/// How the endpoints are that a client in `ns` on node `one` of the cluster `Kubernetes` is told of.
fn told<const N: usize>(flags: [(&str, &str); N], clusters: &[(&str, &str)]) -> Vec<HealthStatus> {
    told_of(HTTP, flags, clusters)
}

fn told_of<const N: usize>(
    name: &str,
    flags: [(&str, &str); N],
    clusters: &[(&str, &str)],
) -> Vec<HealthStatus> {
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings { flags: Flags::read(&flags).into(), ..Default::default() });
    for (cluster, text) in clusters {
        for outcome in decode_documents(text, &Limits::default(), Options::strict()) {
            let object = outcome.unwrap().value;
            batch.set::<Objects>(Origin::new(*cluster, object.key()), object);
        }
    }
    engine.apply(batch);
    let metadata = [("NAMESPACE", "ns"), ("CLUSTER_ID", "Kubernetes"), ("NODE_NAME", "one")];
    let fields = metadata.map(|(key, value)| (key.to_owned(), value.into()));
    let node = Node {
        id: "sidecar~10.9.0.1~p.ns~ns.svc.cluster.local".to_owned(),
        metadata: Some(Struct { fields: fields.into() }),
        ..Default::default()
    };
    let world = engine.snapshot();
    let audiences = world.get::<AudiencesOf>(&Proxy::new(&node, None).unwrap()).unwrap();
    let found = world.get::<Assignment>(&(audiences.endpoints.clone(), name.to_owned())).unwrap();
    let body = found.as_ref().as_ref().unwrap().body.clone();
    let groups = ClusterLoadAssignment::decode(body).unwrap().endpoints;
    groups.iter().flat_map(|group| &group.lb_endpoints).map(LbEndpoint::health_status).collect()
}

#[test]
fn marked_pods_drain_for_services_that_keep_sessions_when_flags_name_the_labels() {
    let flags = [("PILOT_DRAINING_LABEL", "x/drain"), ("PILOT_PERSISTENT_SESSION_LABEL", "x/session")];
    let keeping = service("labels: {x/session: cookie}", "", "x/drain: 'yes'");
    let plain = service("", "", "x/drain: 'yes'");
    assert_eq!(told(flags, &[("Kubernetes", &keeping)]), [HealthStatus::Draining]);
    assert_eq!(told(flags, &[("Kubernetes", &plain)]), []);
    assert_eq!(told([], &[("Kubernetes", &plain)]), [HealthStatus::Healthy]);
}

#[test]
fn nodes_of_other_clusters_are_others_when_traffic_stays_on_the_node() {
    let local = service("", "internalTrafficPolicy: Local", "");
    let anywhere = service("", "", "");
    assert_eq!(told([], &[("Kubernetes", &local), ("far", &local)]).len(), 1);
    assert_eq!(told([], &[("Kubernetes", &anywhere), ("far", &anywhere)]).len(), 2);
}

#[test]
fn connections_are_passed_on_by_sni_when_the_workload_takes_mutual_tls() {
    let rule =
        "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r, namespace: ns},
        spec: {host: a, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}}";
    for (labels, expected) in [("security.istio.io/tlsMode: istio", 1), ("", 0)] {
        let objects = format!("{}\n---\n{rule}", service("", "", labels));
        let found = told_of("outbound_.80_._.a.ns.svc.cluster.local", [], &[("Kubernetes", &objects)]);
        assert_eq!(found.len(), expected, "{labels}");
    }
}
