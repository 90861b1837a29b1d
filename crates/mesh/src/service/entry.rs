//! Services that ServiceEntries define.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::istio::ServiceEntry;
use canopus_api::labels;
use canopus_base::labels::{Labels, canonical};
use canopus_base::net::{parse_ip, parse_prefix};
use canopus_base::protocol::Protocol;
use canopus_engine::EagerCtx;
use canopus_proto::istio::networking::v1alpha3::service_entry::{Location, Resolution as EntryResolution};
use canopus_runtime::flags::{
    LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES, PILOT_ENABLE_IP_AUTOALLOCATE,
};

use super::{NO_ADDRESS, Port, Registry, Resolution, Service, kube, visibility};
use crate::world::{Origin, settings};

/// Converts a ServiceEntry to services, one for each host and address.
pub(super) fn convert(ctx: &EagerCtx<'_>, origin: &Origin, entry: &ServiceEntry) -> Vec<Service> {
    let spec = &entry.spec;
    let resolution = match spec.resolution() {
        EntryResolution::None => Resolution::Passthrough,
        EntryResolution::Static => Resolution::Listed,
        EntryResolution::Dns => Resolution::Dns,
        EntryResolution::DnsRoundRobin => Resolution::DnsRoundRobin,
        EntryResolution::DynamicDns => Resolution::DynamicDns,
    };
    let external = spec.location() == Location::MeshExternal;
    let ports = spec.ports.iter().map(|port| Port {
        number: port.number,
        name: port.name.as_str().into(),
        protocol: Protocol::parse(&port.protocol),
    });
    let passthrough_target_ports: BTreeMap<u32, u32> = spec
        .ports
        .iter()
        .filter(|port| resolution == Resolution::Passthrough && port.target_port != 0)
        .map(|port| (port.number, port.target_port))
        .collect();
    let selector = spec.workload_selector.as_ref().map(|selector| &selector.labels);
    let model = Service {
        host: Arc::default(),
        name: Arc::default(),
        namespace: entry.meta.namespace.as_ref().into(),
        ports: ports.collect(),
        resolution,
        external,
        registry: Registry::External,
        created: entry.meta.creation_timestamp,
        labels: service_labels(ctx, entry, external),
        export_to: visibility::exported(ctx, origin, &spec.export_to),
        cluster_addresses: BTreeMap::new(),
        address: NO_ADDRESS.to_owned(),
        allocated_v4: None,
        allocated_v6: None,
        service_accounts: spec.subject_alt_names.clone(),
        selector: selector.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        traffic_distribution: kube::traffic_distribution(ctx, origin, None, &entry.meta),
        kube: None,
        passthrough_target_ports,
        races_connections: entry
            .meta
            .annotation("istio.io/connect-strategy")
            .is_some_and(|strategy| strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT")),
        aliases: Vec::new(),
        origins: vec![origin.clone()],
    };
    let named = |host: &str| Service { host: host.into(), name: host.into(), ..model.clone() };
    let allocated = allocated_addresses(ctx, entry);
    let mut services = Vec::new();
    for host in &spec.hosts {
        if spec.addresses.is_empty() {
            let of_host = || allocated.iter().filter(|(name, _)| name == host).map(|(_, address)| *address);
            services.push(Service {
                allocated_v4: of_host().rfind(IpAddr::is_ipv4).map(|address| address.to_string()),
                allocated_v6: of_host().rfind(IpAddr::is_ipv6).map(|address| address.to_string()),
                ..named(host)
            });
        }
        for address in spec.addresses.iter().filter_map(|address| usable_address(address)) {
            services.push(Service { address, ..named(host) });
        }
    }
    services
}

/// Parses an address or CIDR. A CIDR of a single address becomes that address.
fn usable_address(text: &str) -> Option<String> {
    if parse_ip(text).is_ok() {
        return Some(text.to_owned());
    }
    let prefix = parse_prefix(text).ok()?;
    Some(if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        text.to_owned()
    })
}

/// The labels of the service. External ones get canonical service labels, which telemetry reports as the destination.
fn service_labels(ctx: &EagerCtx<'_>, entry: &ServiceEntry, external: bool) -> Labels {
    let mut found = entry.meta.labels.clone();
    let wanted =
        external && settings(ctx).flags.get(LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES);
    if wanted {
        let (name, revision) = canonical::service(&entry.meta.labels, &entry.meta.name);
        let (name, revision) = (name.to_owned(), revision.to_owned());
        found.insert(labels::CANONICAL_NAME.name, name);
        found.insert(labels::CANONICAL_REVISION.name, revision);
    }
    found
}

/// The allocated addresses in the status of an entry, by host.
fn allocated_addresses(ctx: &EagerCtx<'_>, entry: &ServiceEntry) -> Vec<(String, IpAddr)> {
    if !wants_allocation(ctx, entry) {
        return Vec::new();
    }
    let addresses = entry.status.addresses.iter();
    addresses.filter_map(|given| Some((given.host.clone(), parse_ip(&given.value).ok()?))).collect()
}

/// Whether addresses are allocated for an entry: it has none, its resolution can use them, and no label opts out.
pub(super) fn wants_allocation(ctx: &EagerCtx<'_>, entry: &ServiceEntry) -> bool {
    let spec = &entry.spec;
    let opted = entry.meta.label(labels::ENABLE_AUTOALLOCATE_IP.name);
    settings(ctx).flags.get(PILOT_ENABLE_IP_AUTOALLOCATE)
        && !opted.is_some_and(|value| value.eq_ignore_ascii_case("false"))
        && spec.addresses.is_empty()
        && spec.resolution() != EntryResolution::None
}
