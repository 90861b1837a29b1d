//! The sample's manifests for Kubernetes are the same shop as its mesh file.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_local::mesh_file::MeshFile;
use serde_json::Value;

fn sample() -> (MeshFile, Vec<Value>) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/storefront");
    let file = MeshFile::read(&directory).unwrap();
    let text = std::fs::read(directory.join("k8s.yaml")).unwrap();
    let limits = Limits { max_bytes: 1 << 20, max_depth: 32, max_nodes: 100_000 };
    let objects = yaml::parse_all(text, &limits).into_iter().map(|document| document.unwrap().node.to_json());
    (file, objects.collect())
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_meant = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_meant).unwrap_or_else(|| panic!("{kind} {name} is missing"))
}

#[test]
fn every_workload_of_the_sample_is_a_deployment_with_its_labels_and_command() {
    let (file, objects) = sample();
    for workload in &file.workloads {
        let deployment = find(&objects, "Deployment", &workload.name);
        let template = &deployment["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        assert_eq!(labels["app"], workload.service_name(), "{}", workload.name);
        if let Some(version) = &workload.version {
            assert_eq!(labels["version"], version.as_str(), "{}", workload.name);
            let variable = &template["spec"]["containers"][0]["env"][0];
            assert_eq!(
                (&variable["name"], &variable["value"]),
                (&"VERSION".into(), &version.as_str().into())
            );
        }
        let selector = &deployment["spec"]["selector"]["matchLabels"];
        for (key, value) in selector.as_object().unwrap() {
            assert_eq!(&labels[key], value, "{}", workload.name);
        }
        let container = &template["spec"]["containers"][0];
        let command = workload.command.as_ref().unwrap();
        assert_eq!(container["args"], Value::from(command.arguments.clone()), "{}", workload.name);
        let port = workload.port.map_or(Value::Null, Value::from);
        assert_eq!(container["ports"][0]["containerPort"], port, "{}", workload.name);
        let account = template["spec"]["serviceAccountName"].as_str().unwrap();
        assert_eq!(account, workload.service_name());
        find(&objects, "ServiceAccount", account);
        // What has no proxy here has none there.
        let is_injected = deployment["metadata"]["namespace"] == file.namespace.as_str()
            && labels["sidecar.istio.io/inject"] != "false";
        assert_eq!(is_injected, workload.sidecar && workload.external.is_none(), "{}", workload.name);
    }
}

#[test]
fn every_service_of_the_sample_has_its_port_and_protocol() {
    let (file, objects) = sample();
    for workload in file.workloads.iter().filter(|workload| workload.port.is_some()) {
        let service = find(&objects, "Service", workload.service_name());
        assert_eq!(service["spec"]["selector"]["app"], workload.service_name());
        let port = &service["spec"]["ports"][0];
        assert_eq!(port["port"], workload.port.unwrap());
        let protocol = workload.protocol.as_deref().unwrap_or("HTTP").to_lowercase();
        assert_eq!(port["appProtocol"], protocol, "{}", workload.name);
    }
    let outside = file.workloads.iter().find_map(|workload| workload.external.as_deref());
    assert_eq!(find(&objects, "ServiceEntry", "payment")["spec"]["hosts"][0], outside.unwrap());
    let gateway = find(&objects, "Service", &file.gateways[0].name);
    assert_eq!(gateway["spec"]["ports"][0]["port"], file.gateways[0].ports[0].gateway);
    assert_eq!(gateway["spec"]["selector"]["istio"], file.gateways[0].name.as_str());
}
