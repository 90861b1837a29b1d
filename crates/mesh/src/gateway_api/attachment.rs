//! Attaching routes to parents.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::gateway_api::{GROUP, Gateway, GatewayClass, ParentReference, RouteGroupKind};
use canopus_api::istio::ServiceEntry;
use canopus_api::kube::Service;
use canopus_api::{Kind, Meta, ObjectKey, labels};
use canopus_base::host;
use canopus_base::labels::Labels;
use canopus_runtime::flags::PILOT_GATEWAY_API_CONTROLLER_NAME;

use super::class::MESH_CONTROLLER;
use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};
use super::gateway::{self, RouteParent};
use crate::reference::MESH;
use crate::reference::gateway_api::parent_key;

/// The label value that opts out of waypoints.
const NO_WAYPOINT: &str = "none";
const NO_LABEL: &str = "istio.io/use-waypoint label missing from parent and parent namespace; in ambient mode, route \
                        will not be respected";
const NO_PARENT: &str = "parent not found";

/// A listener, or the mesh, that a route refers to as a parent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParentLink {
    /// The derived Gateway of the listener, or `mesh`.
    pub(super) internal_name: Arc<str>,
    /// The parent object.
    pub(super) key: ObjectKey,
    /// The name of the listener.
    pub(super) section: Box<str>,
    /// The reference in the route.
    pub(super) reference: ParentReference,
    /// The host of the listener; empty for all.
    pub(super) hostname: Box<str>,
    /// The hosts of other listeners of the same port and protocol.
    pub(super) other_hostnames: BTreeSet<Box<str>>,
    /// Why the route may not attach.
    pub(super) denied: Option<Fault>,
    /// Why waypoints ignore the route.
    pub(super) no_waypoint: Option<&'static str>,
}

impl ParentLink {
    /// Whether the parent is the mesh rather than a gateway.
    pub(super) fn is_mesh(&self) -> bool {
        &*self.internal_name == MESH
    }

    /// Whether this listener receives requests for a host of the route, rather than a more specific listener of the same port.
    pub(super) fn receives(&self, route_host: &str) -> bool {
        let own = &*self.hostname;
        if !own.is_empty() && !host::is_wildcard(own) {
            return true;
        }
        if !own.is_empty() && !host::matches(route_host, own) {
            return false;
        }
        let mut narrower = self.other_hostnames.iter().filter(|other| own.len() <= other.len());
        !narrower.any(|other| host::subset_of(route_host, other))
    }
}

/// The fields of a route that decide about attachment.
pub(super) struct AttachingRoute<'a> {
    pub(super) kind: Kind,
    pub(super) namespace: &'a str,
    pub(super) parent_refs: &'a [ParentReference],
    pub(super) hostnames: &'a [Box<str>],
}

/// Resolves the parents of a route, sorted by the text of the references.
pub(super) fn links(cluster: &ClusterObjects<'_>, route: &AttachingRoute<'_>) -> Vec<ParentLink> {
    let mut links = Vec::new();
    for reference in route.parent_refs {
        let Some(key) = parent_key(reference, route.namespace) else { continue };
        let parents = match key.kind {
            Kind::Service | Kind::ServiceEntry if has_foreign_waypoint(cluster, &key) => continue,
            Kind::Service | Kind::ServiceEntry => vec![mesh()],
            Kind::KubernetesGateway | Kind::ListenerSet => gateway::parents(cluster, &key),
            _ => continue,
        };
        for (position, parent) in parents.iter().enumerate() {
            let beside = parents.iter().enumerate().filter(|(other, beside)| {
                *other != position && beside.port == parent.port && beside.protocol == parent.protocol
            });
            let mut other_hostnames: BTreeSet<_> = beside.map(|(_, other)| other.hostname.clone()).collect();
            other_hostnames.remove(&parent.hostname);
            let (denied, no_waypoint) = admit(cluster, route, parent, &key, reference);
            links.push(ParentLink {
                internal_name: parent.internal_name.clone(),
                key: key.clone(),
                section: parent.section.clone(),
                reference: reference.clone(),
                hostname: parent.hostname.clone(),
                other_hostnames,
                denied,
                no_waypoint,
            });
        }
    }
    links.sort_by_key(|link| reference_text(&link.reference, route.namespace));
    links
}

/// The text of a reference, to sort by.
pub(super) fn reference_text(reference: &ParentReference, namespace: &str) -> String {
    format!(
        "{}/{}/{}/{}/{}.{}",
        reference.group,
        reference.kind,
        reference.name,
        reference.section_name.as_deref().unwrap_or_default(),
        reference.port.unwrap_or_default(),
        reference.namespace.as_deref().unwrap_or(namespace),
    )
}

/// The parent of routes that are attached to services.
fn mesh() -> RouteParent {
    let kinds = ["HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"];
    let kind = |kind: &str| RouteGroupKind { group: GROUP.into(), kind: kind.into() };
    RouteParent {
        internal_name: MESH.into(),
        kinds: kinds.map(kind).to_vec(),
        hosts: Vec::new(),
        hostname: Box::default(),
        section: Box::default(),
        port: 0,
        protocol: Box::default(),
    }
}

