//! Services that gateways call through the waypoints in front of them.

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_mesh::endpoint::{Endpoint, Endpoints};
use canopus_mesh::network::HBONE_PORT;
use canopus_mesh::scope::scoped_service;
use canopus_mesh::service::{NO_ADDRESS, Service};
use canopus_mesh::waypoint;
use canopus_runtime::flags::ENABLE_INGRESS_WAYPOINT_ROUTING;

use super::Env;

/// Weights are shares of a hundred, times this, so that they can be shared out among the instances of a waypoint.
const SCALE: u32 = 10_000;

/// The instances of the waypoints that a gateway goes through to a service; `None` if it goes to the service itself.
pub(super) fn in_front_of(env: &Env<'_>, service: &Service) -> Option<Vec<Arc<Endpoint>>> {
    if !may_be_in_front(env) {
        return None;
    }
    // Waypoints know services by their addresses.
    let of_cluster = service.cluster_addresses.get(&*env.audience.addressing.cluster);
    let has_address = of_cluster.is_some_and(|addresses| !addresses.is_empty())
        || service.address != NO_ADDRESS
        || service.allocated_v4.is_some()
        || service.allocated_v6.is_some();
    let waypoints = waypoint::ingress_waypoints(env.ctx, service).filter(|_| has_address)?;
    let mut found = Vec::new();
    for (host, share) in waypoints.into_iter().filter(|(_, share)| *share != Some(0)) {
        let instances = instances(env, &host);
        let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);
        let weight = share.map(|share| (share * SCALE).checked_div(count).unwrap_or_default().max(1));
        found.extend(instances.into_iter().map(|instance| match weight {
            Some(weight) => Arc::new(Endpoint { weight, ..Endpoint::clone(&instance) }),
            None => instance,
        }));
    }
    Some(found)
}

/// Whether the proxy goes through waypoints, which it finds in its scope.
pub(super) fn may_be_in_front(env: &Env<'_>) -> bool {
    env.audience.role.kind == NodeKind::Router && env.flag(ENABLE_INGRESS_WAYPOINT_ROUTING)
}

/// The endpoints of the port at which a waypoint takes tunnels.
fn instances(env: &Env<'_>, host: &str) -> Vec<Arc<Endpoint>> {
    let Some(service) = scoped_service(env.ctx, &env.audience.caller.scope, host) else { return Vec::new() };
    let Some(port) = service.port(HBONE_PORT) else { return Vec::new() };
    let endpoints = env.ctx.get::<Endpoints>(&service.key());
    endpoints.iter().filter(|endpoint| endpoint.port_name == port.name).cloned().collect()
}
