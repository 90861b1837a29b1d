//! Merging the policies of one target and host into a DestinationRule.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::istio::{self, ServiceEntry};
use canopus_api::kube::Service;
use canopus_api::{Kind, Meta, ObjectKey, annotations};
use canopus_proto::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::{
    ClientTlsSettings, DestinationRule, PortSelector, TrafficPolicy,
};

use super::super::GENERATED;
use super::super::cluster_objects::ClusterObjects;
use super::BackendPolicy;

/// Builds a rule for each target and host. Where policies set the same field, the oldest wins.
pub(super) fn rules(
    cluster: &ClusterObjects<'_>,
    mut policies: Vec<BackendPolicy>,
) -> Vec<Arc<istio::DestinationRule>> {
    policies.sort_by(|a, b| {
        let order = |policy: &BackendPolicy| {
            (policy.created, policy.source.namespace.clone(), policy.source.name.clone())
        };
        order(a).cmp(&order(b))
    });
    let mut groups: BTreeMap<(ObjectKey, String), Vec<BackendPolicy>> = BTreeMap::new();
    for policy in policies {
        groups.entry((policy.target.clone(), policy.host.clone())).or_default().push(policy);
    }
    groups.into_iter().map(|((target, host), policies)| rule(cluster, &target, &host, policies)).collect()
}

fn rule(
    cluster: &ClusterObjects<'_>,
    target: &ObjectKey,
    host: &str,
    policies: Vec<BackendPolicy>,
) -> Arc<istio::DestinationRule> {
    let mut merged = TrafficPolicy::default();
    let mut by_name: BTreeMap<Box<str>, ClientTlsSettings> = BTreeMap::new();
    let mut by_number: BTreeMap<u32, ClientTlsSettings> = BTreeMap::new();
    let mut parents: Vec<String> = Vec::new();
    for policy in policies {
        if let Some(tls) = policy.tls {
            match (policy.port, policy.section) {
                (Some(number), _) => _ = by_number.entry(number).or_insert(tls),
                (None, Some(name)) => _ = by_name.entry(name).or_insert(tls),
                (None, None) if merged.tls.is_some() => continue,
                (None, None) => merged.tls = Some(tls),
            }
        }
        if policy.load_balancer.is_some() {
            if merged.load_balancer.is_some() {
                continue;
            }
            merged.load_balancer = policy.load_balancer;
        }
        if policy.retry_budget.is_some() {
            if merged.retry_budget.is_some() {
                continue;
            }
            merged.retry_budget = policy.retry_budget;
        }
        let parent =
            format!("{}/{}.{}", policy.source.kind.info().kind, policy.source.namespace, policy.source.name);
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    let ports = ports(cluster, target);
    let named = by_name.into_iter().map(|(name, tls)| {
        let number = ports.iter().find(|(other, _)| **other == *name).map_or(0, |(_, number)| *number);
        (number, tls)
    });
    merged.port_level_settings = named.chain(by_number).map(|(number, tls)| for_port(number, tls)).collect();
    merged.port_level_settings.sort_by_key(|settings| settings.port.as_ref().map(|port| port.number));
    let spec = DestinationRule { host: host.to_owned(), traffic_policy: Some(merged), ..Default::default() };
    let mut meta = Meta::new(&target.namespace, &name(target, host));
    meta.annotations.insert(annotations::INTERNAL_PARENTS.name, parents.join(","));
    Arc::new(istio::DestinationRule { meta, spec, status: Default::default() })
}

fn for_port(number: u32, tls: ClientTlsSettings) -> PortTrafficPolicy {
    PortTrafficPolicy { port: Some(PortSelector { number }), tls: Some(tls), ..Default::default() }
}

/// The ports of a target by name.
fn ports(cluster: &ClusterObjects<'_>, target: &ObjectKey) -> Vec<(String, u32)> {
    match target.kind {
        Kind::Service => {
            let service = cluster.object::<Service>(&target.namespace, &target.name);
            let ports = service.iter().flat_map(|service| &service.spec.ports);
            ports.map(|port| (port.name.to_string(), u32::from(port.port))).collect()
        }
        Kind::ServiceEntry => {
            let entry = cluster.object::<ServiceEntry>(&target.namespace, &target.name);
            let ports = entry.iter().flat_map(|entry| &entry.spec.ports);
            ports.map(|port| (port.name.clone(), port.number)).collect()
        }
        _ => Vec::new(),
    }
}

fn name(target: &ObjectKey, host: &str) -> String {
    match target.kind {
        Kind::ServiceEntry | Kind::ExternalBackend => {
            format!("{}~{}~{GENERATED}", target.name, host.replace('.', "-"))
        }
        _ => format!("{}~{GENERATED}", target.name),
    }
}

#[cfg(test)]
mod tests;