/// Why a route may not attach to a parent, and why waypoints ignore it.
fn admit(
    cluster: &ClusterObjects<'_>,
    route: &AttachingRoute<'_>,
    parent: &RouteParent,
    key: &ObjectKey,
    reference: &ParentReference,
) -> (Option<Fault>, Option<&'static str>) {
    match key.kind {
        Kind::Service | Kind::ServiceEntry => {
            let Some(labels) = object_labels(cluster, key) else {
                let what = if key.kind == Kind::Service { "service" } else { "service entry" };
                let message = format!("parent {what}: {:?} not found", key.name);
                return (Some(Fault::new(reason::NO_MATCHING_PARENT, message)), Some(NO_PARENT));
            };
            let of_namespace = || cluster.namespace_labels(&key.namespace);
            if !names_waypoint(&labels) && of_namespace().is_some_and(|labels| !names_waypoint(&labels)) {
                return (None, Some(NO_LABEL));
            }
        }
        _ => {
            if let Some(fault) = mismatch(route, parent, reference) {
                return (Some(fault), None);
            }
        }
    }
    let kind = route.kind.info().kind;
    if parent.kinds.iter().any(|allowed| &*allowed.kind == kind && &*allowed.group == GROUP) {
        return (None, None);
    }
    let message = format!("kind {GROUP}/{}/{kind} is not allowed", route.kind.info().versions[0]);
    (Some(Fault::new(reason::NOT_ALLOWED_BY_LISTENERS, message)), None)
}

/// Why a listener does not match the reference, or shares no host with the route.
fn mismatch(route: &AttachingRoute<'_>, parent: &RouteParent, reference: &ParentReference) -> Option<Fault> {
    if let Some(port) = reference.port.filter(|port| *port != 0 && *port != parent.port) {
        return Some(Fault::new(reason::NO_MATCHING_PARENT, format!("port {port} not found")));
    }
    let section = reference.section_name.as_deref().filter(|section| !section.is_empty());
    if let Some(section) = section.filter(|section| **section != *parent.section) {
        return Some(Fault::new(reason::NO_MATCHING_PARENT, format!("sectionName {section:?} not found")));
    }
    let any: [Box<str>; 1] = ["*".into()];
    let hostnames = if route.hostnames.is_empty() { &any } else { route.hostnames };
    let mut shares_host = false;
    for hostname in hostnames {
        for allowed in &parent.hosts {
            let (namespace, name) = allowed.split_once('/').unwrap_or(("*", allowed));
            let shared = host::matches(name, hostname);
            shares_host |= shared;
            if shared && (namespace == "*" || namespace == route.namespace) {
                return None;
            }
        }
    }
    if parent.hosts.is_empty() {
        return None;
    }
    let hostname = &parent.hostname;
    Some(if shares_host {
        let message = format!(
            "hostnames matched parent hostname {hostname:?}, but namespace {:?} is not allowed by the parent",
            route.namespace
        );
        Fault::new(reason::NOT_ALLOWED_BY_LISTENERS, message)
    } else {
        let message = format!("no hostnames matched parent hostname {hostname:?}");
        Fault::new(reason::NO_MATCHING_LISTENER_HOSTNAME, message)
    })
}

fn object_labels(cluster: &ClusterObjects<'_>, key: &ObjectKey) -> Option<Labels> {
    let of = |meta: &Meta| meta.labels.clone();
    match key.kind {
        Kind::Service => {
            cluster.object::<Service>(&key.namespace, &key.name).map(|service| of(&service.meta))
        }
        Kind::ServiceEntry => {
            cluster.object::<ServiceEntry>(&key.namespace, &key.name).map(|entry| of(&entry.meta))
        }
        _ => None,
    }
}

fn names_waypoint(labels: &Labels) -> bool {
    let name = labels.get(labels::USE_WAYPOINT.name);
    name.is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case(NO_WAYPOINT))
}

/// Whether another controller deploys the waypoint of a service and handles its routes.
fn has_foreign_waypoint(cluster: &ClusterObjects<'_>, key: &ObjectKey) -> bool {
    let Some(mut labels) = object_labels(cluster, key) else { return false };
    if !labels.contains_key(labels::USE_WAYPOINT.name) {
        let Some(of_namespace) = cluster.namespace_labels(&key.namespace) else { return false };
        labels = of_namespace;
    }
    if !names_waypoint(&labels) {
        return false;
    }
    let name = labels.get(labels::USE_WAYPOINT.name).unwrap_or_default();
    let namespace = labels.get(labels::USE_WAYPOINT_NAMESPACE.name).filter(|namespace| !namespace.is_empty());
    let Some(waypoint) = cluster.object::<Gateway>(namespace.unwrap_or(&key.namespace), name) else {
        return false;
    };
    let Some(class) = cluster.object::<GatewayClass>("", &waypoint.spec.gateway_class_name) else {
        return false;
    };
    let controller = &*class.spec.controller_name;
    controller != MESH_CONTROLLER
        && controller != cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME)
}

#[cfg(test)]
mod tests;
