//! The waypoint in front of a service, and the addresses that a waypoint uses for a service.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::istio::ServiceEntry;
use canopus_api::kube::Service as KubeObject;
use canopus_api::{Meta, labels as known};
use canopus_engine::Ctx;
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use super::{IsGlobal, Waypoint, WaypointAddress, WaypointsOf};
use crate::network;
use crate::proxy::Addressing;
use crate::service::{AllServices, Service, addresses_for};
use crate::world::{Origin, namespace, object, settings};

/// The waypoint in front of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Host of the service.
    pub host: Arc<str>,
    /// Whether ingress gateways send requests through it as well.
    pub takes_ingress: bool,
}

/// The waypoint in front of a service of this cluster; `None` if there is none or its host is unknown.
pub fn in_front_of(ctx: &Ctx<'_>, service: &Service) -> Option<Front> {
    let here = settings(ctx).cluster.clone();
    let origin = service.origins.iter().find(|origin| origin.cluster == here)?;
    let bound = ctx.get::<WaypointsOf>(origin);
    let host = waypoint_host(ctx, bound.primary.as_ref()?)?;
    Some(Front { host, takes_ingress: takes_ingress(ctx, origin) })
}

/// The hosts of the waypoints that ingress gateways send to for a service, with their percentages if there is a canary. `None`
/// if gateways send to the service directly.
pub fn ingress_waypoints(ctx: &Ctx<'_>, service: &Service) -> Option<Vec<(Arc<str>, Option<u32>)>> {
    let here = settings(ctx).cluster.clone();
    let origin = service.origins.iter().find(|origin| origin.cluster == here)?;
    let bound = ctx.get::<WaypointsOf>(origin);
    let primary = waypoint_host(ctx, bound.primary.as_ref()?)?;
    if !takes_ingress(ctx, origin) {
        return None;
    }
    let Some((canary, weight)) = &bound.canary else { return Some(vec![(primary, None)]) };
    let canary = waypoint_host(ctx, canary).map(|host| (host, Some(*weight)));
    Some(std::iter::once((primary, Some(100 - weight))).chain(canary).collect())
}

/// The host of a waypoint: from its address, or that of the service with its IP.
pub(super) fn waypoint_host(ctx: &Ctx<'_>, waypoint: &Waypoint) -> Option<Arc<str>> {
    match waypoint.address.as_ref()? {
        WaypointAddress::Host(_, host) => Some(host.clone()),
        WaypointAddress::Address(_, ip) => {
            let here = settings(ctx).cluster.clone();
            let address = ip.to_string();
            let all = ctx.get::<AllServices>(&());
            let owner = all.iter().find(|service| {
                service.cluster_addresses.get(&here).is_some_and(|addresses| addresses.contains(&address))
            });
            owner.map(|service| service.host.clone())
        }
    }
}

/// Whether a label of the object or its namespace sends ingress traffic through the waypoint.
pub fn takes_ingress(ctx: &Ctx<'_>, origin: &Origin) -> bool {
    let own = object::<KubeObject>(ctx, origin).map(|object| label(&object.meta));
    let own = own.or_else(|| object::<ServiceEntry>(ctx, origin).map(|object| label(&object.meta))).flatten();
    let home = || namespace(ctx, &origin.cluster, origin.namespace()).and_then(|home| label(&home.meta));
    own.or_else(home).unwrap_or(false)
}

fn label(meta: &Meta) -> Option<bool> {
    let value = meta.label(known::INGRESS_USE_WAYPOINT.name)?;
    Some(matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// The addresses that a waypoint uses for a service, sorted: those in its cluster and, for a global service, those in all
/// clusters of the network.
pub fn addresses(
    ctx: &Ctx<'_>,
    service: &Service,
    addressing: &Addressing,
    own_network: &str,
) -> BTreeSet<String> {
    let own = addresses_for(ctx, service, addressing);
    let is_global = settings(ctx).flags.get(AMBIENT_ENABLE_MULTI_NETWORK)
        && service.origins.iter().any(|origin| *ctx.get::<IsGlobal>(origin));
    if !is_global {
        return own.into_iter().collect();
    }
    let in_network = |cluster: &Arc<str>| {
        let network = network::network_of_cluster(ctx, cluster).unwrap_or_default();
        own_network.is_empty() || network == own_network
    };
    let clusters = service.cluster_addresses.iter().filter(|(cluster, _)| in_network(cluster));
    let global = clusters.flat_map(|(_, addresses)| addresses).filter(|address| addressing.supports(address));
    own.into_iter().chain(global.cloned()).collect()
}
