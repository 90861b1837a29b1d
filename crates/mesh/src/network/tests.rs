use canopus_api::mesh_config::read_networks;

use super::NetworkGateways;
use crate::testing;
use crate::world::MeshSettings;

const NODES: &str = "
apiVersion: v1
kind: Node
metadata: {name: one, labels: {role: edge}}
status: {addresses: [{type: InternalIP, address: 172.18.0.2}, {type: ExternalIP, address: 198.51.100.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: two}
status: {addresses: [{type: ExternalIP, address: 198.51.100.2}]}
---
apiVersion: v1
kind: Node
metadata: {name: three, labels: {role: edge}}
status: {addresses: [{type: InternalIP, address: 172.18.0.3}]}
---
";

/// Network, address and ports of every gateway.
fn gateways(settings: MeshSettings, objects: &str) -> Vec<String> {
    let engine = testing::world(settings, objects);
    let found = engine.snapshot().get::<NetworkGateways>(&()).unwrap();
    let shown = |found: &super::NetworkGateway| {
        format!("{} {} {} {}", found.network, found.address, found.port, found.hbone_port)
    };
    found.iter().map(shown).collect()
}

fn node_port_gateway(selector: &str) -> String {
    format!(
        "{NODES}
apiVersion: v1
kind: Service
metadata:
  {{name: ew, namespace: ns, labels: {{topology.istio.io/network: far}}, annotations: {{traffic.istio.io/nodeSelector: '{selector}'}}}}
spec: {{type: NodePort, clusterIP: 10.0.0.1, ports: [{{name: tls, port: 15443, nodePort: 32000}}]}}
"
    )
}

#[test]
fn nodes_are_the_gateways_when_a_node_port_service_chooses_them() {
    let found = gateways(MeshSettings::default(), &node_port_gateway(r#"{"role": "edge"}"#));
    assert_eq!(found, ["far 198.51.100.1 32000 0"]);
    let found = gateways(MeshSettings::default(), &node_port_gateway("{}"));
    assert_eq!(found, ["far 198.51.100.1 32000 0", "far 198.51.100.2 32000 0"]);
}

#[test]
fn gateway_of_the_gateway_api_counts_when_a_listener_goes_by_sni() {
    let gateway = |class: &str| {
        format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: ew, namespace: ns, labels: {{topology.istio.io/network: far}}}}
spec:
  gatewayClassName: {class}
  addresses: [{{value: 203.0.113.1}}, {{type: example.com/named, value: x}}]
  listeners:
  - {{name: tls, port: 15443, protocol: TLS, tls: {{mode: Passthrough}}}}
  - {{name: other, port: 15444, protocol: TLS, tls: {{mode: Passthrough}}}}
  - {{name: hbone, port: 15008, protocol: HBONE}}
"
        )
    };
    for class in ["istio", "istio-remote"] {
        let found = gateways(MeshSettings::default(), &gateway(class));
        assert_eq!(found, ["far 203.0.113.1 15008 15008", "far 203.0.113.1 15443 0"]);
    }
}

#[test]
fn service_is_a_gateway_by_name_when_its_cluster_is_in_the_network() {
    let service = "
apiVersion: v1
kind: Service
metadata: {name: ew, namespace: ns}
spec: {type: LoadBalancer, clusterIP: 10.0.0.1, ports: [{name: tls, port: 443}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}
";
    for (registry, expected) in
        [(&*MeshSettings::default().cluster, &["far 203.0.113.1 443 0"][..]), ("other", &[])]
    {
        let networks = format!(
            "networks: {{far: {{endpoints: [{{fromRegistry: {registry}}}], \
             gateways: [{{registryServiceName: ew.ns.svc.cluster.local, port: 443}}]}}}}"
        );
        let networks = read_networks(&networks).unwrap().value;
        let settings = MeshSettings { networks, ..MeshSettings::default() };
        assert_eq!(gateways(settings, service), expected, "{registry}");
    }
}
