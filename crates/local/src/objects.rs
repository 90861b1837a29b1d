//! The objects that a plan stands for, as plain Kubernetes and Istio YAML that the control plane reads.
//!
//! | in `mesh.yaml` | object |
//! |---|---|
//! | the service of workloads with a port | Service, which selects the label `app` |
//! | a replica with a port | WorkloadEntry with its address, labels and service account |
//! | `external`, an entry of `externals` | ServiceEntry with `location: MESH_EXTERNAL` |
//! | a workload with a proxy, in loopback mode | Sidecar with a listener for each service |
//!
//! Everything else (Gateways, routes, policies) is what the user writes.

use canopus_base::protocol::Protocol;
use canopus_base::yaml;
use serde_json::{Map, Value, json};

use crate::plan::{ExternalService, Mode, Plan, Pod, PodPort, Role, Service};

/// The label by which a Sidecar finds its pod.
const POD_LABEL: &str = "local.canopus.io/pod";

/// The objects of a plan, as a stream of YAML documents.
pub fn render(plan: &Plan) -> Result<String, yaml::EncodeError> {
    let services = plan.services.iter().map(service);
    let workloads =
        plan.pods.iter().filter(|pod| pod.service.is_some() && !pod.ports.is_empty()).map(workload_entry);
    let externals = plan.externals.iter().map(service_entry);
    let sidecars = plan.pods.iter().filter(|_| plan.mode == Mode::Loopback).filter_map(sidecar);
    let documents: Result<Vec<String>, _> = services
        .chain(workloads)
        .chain(externals)
        .chain(sidecars)
        .map(|object| yaml::to_string(&object))
        .collect();
    Ok(documents?.join("---\n"))
}

/// Labels of a pod as its proxy tells them to the control plane.
pub fn proxy_labels(plan: &Plan, pod: &Pod) -> Map<String, Value> {
    let mut labels = labels(pod);
    if plan.mode == Mode::Loopback {
        labels.insert(POD_LABEL.to_owned(), pod.name.clone().into());
    }
    labels
}

fn labels(pod: &Pod) -> Map<String, Value> {
    pod.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect()
}

fn service(service: &Service) -> Value {
    let port = |port: &PodPort| {
        json!({
            "name": port.name,
            "port": port.port,
            "targetPort": port.target,
            "protocol": "TCP",
            "appProtocol": port.protocol.as_str().to_lowercase(),
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service.name, "namespace": service.namespace},
        "spec": {
            "clusterIP": service.address,
            "selector": {"app": service.name},
            "ports": service.ports.iter().map(port).collect::<Vec<_>>(),
        },
    })
}

fn workload_entry(pod: &Pod) -> Value {
    let mut labels = labels(pod);
    if pod.proxy.is_some() {
        labels.insert("security.istio.io/tlsMode".to_owned(), "istio".into());
    }
    let ports: Map<String, Value> = pod
        .ports
        .iter()
        .map(|port| (port.name.clone(), port.inbound.unwrap_or(port.target).into()))
        .collect();
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadEntry",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": labels},
        "spec": {
            "address": pod.address,
            "labels": labels,
            "ports": ports,
            "serviceAccount": pod.service_account,
        },
    })
}

fn service_entry(service: &ExternalService) -> Value {
    let port = |port: &PodPort| {
        json!({
            "number": port.port,
            "targetPort": port.target,
            "name": port.name,
            "protocol": port.protocol.as_str(),
        })
    };
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "ServiceEntry",
        "metadata": {"name": service.name, "namespace": service.namespace},
        "spec": {
            "hosts": [service.host],
            "addresses": [service.address],
            "location": "MESH_EXTERNAL",
            "resolution": "STATIC",
            "ports": service.ports.iter().map(port).collect::<Vec<_>>(),
            "endpoints": [{"address": service.endpoint}],
        },
    })
}

