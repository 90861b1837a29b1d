//! Endpoints in other networks are reached through the gateways of those networks.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::is_in_network;
use canopus_mesh::endpoint::EndpointWorkload;
use canopus_mesh::network::{NetworkGateway, NetworkGateways};
use canopus_mesh::workload::{TLS_ISTIO, add_location_labels};
use canopus_proto::envoy::config::core::v3::Metadata;
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{Endpoint as Target, LbEndpoint};
use canopus_proto::google::protobuf::Struct;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, AMBIENT_ENABLE_MULTI_NETWORK_INGRESS,
    AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT, PILOT_ENABLE_TELEMETRY_LABEL, PILOT_ENDPOINT_TELEMETRY_LABEL,
};

use super::Destination;
use super::Env;
use super::group::{Group, Member};
use super::lb_endpoint::{
    ORIGINAL_DESTINATION, TRANSPORT_SOCKET_MATCH, address, description, field, internal, join,
};
use crate::tunnel::INNER_ORIGINATE;

/// Puts gateways in the place of endpoints that the proxy cannot reach directly.
pub(super) fn through_gateways(
    env: &Env<'_>,
    destination: &Destination<'_>,
    groups: Vec<Group>,
) -> Vec<Group> {
    // A name of a gateway is of use only to proxies that resolve it.
    let known = env.ctx.get::<UsableGateways>(&destination.service.resolution.is_dns());
    if known.gateways.is_empty() && !crosses_by_tunnels(env) {
        return groups.into_iter().map(Group::with_addresses_only).collect();
    }
    groups.into_iter().map(|group| known.split(env, destination, group)).collect()
}

/// Whether a proxy reaches other networks by tunnels within tunnels rather than by mutual TLS.
fn crosses_by_tunnels(env: &Env<'_>) -> bool {
    env.flag(AMBIENT_ENABLE_MULTI_NETWORK) && env.audience.role.kind != NodeKind::Sidecar
}

/// Whether a proxy is of a sort that was told not to reach other networks.
fn stays_in_network(env: &Env<'_>) -> bool {
    (env.audience.role.is_managed_waypoint && !env.flag(AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT))
        || (env.audience.role.is_ingress && !env.flag(AMBIENT_ENABLE_MULTI_NETWORK_INGRESS))
}

/// The gateways that proxies may use: those with an address, or also those by name.
pub(super) struct UsableGateways;

impl Query for UsableGateways {
    const NAME: &'static str = "usable_network_gateways";
    type Key = bool;
    type Value = Known;

    fn run(ctx: &Ctx<'_>, by_name: &bool) -> Known {
        let all = ctx.get::<NetworkGateways>(&());
        let usable = all.iter().filter(|gateway| *by_name || parse_ip(&gateway.address).is_ok());
        Known::new(usable.cloned().collect())
    }
}

/// The gateways a proxy may use.
#[derive(PartialEq)]
pub(super) struct Known {
    gateways: Vec<NetworkGateway>,
    /// All weights are multiples of this, so that they can be shared out among any number of gateways.
    scale: u32,
}

impl Known {
    fn new(gateways: Vec<NetworkGateway>) -> Self {
        let mut counts: BTreeMap<(&str, Option<&str>), u32> = BTreeMap::new();
        for gateway in &gateways {
            *counts.entry((&gateway.network, None)).or_default() += 1;
            *counts.entry((&gateway.network, Some(&gateway.cluster))).or_default() += 1;
        }
        let scale = counts.values().fold(1, |lcm, count| least_common_multiple(lcm, *count));
        Self { gateways, scale }
    }

    /// Whether there are any.
    pub(super) fn are_known(&self) -> bool {
        !self.gateways.is_empty()
    }

    /// Whether some gateway is of no use to sidecars, which reach gateways by mutual TLS alone.
    pub(super) fn have_no_port_for_sidecars(&self) -> bool {
        self.gateways.iter().any(|gateway| gateway.port == 0)
    }

    /// The networks behind the gateways.
    pub(super) fn networks(&self) -> impl Iterator<Item = Box<str>> {
        self.gateways.iter().map(|gateway| gateway.network.as_str().into())
    }

    /// The clusters that the gateways are in.
    pub(super) fn clusters(&self) -> impl Iterator<Item = Box<str>> {
        self.gateways.iter().map(|gateway| Box::from(&*gateway.cluster))
    }

    /// The gateways for a network: those in the endpoint's cluster, else all of that network.
    fn for_endpoint(&self, env: &Env<'_>, member: &Member) -> Vec<&NetworkGateway> {
        let of_network =
            || self.gateways.iter().filter(|gateway| *gateway.network == *member.workload.network);
        let mut found: Vec<_> =
            of_network().filter(|gateway| gateway.cluster == member.workload.cluster).collect();
        if found.is_empty() {
            found = of_network().collect();
        }
        if crosses_by_tunnels(env) {
            found.retain(|gateway| gateway.hbone_port != 0);
        } else if env.audience.role.kind == NodeKind::Sidecar {
            found.retain(|gateway| gateway.port != 0);
        }
        found
    }

