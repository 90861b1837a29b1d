//! Endpoints of ServiceEntries: listed, selected, or the host itself where it is resolved by DNS.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::istio::ServiceEntry;
use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_proto::istio::networking::v1alpha3::ServicePort;
use canopus_runtime::flags::PILOT_ENABLE_SERVICEENTRY_SELECT_PODS;

use super::{Endpoint, EndpointWorkload, Health};
use crate::service::{Registry, Resolution, Service, ServiceKey, ServicesOf};
use crate::workload::{self, EntriesIn, TLS_DISABLED, Workload, WorkloadsIn};
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first, settings};

/// The endpoints of a host from all ServiceEntries of a namespace.
pub(super) fn endpoints(ctx: &Ctx<'_>, key: &ServiceKey) -> Vec<Arc<Endpoint>> {
    let mut entries =
        indexed_objects::<ServiceEntry>(ctx, &ObjectIndex::ServiceEntryHost(key.host.as_ref().into()));
    entries.retain(|(origin, _)| *origin.namespace() == *key.namespace);
    oldest_first(&mut entries);
    let mut found = Vec::new();
    let mut round_robin_ports = BTreeSet::new();
    for (origin, entry) in entries {
        let services = ctx.get::<ServicesOf>(&origin);
        // Parity: a ServiceEntry with several addresses repeats its endpoints for each of them.
        for service in services.iter().filter(|service| service.host == key.host) {
            for endpoint in entry_endpoints(ctx, &origin, &entry, service) {
                // Round-robin DNS supports one endpoint for each port.
                let repeated = !round_robin_ports.insert(endpoint.port_number);
                if service.resolution != Resolution::DnsRoundRobin || !repeated {
                    found.push(Arc::new(endpoint));
                }
            }
        }
    }
    found
}

/// The endpoints of one ServiceEntry.
fn entry_endpoints(ctx: &Ctx<'_>, origin: &Origin, entry: &ServiceEntry, service: &Service) -> Vec<Endpoint> {
    let spec = &entry.spec;
    let for_all_ports = |workload: &Workload| -> Vec<Endpoint> {
        spec.ports.iter().map(|port| at_port(port, workload)).collect()
    };
    if let Some(selector) = &spec.workload_selector {
        let wanted: Labels = selector.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let selects_pods = settings(ctx).flags.get(PILOT_ENABLE_SERVICEENTRY_SELECT_PODS);
        let workloads = match selects_pods {
            true => ctx.get::<WorkloadsIn>(&service.namespace),
            false => ctx.get::<EntriesIn>(&service.namespace),
        };
        let selected = workloads
            .iter()
            .filter(|workload| wanted.subset_of(&workload.labels))
            .filter(|workload| service.resolution.is_dns() || !workload.has_no_ip());
        return selected.flat_map(|workload| for_all_ports(workload)).collect();
    }
    if spec.endpoints.is_empty() && service.resolution.is_dns() {
        return spec.ports.iter().map(|port| host_endpoint(ctx, origin, service, port)).collect();
    }
    let numbered = spec.endpoints.iter().enumerate().map(|(index, listed)| {
        let labels = listed.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        workload::workload_from_entry(ctx, origin, &format!("{}-{index}", origin.name()), listed, labels)
    });
    numbered.flat_map(|workload| for_all_ports(&workload)).collect()
}

/// The endpoint of an entry that is resolved by DNS and lists no endpoints: its host.
fn host_endpoint(ctx: &Ctx<'_>, origin: &Origin, service: &Service, port: &ServicePort) -> Endpoint {
    let workload = EndpointWorkload {
        name: origin.name().into(),
        namespace: origin.namespace().into(),
        cluster: settings(ctx).cluster.clone(),
        tls_mode: TLS_DISABLED.into(),
        origin: Some(origin.clone()),
        ..EndpointWorkload::default()
    };
    Endpoint {
        addresses: vec![service.host.clone()],
        port: if port.target_port > 0 { port.target_port } else { port.number },
        port_name: port.name.as_str().into(),
        port_number: Some(port.number),
        weight: 0,
        health: Health::Unknown,
        workload: Arc::new(workload),
        registry: Registry::External,
    }
}

fn at_port(port: &ServicePort, workload: &Workload) -> Endpoint {
    let socket = workload.addresses.first().and_then(|address| address.strip_prefix("unix://"));
    Endpoint {
        addresses: socket.map_or_else(|| workload.addresses.clone(), |path| vec![path.into()]),
        port: if socket.is_some() { 0 } else { workload_port(port, workload) },
        port_name: port.name.as_str().into(),
        port_number: Some(port.number),
        weight: workload.weight,
        health: if workload.is_pod { Health::Healthy } else { Health::Unknown },
        workload: Arc::new(EndpointWorkload::from(workload)),
        registry: Registry::External,
    }
}

/// The port on the workload: its own port with that name, else the target port, else the number of the service port.
fn workload_port(port: &ServicePort, workload: &Workload) -> u32 {
    match workload.ports.get(&port.name) {
        Some(&own) if own > 0 => own,
        _ if port.target_port > 0 => port.target_port,
        _ => port.number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_port_wins_over_target_port_over_number() {
        let port = ServicePort { number: 80, target_port: 8080, name: "http".into(), ..Default::default() };
        let bare = ServicePort { number: 80, name: "http".into(), ..Default::default() };
        let mut workload = Workload {
            name: "w".into(),
            workload_name: "w".into(),
            namespace: "ns".into(),
            cluster: "c".into(),
            network: "".into(),
            labels: Labels::new(),
            locality: "".into(),
            service_account: "".into(),
            tls_mode: TLS_DISABLED.into(),
            takes_tunnels: false,
            addresses: vec!["10.0.0.1".into()],
            node: "".into(),
            host_name: None,
            weight: 0,
            ports: Default::default(),
            is_pod: false,
            is_healthy: true,
            origin: Origin::new(
                "c",
                canopus_api::ObjectKey::new(canopus_api::Kind::WorkloadEntry, "ns", "w"),
            ),
        };
        assert_eq!(workload_port(&bare, &workload), 80);
        assert_eq!(workload_port(&port, &workload), 8080);
        workload.ports.insert("http".into(), 9090);
        assert_eq!(workload_port(&port, &workload), 9090);
    }
}
