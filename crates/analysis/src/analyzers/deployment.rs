//! Deployments: services that disagree about them, and applications that run as the proxy's user.

use std::collections::BTreeMap;

use canopus_api::kube::{Deployment, Service, ServicePort};
use canopus_api::{Kind, labels};
use canopus_base::tree::Node;

use super::in_mesh;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// The user that proxies run as, whose traffic is not captured.
const PROXY_USER: i64 = 1337;

pub(crate) fn services(world: &World, findings: &mut Findings) {
    for (resource, deployment) in world.each::<Deployment>() {
        let template = &deployment.spec.template;
        let (labels, annotations) = (&template.metadata.labels, &template.metadata.annotations);
        let is_waypoint = resource.labels().get(&labels::GATEWAY_MANAGED) == Some("istio.io-mesh-controller");
        let containers = template.spec.containers.iter();
        if is_waypoint || !in_mesh::has_proxy(world, resource.namespace(), labels, annotations, containers) {
            continue;
        }
        let matching = world.each::<Service>().filter(|(service, spec)| {
            service.namespace() == resource.namespace() && spec.spec.selector.selects(labels)
        });
        let ports: Vec<(String, &ServicePort)> = matching
            .flat_map(|(service, spec)| {
                spec.spec.ports.iter().map(move |port| (service.full_name().into_owned(), port))
            })
            .collect();
        different_protocols(resource, &ports, findings);
        different_ports(resource, &ports, findings);
    }
}

/// Services of one port that differ in its protocol.
fn different_protocols(deployment: &Resource, ports: &[(String, &ServicePort)], findings: &mut Findings) {
    let mut by_port: BTreeMap<u16, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (service, port) in ports {
        let protocols = by_port.entry(port.port).or_default();
        protocols.entry(port.protocol.to_string()).or_default().push(service.clone());
    }
    for (port, protocols) in by_port.into_iter().filter(|(_, protocols)| protocols.len() > 1) {
        let mut services: Vec<String> = protocols.into_values().flatten().collect();
        services.sort();
        let parameters = [deployment.name().into(), (&port).into(), services.into()];
        let kind = &catalogue::DEPLOYMENT_ASSOCIATED_TO_MULTIPLE_SERVICES;
        findings.add_at(kind, deployment, &["metadata", "name"], &parameters);
    }
}

/// Services that lead to one port of the pods from different ports of their own.
fn different_ports(deployment: &Resource, ports: &[(String, &ServicePort)], findings: &mut Findings) {
    let mut by_target: BTreeMap<String, BTreeMap<u16, String>> = BTreeMap::new();
    for (service, port) in ports {
        let target = port.target_port.as_ref().map(ToString::to_string).unwrap_or_default();
        let target = if target.is_empty() || target == "0" { port.port.to_string() } else { target };
        by_target.entry(target).or_default().insert(port.port, service.clone());
    }
    for (target, ports) in by_target.into_iter().filter(|(_, ports)| ports.len() > 1) {
        let numbers: Vec<String> = ports.keys().map(ToString::to_string).collect();
        let mut services: Vec<String> = ports.into_values().collect();
        services.sort();
        let parameters = [deployment.name().into(), services.into(), target.into(), numbers.into()];
        findings.add_at(
            &catalogue::DEPLOYMENT_CONFLICTING_PORTS,
            deployment,
            &["metadata", "name"],
            &parameters,
        );
    }
}

pub(crate) fn application_user(world: &World, findings: &mut Findings) {
    for pod in world.objects_of_kind(Kind::Pod) {
        check_user(pod, &["spec"], findings);
    }
    for deployment in world.objects_of_kind(Kind::Deployment) {
        check_user(deployment, &["spec", "template", "spec"], findings);
    }
}

fn check_user(resource: &Resource, spec: &[&str], findings: &mut Findings) {
    let Some(spec) = resource.at(spec).filter(|_| !in_mesh::is_control_plane(resource)) else { return };
    let containers = spec.get("containers").and_then(Node::as_list).unwrap_or_default();
    let applications = containers.iter().filter(|container| {
        let name = container.get("name").and_then(Node::as_str).unwrap_or_default();
        name != in_mesh::PROXY && name != "istio-operator"
    });
    for _ in std::iter::once(spec).chain(applications).filter(|part| runs_as_proxy(part)) {
        findings.add(&catalogue::INVALID_APPLICATION_UID, resource, &[]);
    }
}

fn runs_as_proxy(part: &Node) -> bool {
    part.pointer("/securityContext/runAsUser").and_then(Node::as_i64) == Some(PROXY_USER)
}
