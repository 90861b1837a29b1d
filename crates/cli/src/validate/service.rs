//! What istioctl says about Services and Deployments.

use canopus_api::decode::Identity;
use canopus_base::labels::{Labels, canonical};
use canopus_base::protocol::Protocol;
use canopus_base::tree::Node;

use super::check::{Finding, Severity};

const REQUIREMENTS: &str = "https://istio.io/v1.30/docs/ops/deployment/requirements/";
const PROTOCOL_SELECTION: &str =
    "https://istio.io/v1.30/docs/ops/configuration/traffic-management/protocol-selection/";

/// Ports whose protocol cannot be told from `appProtocol` or name.
pub(super) fn check(node: &Node, identity: &Identity, istio_namespace: &str) -> Vec<Finding> {
    if *identity.namespace == *istio_namespace {
        return Vec::new();
    }
    let ports = node.pointer("/spec/ports").and_then(Node::as_list).unwrap_or_default();
    ports.iter().enumerate().filter_map(|(index, port)| check_port(port, index, identity)).collect()
}

fn check_port(port: &Node, index: usize, identity: &Identity) -> Option<Finding> {
    let text = |field| port.get(field).and_then(Node::as_str);
    if text("protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("UDP")) {
        return None;
    }
    let service = format!("{}/{}/:", identity.name, identity.namespace);
    let (message, field) = match (text("appProtocol"), text("name")) {
        (Some(protocol), _) if !Protocol::parse(protocol).is_unsupported() => return None,
        (Some(_), _) => (
            format!(
                "service {service:?} doesn't follow Istio protocol selection. This is not recommended, See \
                 {PROTOCOL_SELECTION}"
            ),
            "appProtocol",
        ),
        (None, None) => (
            format!("service {service:?} has an unnamed port. This is not recommended, See {REQUIREMENTS}"),
            "",
        ),
        (None, Some(name)) if follows_convention(name) => return None,
        (None, Some(name)) => (
            format!(
                "service {service:?} port {name:?} does not follow the Istio naming convention. See {REQUIREMENTS}"
            ),
            "name",
        ),
    };
    let at = port.get(field).map_or(port.at, |value| value.at);
    let path = format!("spec.ports[{index}]{}{field}", if field.is_empty() { "" } else { "." });
    let remedy = Some("name the port <protocol>[-<suffix>], such as http or grpc-api".to_owned());
    Some(Finding { path, remedy, ..Finding::error(identity.clone(), at, message) })
}

fn follows_convention(name: &str) -> bool {
    let prefix = name.split_once('-').map_or(name, |(prefix, _)| prefix);
    !Protocol::parse(prefix).is_unsupported()
}

/// Pods that telemetry will not be able to name.
pub(super) fn deployment(node: &Node, identity: &Identity, istio_namespace: &str) -> Option<Finding> {
    if *identity.namespace == *istio_namespace {
        return None;
    }
    let template = node.pointer("/spec/template/metadata/labels");
    let found: Labels = template
        .and_then(Node::as_map)
        .into_iter()
        .flat_map(|map| map.iter())
        .filter_map(|entry| Some((entry.key.to_string(), entry.node.as_str()?.to_owned())))
        .collect();
    if canonical::name(&found).is_some() && canonical::revision(&found).is_some() {
        return None;
    }
    let shown: Vec<_> = found.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
    let deployment = format!("{}/{}:", identity.name, identity.namespace);
    let message = format!(
        "deployment {deployment:?} may not provide Istio metrics and telemetry labels: map[{}]. See {REQUIREMENTS}",
        shown.join(" ")
    );
    let at = template.map_or(node.at, |labels| labels.at);
    let path = "spec.template.metadata.labels".to_owned();
    let remedy = Some("label the pods with app and version".to_owned());
    Some(Finding { severity: Severity::Note, path, remedy, ..Finding::error(identity.clone(), at, message) })
}