/// The listeners of a pod whose traffic is not captured.
fn sidecar(pod: &Pod) -> Option<Value> {
    let proxy = pod.proxy.as_ref().filter(|proxy| proxy.role == Role::Sidecar)?;
    let listener = |number: u16, protocol: Protocol| json!({"number": number, "protocol": protocol.as_str(), "name": format!("{}-{number}", protocol.as_str().to_lowercase())});
    let ingress = pod.ports.iter().filter_map(|port| {
        Some(json!({
            "bind": pod.address,
            "captureMode": "NONE",
            "port": listener(port.inbound?, port.protocol),
            "defaultEndpoint": format!("127.0.0.1:{}", port.target),
        }))
    });
    let egress = proxy.outbound.iter().map(|outbound| {
        json!({
            "bind": pod.address,
            "captureMode": "NONE",
            "port": listener(outbound.port, outbound.protocol),
            "hosts": [format!("{}/{}", outbound.namespace, outbound.host)],
        })
    });
    let mut spec = json!({
        "workloadSelector": {"labels": {POD_LABEL: pod.name}},
        "egress": egress.collect::<Vec<_>>(),
    });
    let ingress: Vec<Value> = ingress.collect();
    if !ingress.is_empty() {
        spec["ingress"] = ingress.into();
    }
    Some(json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mesh_file::MeshFile;

    const FILE: &str = "
name: shop
namespace: shop
workloads:
- {name: cart, version: v1, command: cart, port: 9000, protocol: GRPC}
- {name: pay, command: pay, port: 8080, external: pay.example.com}
";

    fn rendered(mode: Mode) -> String {
        let file = MeshFile::parse(FILE.as_bytes()).unwrap();
        let mut next = 20000;
        let plan = Plan::new(&file, Path::new("/srv/shop"), mode, &mut || {
            next += 1;
            next
        });
        render(&plan).unwrap()
    }

    #[test]
    fn workload_becomes_a_service_and_a_workload_entry() {
        let expected = "\
apiVersion: v1
kind: Service
metadata:
  name: cart
  namespace: shop
spec:
  clusterIP: 10.96.0.10
  ports:
  - appProtocol: grpc
    name: grpc-9000
    port: 9000
    protocol: TCP
    targetPort: 9000
  selector:
    app: cart
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata:
  labels:
    app: cart
    security.istio.io/tlsMode: istio
    version: v1
  name: cart
  namespace: shop
spec:
  address: 10.78.0.2
  labels:
    app: cart
    security.istio.io/tlsMode: istio
    version: v1
  ports:
    grpc-9000: 9000
  serviceAccount: cart
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: pay
  namespace: shop
spec:
  addresses:
  - 10.97.0.10
  endpoints:
  - address: 10.78.0.3
  hosts:
  - pay.example.com
  location: MESH_EXTERNAL
  ports:
  - name: http-8080
    number: 8080
    protocol: HTTP
    targetPort: 8080
  resolution: STATIC
";
        assert_eq!(rendered(Mode::Namespaces), expected);
    }

    #[test]
    fn loopback_mode_has_a_sidecar_with_a_listener_for_each_service() {
        let text = rendered(Mode::Loopback);
        let sidecar = text.split("---\n").find(|document| document.contains("kind: Sidecar")).unwrap();
        assert!(
            sidecar.contains("shop/cart.shop.svc.cluster.local") && sidecar.contains("shop/pay.example.com"),
            "{sidecar}"
        );
        assert!(sidecar.contains("defaultEndpoint: 127.0.0.1:9000"), "{sidecar}");
        // A proxy listens for a service where the service itself is.
        let service = text.split("---\n").find(|document| document.contains("kind: Service\n")).unwrap();
        let port = service.lines().find_map(|line| line.trim().strip_prefix("port: ")).unwrap();
        assert!(
            sidecar.contains(&format!("number: {port}\n")) && sidecar.contains("bind: 127.78.0.2\n"),
            "{text}"
        );
    }
}
