//! Destinations of VirtualServices: hosts, ports and subsets that do not exist.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::istio::{DestinationRule, VirtualService};
use canopus_proto::istio::networking::v1alpha3::{Destination, VirtualService as Spec};

use super::host::{Host, Hosts, service_name};
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// A destination and the path of its host.
struct Written<'a> {
    destination: &'a Destination,
    is_mirror: bool,
    path: Vec<String>,
}

/// The destinations of all routes and mirrors.
fn written(spec: &Spec) -> Vec<Written<'_>> {
    let mut found = Vec::new();
    let route = |protocol: &str, rule: usize, route: usize| {
        let (rule, route) = (rule.to_string(), route.to_string());
        ["spec", protocol, &rule, "route", &route, "destination", "host"].map(str::to_owned).to_vec()
    };
    for (i, rule) in spec.tcp.iter().enumerate() {
        for (j, to) in rule.route.iter().enumerate() {
            found.push((to.destination.as_ref(), false, route("tcp", i, j)));
        }
    }
    for (i, rule) in spec.tls.iter().enumerate() {
        for (j, to) in rule.route.iter().enumerate() {
            found.push((to.destination.as_ref(), false, route("tls", i, j)));
        }
    }
    for (i, rule) in spec.http.iter().enumerate() {
        for (j, to) in rule.route.iter().enumerate() {
            found.push((to.destination.as_ref(), false, route("http", i, j)));
        }
    }
    for (i, rule) in spec.http.iter().enumerate() {
        let i = i.to_string();
        let mirror = ["spec", "http", &i, "mirror", "host"].map(str::to_owned).to_vec();
        found.extend(rule.mirror.iter().map(|to| (Some(to), true, mirror.clone())));
        for (j, to) in rule.mirrors.iter().enumerate() {
            let j = j.to_string();
            let path = ["spec", "http", &i, "mirrors", &j, "host"].map(str::to_owned).to_vec();
            found.push((to.destination.as_ref(), true, path));
        }
    }
    let known = found.into_iter();
    known
        .filter_map(|(destination, is_mirror, path)| {
            Some(Written { destination: destination?, is_mirror, path })
        })
        .collect()
}

impl Written<'_> {
    fn path(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

/// Hosts and ports that do not exist, and routes of which gateways use other subsets than intended.
pub(crate) fn hosts(world: &World, findings: &mut Findings) {
    let hosts = Hosts::collect(world);
    let subset_routes = subset_routes(world);
    for (resource, service) in world.each::<VirtualService>() {
        for to in written(&service.spec) {
            let host = &to.destination.host;
            match hosts.find(resource.namespace(), &service.spec.export_to, host) {
                Some(found) => check_port(resource, &to, found, findings),
                None => {
                    let kind = if to.is_mirror { "mirror host" } else { "host" };
                    let parameters = [kind.into(), host.into()];
                    let message = &catalogue::REFERENCED_RESOURCE_NOT_FOUND;
                    findings.add_at(message, resource, &to.path(), &parameters);
                }
            }
        }
        check_ingress(resource, &service.spec, &subset_routes, findings);
    }
}

fn check_port(resource: &Resource, to: &Written<'_>, found: &Host, findings: &mut Findings) {
    let host = &to.destination.host;
    match &to.destination.port {
        None if found.ports.len() > 1 => {
            let ports: Vec<String> = found.ports.iter().map(ToString::to_string).collect();
            let kind = &catalogue::VIRTUAL_SERVICE_DESTINATION_PORT_SELECTOR_REQUIRED;
            findings.add_at(kind, resource, &to.path(), &[host.into(), ports.into()]);
        }
        Some(port) if !found.ports.contains(&port.number) => {
            let wanted = format!("{host}:{}", port.number);
            let parameters = ["host:port".into(), wanted.into()];
            findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &to.path(), &parameters);
        }
        _ => {}
    }
}

/// VirtualServices that route their own hosts to subsets, with those hosts.
fn subset_routes(world: &World) -> BTreeMap<String, Vec<&str>> {
    let mut routes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (resource, service) in world.each::<VirtualService>() {
        let destinations = service.spec.http.iter().flat_map(|rule| &rule.route);
        let destinations = destinations.filter_map(|route| route.destination.as_ref());
        for destination in destinations.filter(|destination| !destination.subset.is_empty()) {
            let own = service.spec.hosts.iter().filter(|host| **host == destination.host);
            routes.entry(resource.full_name().into_owned()).or_default().extend(own.map(String::as_str));
        }
    }
    routes
}

/// Routes of a gateway to a host for which another VirtualService chooses subsets: that one counts inside the mesh only.
fn check_ingress(
    resource: &Resource,
    spec: &Spec,
    subset_routes: &BTreeMap<String, Vec<&str>>,
    findings: &mut Findings,
) {
    if spec.gateways.is_empty() {
        return;
    }
    let destinations = spec.http.iter().flat_map(|rule| &rule.route);
    let destinations = destinations.filter_map(|route| route.destination.as_ref());
    for destination in destinations.filter(|destination| destination.subset.is_empty()) {
        for (service, hosts) in subset_routes {
            for _ in hosts.iter().filter(|host| **host == destination.host) {
                let parameters = [service.into(), (&resource.full_name()).into()];
                findings.add(&catalogue::INGRESS_ROUTE_RULES_NOT_AFFECTED, resource, &parameters);
            }
        }
    }
}

/// Subsets that no DestinationRule defines.
pub(crate) fn subsets(world: &World, findings: &mut Findings) {
    let mut known: BTreeSet<((String, String), &str)> = BTreeSet::new();
    for (resource, rule) in world.each::<DestinationRule>() {
        let service = service_name(resource.namespace(), &rule.spec.host);
        known.extend(rule.spec.subsets.iter().map(|subset| (service.clone(), subset.name.as_str())));
    }
    for (resource, service) in world.each::<VirtualService>() {
        for to in written(&service.spec) {
            let Destination { host, subset, .. } = to.destination;
            let exists = known.contains(&(service_name(resource.namespace(), host), subset.as_str()));
            if subset.is_empty() || exists {
                continue;
            }
            let kind = if to.is_mirror {
                "mirror+subset in destinationrule"
            } else {
                "host+subset in destinationrule"
            };
            let parameters = [kind.into(), format!("{host}+{subset}").into()];
            findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &to.path(), &parameters);
        }
    }
}