    fn split(&self, env: &Env<'_>, destination: &Destination<'_>, group: Group) -> Group {
        let by_tunnels = crosses_by_tunnels(env);
        let mut weights: BTreeMap<(&str, u32, &NetworkGateway), u32> = BTreeMap::new();
        let mut members = Vec::new();
        for mut member in group.members {
            let weight = member.weight().max(1).saturating_mul(self.scale);
            member.message.load_balancing_weight = Some(weight.into());
            let gateways = self.for_endpoint(env, &member);
            let reachable: Vec<_> =
                gateways.iter().copied().filter(|gateway| is_reachable(env, gateway)).collect();
            let is_far = by_tunnels && !is_in_network(&env.audience.network, &member.workload.network);
            if is_far && (stays_in_network(env) || reachable.is_empty()) {
                continue;
            }
            // A proxy that does not say its network is in none of those that have gateways.
            let foreign = env.audience.network.is_empty() && !member.workload.network.is_empty();
            let direct = gateways.is_empty()
                || (!foreign && is_in_network(&env.audience.network, &member.workload.network));
            if direct {
                members.extend(Some(member).filter(Member::has_address));
                continue;
            }
            // The gateway finds the endpoint by the SNI of mutual TLS, or by what a tunnel asks for.
            if reachable.is_empty() || !(by_tunnels || member.mutual_tls) {
                continue;
            }
            let share = weight / u32::try_from(reachable.len()).unwrap_or(u32::MAX);
            for gateway in reachable {
                *weights.entry((&gateway.address, gateway.port, gateway)).or_default() += share;
            }
        }
        let gateways = weights
            .into_iter()
            .map(|((.., gateway), weight)| gateway_member(env, destination, gateway, weight.max(1)));
        members.extend(gateways);
        Group { locality: group.locality, members }
    }
}

/// Whether the proxy has an address of the gateway's family.
fn is_reachable(env: &Env<'_>, gateway: &NetworkGateway) -> bool {
    let both = env.audience.addressing.ipv4 == env.audience.addressing.ipv6;
    both || (parse_ip(&gateway.address).is_ok() && env.audience.addressing.supports(&gateway.address))
}

/// A gateway in the place of the endpoints behind it.
fn gateway_member(
    env: &Env<'_>,
    destination: &Destination<'_>,
    gateway: &NetworkGateway,
    weight: u32,
) -> Member {
    let by_tunnels = crosses_by_tunnels(env);
    let mut metadata = BTreeMap::new();
    if !by_tunnels {
        metadata.insert(TRANSPORT_SOCKET_MATCH.to_owned(), field("tlsMode", TLS_ISTIO));
    } else if !destination.is_fronted() {
        metadata.insert(TRANSPORT_SOCKET_MATCH.to_owned(), field("tunnel", "http"));
    }
    if env.flag(PILOT_ENABLE_TELEMETRY_LABEL) && env.flag(PILOT_ENDPOINT_TELEMETRY_LABEL) {
        let text = description("", "", &Labels::new(), &gateway.cluster);
        metadata.insert("istio".to_owned(), text);
    }
    let address = if by_tunnels {
        let own = join(&gateway.address, gateway.hbone_port);
        metadata.insert(ORIGINAL_DESTINATION.to_owned(), field("local", &own));
        let target = join(&destination.service.host, destination.port.number);
        let target = field("hbone_target_address", &target);
        let istio = metadata.entry("istio".to_owned()).or_insert_with(Struct::default);
        istio.fields.insert("double_hbone".to_owned(), target.into());
        internal(INNER_ORIGINATE, &own)
    } else {
        address(&gateway.address, gateway.port)
    };
    let target = Target { address: Some(address), ..Default::default() };
    Member {
        message: LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(target)),
            load_balancing_weight: Some(weight.into()),
            metadata: Some(Metadata { filter_metadata: metadata, ..Default::default() }),
            ..Default::default()
        },
        workload: Arc::new(EndpointWorkload {
            labels: add_location_labels(Labels::new(), &gateway.cluster, "", "", &gateway.network),
            network: Arc::from(gateway.network.as_str()),
            cluster: gateway.cluster.clone(),
            ..Default::default()
        }),
        mutual_tls: true,
    }
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).unwrap_or_default() * b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_can_be_shared_out_among_any_of_the_counts() {
        assert_eq!([2, 3, 4].into_iter().fold(1, least_common_multiple), 12);
    }
}
