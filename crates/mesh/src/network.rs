//! Networks: which network an address is in, and the gateways that lead into other networks.

mod gateways;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::labels as known;
use canopus_base::labels::Labels;
use canopus_base::net::{parse_ip, parse_prefix};
use canopus_engine::Ctx;
use canopus_proto::istio::mesh::v1alpha1::network::network_endpoints::Ne;

pub(crate) use self::gateways::is_auto_passthrough;
pub use self::gateways::{DEFAULT_GATEWAY_PORT, HBONE_PORT, NetworkGateway, NetworkGateways};
use crate::world::{namespace, settings};

/// The network of an address in a cluster: from a label of the workload, else from the label of the system namespace, else
/// from `meshNetworks`. Empty if none applies.
pub fn network_of_address(ctx: &Ctx<'_>, cluster: &Arc<str>, address: &str, labels: &Labels) -> String {
    if let Some(network) = labels.get(known::TOPOLOGY_NETWORK.name).filter(|network| !network.is_empty()) {
        return network.to_owned();
    }
    network_of_cluster(ctx, cluster).or_else(|| configured_network(ctx, cluster, address)).unwrap_or_default()
}

/// The network of a cluster, from the label of its system namespace.
pub fn network_of_cluster(ctx: &Ctx<'_>, cluster: &Arc<str>) -> Option<String> {
    let system = namespace(ctx, cluster, &settings(ctx).system_namespace)?;
    system.meta.label(known::TOPOLOGY_NETWORK.name).filter(|network| !network.is_empty()).map(str::to_owned)
}

/// The network of `meshNetworks` that names the cluster as a registry, or whose CIDR contains the address.
fn configured_network(ctx: &Ctx<'_>, cluster: &str, address: &str) -> Option<String> {
    let settings = settings(ctx);
    let mut ranges = Vec::new();
    for (name, network) in &settings.networks.networks {
        for endpoints in &network.endpoints {
            match &endpoints.ne {
                Some(Ne::FromRegistry(registry)) if registry == cluster => return Some(name.clone()),
                Some(Ne::FromCidr(cidr)) => ranges.extend(parse_prefix(cidr).ok().map(|range| (range, name))),
                _ => {}
            }
        }
    }
    let address: IpAddr = parse_ip(address).ok()?;
    ranges.into_iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.clone())
}
