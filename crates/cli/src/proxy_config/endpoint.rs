//! Endpoints as the control plane sent them.

use std::net::SocketAddr;

use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use canopus_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use canopus_proto::envoy::config::core::v3::{Address, Locality, Metadata, address};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};

use super::cluster::ClusterKey;
use super::dump::ConfigDump;
use super::render::{self, Format};
use crate::table::{aligned, row};

/// Which endpoints are printed.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only endpoints of this address.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) address: Option<String>,
    /// Only endpoints of this port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u32,
    /// Only endpoints of this cluster.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Option<String>,
    /// Only endpoints of this status: healthy, unhealthy, draining, timeout or degraded.
    #[arg(long, value_name = "STATUS")]
    pub(super) status: Option<String>,
}

impl Filter {
    /// Whether an endpoint with one of these addresses is printed.
    pub(super) fn takes(&self, addresses: &[String], port: u32, cluster: &str, status: &str) -> bool {
        let equals = |wanted: &Option<String>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(text))
        };
        (self.address.is_none() || addresses.iter().any(|address| equals(&self.address, address)))
            && (self.port == 0 || self.port == port)
            && equals(&self.cluster, cluster)
            && equals(&self.status, status)
    }
}

pub(super) fn print(dump: &ConfigDump, filter: &Filter, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Short => summary(dump, filter, false),
        Format::Json | Format::Yaml => Ok(render::messages(&sorted(dump, filter)?, format)),
    }
}

fn sorted(dump: &ConfigDump, filter: &Filter) -> anyhow::Result<Vec<ClusterLoadAssignment>> {
    let dump = dump.endpoints()?.unwrap_or_default();
    let dynamic = dump.dynamic_endpoint_configs.into_iter().filter_map(|one| one.endpoint_config);
    let fixed = dump.static_endpoint_configs.into_iter().filter_map(|one| one.endpoint_config);
    let mut assignments = Vec::new();
    for packed in dynamic.chain(fixed) {
        let mut assignment = ClusterLoadAssignment::decode(packed.value)?;
        let cluster = assignment.cluster_name.clone();
        for group in &mut assignment.endpoints {
            group.lb_endpoints.retain(|endpoint| {
                let status = endpoint.health_status().as_str_name();
                filter.takes(&addresses(endpoint), port(endpoint), &cluster, status)
            });
        }
        if assignment.endpoints.iter().any(|group| !group.lb_endpoints.is_empty()) {
            assignments.push(assignment);
        }
    }
    assignments.sort_by_cached_key(|assignment| ClusterKey::sort_key(&assignment.cluster_name));
    Ok(assignments)
}

pub(super) fn summary(dump: &ConfigDump, filter: &Filter, with_type: bool) -> anyhow::Result<String> {
    let mut rows = vec![row(["NAME", "STATUS", "LOCALITY", "CLUSTER"])];
    for assignment in sorted(dump, filter)? {
        for group in &assignment.endpoints {
            for endpoint in &group.lb_endpoints {
                let address = addresses(endpoint).join(",");
                rows.push(vec![
                    if with_type { format!("endpoint/{address}") } else { address },
                    endpoint.health_status().as_str_name().to_owned(),
                    group.locality.as_ref().map(locality).unwrap_or_default(),
                    assignment.cluster_name.clone(),
                ]);
            }
        }
    }
    Ok(aligned(&rows, 5))
}

/// Every endpoint that is an address and a port, with its cluster and what else is said of it.
pub(crate) fn sockets(dump: &ConfigDump) -> anyhow::Result<Vec<(String, SocketAddr, Option<Metadata>)>> {
    let mut sockets = Vec::new();
    for assignment in sorted(dump, &Filter::default())? {
        for endpoint in assignment.endpoints.into_iter().flat_map(|group| group.lb_endpoints) {
            let address = addresses(&endpoint).first().and_then(|address| address.parse().ok());
            sockets.extend(
                address.map(|address| (assignment.cluster_name.clone(), address, endpoint.metadata.clone())),
            );
        }
    }
    Ok(sockets)
}

fn locality(locality: &Locality) -> String {
    let Locality { region, zone, sub_zone, .. } = locality;
    match (zone.is_empty(), sub_zone.is_empty()) {
        (true, _) => region.clone(),
        (false, true) => format!("{region}/{zone}"),
        (false, false) => format!("{region}/{zone}/{sub_zone}"),
    }
}

/// All addresses of an endpoint.
fn addresses(endpoint: &LbEndpoint) -> Vec<String> {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
        return vec!["unknown".to_owned()];
    };
    let further = endpoint.additional_addresses.iter().map(|one| one.address.as_ref());
    std::iter::once(endpoint.address.as_ref()).chain(further).map(address_text).collect()
}

fn port(endpoint: &LbEndpoint) -> u32 {
    match &endpoint.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => {
            endpoint.address.as_ref().map(port_of).unwrap_or_default()
        }
        _ => 0,
    }
}

/// The port of an address; zero if it has none.
pub(super) fn port_of(address: &Address) -> u32 {
    match &address.address {
        Some(address::Address::SocketAddress(socket)) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => port,
            _ => 0,
        },
        _ => 0,
    }
}

fn address_text(address: Option<&Address>) -> String {
    match address.and_then(|address| Some((address, address.address.as_ref()?))) {
        Some((address, address::Address::SocketAddress(socket))) => {
            format!("{}:{}", socket.address, port_of(address))
        }
        Some((_, address::Address::Pipe(pipe))) => pipe.path.clone(),
        Some((_, address::Address::EnvoyInternalAddress(internal))) => match &internal.address_name_specifier
        {
            Some(AddressNameSpecifier::ServerListenerName(listener)) => {
                format!("envoy://{listener}/{}", internal.endpoint_id)
            }
            None => "unknown".to_owned(),
        },
        None => "unknown".to_owned(),
    }
}
