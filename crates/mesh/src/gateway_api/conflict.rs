//! Conflicting listeners of one gateway.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::gateway_api::{FromNamespaces, Gateway, Listener, ListenerSet};
use canopus_api::{Kind, ObjectKey};

use super::cluster_objects::ClusterObjects;
use super::fault::reason;
use super::listener::entry_port;

/// The conflicting listeners by kind, namespace and name of their object and by listener name, with the reason.
pub(super) type Conflicts = BTreeMap<(Kind, Box<str>, Box<str>, Box<str>), &'static str>;

/// Finds the listeners of a gateway and its ListenerSets that conflict with earlier ones.
///
/// The gateway's own come first, then those of ListenerSets by age. A listener that lost does not conflict with later ones.
pub(super) fn conflicts(cluster: &ClusterObjects<'_>, gateway: &Gateway) -> Conflicts {
    let own =
        gateway.spec.listeners.iter().map(|listener| (Kind::KubernetesGateway, &gateway.meta, listener));
    let sets = accepted_listener_sets(cluster, gateway);
    let of_sets = sets
        .iter()
        .flat_map(|set| set.spec.listeners.iter().map(|listener| (Kind::ListenerSet, &set.meta, listener)));
    let mut kept: Vec<(u16, &Listener)> = Vec::new();
    let mut lost = Conflicts::new();
    for (kind, meta, listener) in own.chain(of_sets) {
        let port = entry_port(listener).unwrap_or(listener.port);
        match kept.iter().find(|(other, older)| *other == port && !are_distinct(listener, older)) {
            Some((_, older)) => {
                let owner = (kind, meta.namespace.clone(), meta.name.clone(), listener.name.clone());
                lost.insert(owner, why(listener, older));
            }
            None => kept.push((port, listener)),
        }
    }
    lost
}

/// The ListenerSets that a gateway allows, oldest first.
pub(super) fn accepted_listener_sets(
    cluster: &ClusterObjects<'_>,
    gateway: &Gateway,
) -> Vec<Arc<ListenerSet>> {
    let key = ObjectKey::new(Kind::KubernetesGateway, &gateway.meta.namespace, &gateway.meta.name);
    let sets = cluster.referrers(&key).into_iter().filter(|origin| origin.key.kind == Kind::ListenerSet);
    let mut sets: Vec<_> = sets
        .filter_map(|origin| cluster.object::<ListenerSet>(origin.namespace(), origin.name()))
        .filter(|set| allows(cluster, gateway, &set.meta.namespace))
        .collect();
    sets.sort_by(|a, b| {
        (a.meta.creation_timestamp, &a.meta.namespace, &a.meta.name).cmp(&(
            b.meta.creation_timestamp,
            &b.meta.namespace,
            &b.meta.name,
        ))
    });
    sets
}

/// Whether a gateway allows ListenerSets of a namespace.
pub(super) fn allows(cluster: &ClusterObjects<'_>, gateway: &Gateway, namespace: &str) -> bool {
    let Some(allowed) = &gateway.spec.allowed_listeners else { return false };
    match &allowed.namespaces.from {
        FromNamespaces::All => true,
        FromNamespaces::Same => *gateway.meta.namespace == *namespace,
        FromNamespaces::Selector => {
            let selector = allowed.namespaces.selector.as_ref().and_then(|selector| selector.compile().ok());
            let labels = cluster.namespace_labels(namespace);
            selector.zip(labels).is_some_and(|(selector, labels)| selector.matches(&labels))
        }
        FromNamespaces::None | FromNamespaces::Other(_) => false,
    }
}

fn is_connection(listener: &Listener) -> bool {
    matches!(&*listener.protocol, "TCP" | "UDP")
}

fn has_hosts(listener: &Listener) -> bool {
    matches!(&*listener.protocol, "HTTP" | "HTTPS" | "TLS")
}

fn host(listener: &Listener) -> &str {
    listener.hostname.as_deref().filter(|host| !host.is_empty()).unwrap_or("*")
}

/// Whether two listeners of a port can coexist.
fn are_distinct(a: &Listener, b: &Listener) -> bool {
    match ((is_connection(a), has_hosts(a)), (is_connection(b), has_hosts(b))) {
        ((true, _), (true, _) | (_, true)) | ((_, true), (true, _)) => false,
        ((_, true), (_, true)) => host(a) != host(b),
        _ => a.protocol != b.protocol,
    }
}

fn why(listener: &Listener, older: &Listener) -> &'static str {
    let both_connections = is_connection(listener) && is_connection(older);
    if both_connections || listener.protocol != older.protocol {
        reason::PROTOCOL_CONFLICT
    } else {
        reason::HOSTNAME_CONFLICT
    }
}
