//! ServiceEntries: TCP without addresses, and conflicting protocols.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::ServiceEntry;

use super::host::{ALL_NAMESPACES, scopes};
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

pub(crate) fn addresses(world: &World, findings: &mut Findings) {
    let metadata = world.mesh_config.default_config.as_ref().map(|config| &config.proxy_metadata);
    let is_set = |key| metadata.and_then(|metadata| metadata.get(key)).is_some_and(|value| value == "true");
    let allocates = is_set("ISTIO_META_DNS_CAPTURE")
        && (is_set("ISTIO_META_DNS_AUTO_ALLOCATE") || is_set("PILOT_ENABLE_IP_AUTOALLOCATE"));
    if allocates {
        return;
    }
    for (resource, entry) in world.each::<ServiceEntry>() {
        if !entry.spec.addresses.is_empty() || !entry.status.addresses.is_empty() {
            continue;
        }
        for (index, port) in entry.spec.ports.iter().enumerate() {
            if port.protocol.is_empty() || port.protocol.eq_ignore_ascii_case("TCP") {
                let index = index.to_string();
                let path = ["spec", "ports", &index, "name"];
                findings.add_at(&catalogue::SERVICE_ENTRY_ADDRESSES_REQUIRED, resource, &path, &[]);
            }
        }
    }
}

/// Who defines a port of a host with which protocol.
type Definitions<'a> = Vec<(&'a Arc<Resource>, String)>;

pub(crate) fn protocols(world: &World, findings: &mut Findings) {
    let mut index: BTreeMap<(String, &str, u32), Definitions<'_>> = BTreeMap::new();
    for (resource, entry) in world.each::<ServiceEntry>() {
        for scope in scopes(&entry.spec.export_to, resource.namespace()) {
            for host in &entry.spec.hosts {
                for port in &entry.spec.ports {
                    let key = (scope.clone(), host.as_str(), port.number);
                    let protocol = port.protocol.to_ascii_uppercase();
                    index.entry(key).or_default().push((resource, protocol));
                }
            }
        }
    }
    let mut reported = BTreeSet::new();
    for ((scope, host, port), definitions) in &index {
        let mut definitions = definitions.clone();
        if scope != ALL_NAMESPACES {
            let everywhere = index.get(&(ALL_NAMESPACES.to_owned(), *host, *port));
            definitions.extend(everywhere.into_iter().flatten().cloned());
        }
        let protocols: BTreeSet<&str> = definitions.iter().map(|(_, protocol)| protocol.as_str()).collect();
        if protocols.len() < 2 {
            continue;
        }
        let names: BTreeSet<String> =
            definitions.iter().map(|(resource, _)| resource.full_name().into_owned()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let protocols = protocols.into_iter().collect::<Vec<_>>().join(", ");
        for (resource, _) in &definitions {
            if reported.insert(resource.full_name().into_owned()) {
                let parameters =
                    [names.clone().into(), (*host).into(), port.into(), protocols.clone().into()];
                let kind = &catalogue::CONFLICTING_SERVICE_ENTRY_PROTOCOL;
                findings.add_at(kind, resource, &["metadata", "name"], &parameters);
            }
        }
    }
}
