//! Clusters (CDS): where a proxy's traffic may go, and how it gets there.

mod audience;
mod connection_pool;
mod dns;
mod draft;
mod fixed;
mod gateway;
pub(crate) mod hbone;
mod inbound;
mod load_balancer;
mod metadata;
mod outbound;
mod outlier;
mod part;
mod stat_name;
#[cfg(test)]
mod tests;
mod transport;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_mesh::scope::scope;
use canopus_mesh::service::Service;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{PILOT_ENABLE_SENDING_HBONE, PILOT_ENABLE_SIDECAR_LISTENING_HBONE};

use self::audience::Audience;
use self::outbound::{PortClusters, Purpose, Request};
use self::part::{Part, PatchedPart};
use crate::env::Env;
use crate::envoy_filter::Patched;
use crate::resources::Resources;

/// Every cluster of a proxy.
pub struct Clusters;

impl Query for Clusters {
    const NAME: &'static str = "clusters";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let mut clusters = Resources::new();
        for part in parts(ctx, proxy) {
            clusters.push(part.resources.clone());
        }
        clusters
    }
}

/// The clusters of a proxy, part by part.
pub(crate) fn parts(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let view = ctx.get::<ViewOf>(proxy);
    let mut parts = vec![Part::Shared(view.as_ref().clone())];
    if view.kind == NodeKind::Sidecar {
        parts.push(Part::Inbound(proxy.clone()));
    }
    parts.iter().map(|part| ctx.get::<PatchedPart>(part)).collect()
}

/// The clusters that all proxies of a view have.
struct SharedClusters;

impl Query for SharedClusters {
    const NAME: &'static str = "shared_clusters";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Vec<Resource> {
        let audience = Audience::of(ctx, view);
        let mut clusters = match view.kind {
            NodeKind::Router => {
                of_services(ctx, view, &audience, &gateway::services(ctx, view), Purpose::Calls)
            }
            _ => of_services(ctx, view, &audience, &scope(ctx, view).services, Purpose::Calls),
        };
        if view.kind == NodeKind::Router && gateway::passes_connections_on(ctx, view) {
            let services: Vec<_> =
                scope(ctx, view).services.iter().filter(|s| !s.external).cloned().collect();
            clusters.extend(of_services(ctx, view, &audience, &services, Purpose::PassingOn));
        }
        let encode = |cluster: &Cluster| Resource::encode(cluster.name.as_str(), cluster);
        clusters.extend(of_kind(&Env::new(ctx, view), &audience).iter().map(encode));
        // Services that claim the same host and port make the same cluster: the first one counts.
        let mut names = BTreeSet::new();
        clusters.retain(|cluster| names.insert(cluster.name.clone()));
        clusters
    }
}

/// The clusters of services, in their order.
fn of_services(
    ctx: &Ctx<'_>,
    view: &View,
    audience: &Audience,
    services: &[Arc<Service>],
    purpose: Purpose,
) -> Vec<Resource> {
    let mut clusters = Vec::new();
    for service in services {
        let key = service.key();
        let rule = outbound_rule(ctx, view, &key).map(|rule| rule.id.clone());
        for port in service.ports.iter().filter(|port| outbound::is_reachable(service, port)) {
            let request = Request {
                audience: audience.clone(),
                purpose,
                service: key.clone(),
                port: port.clone(),
                rule: rule.clone(),
                near: outbound::holds_endpoints(service).then(|| view.clone()),
            };
            clusters.extend(ctx.get::<PortClusters>(&request).iter().cloned());
        }
    }
    clusters
}

/// The clusters that the kind of a proxy and its settings bring.
fn of_kind(env: &Env<'_>, audience: &Audience) -> Vec<Cluster> {
    let (settings, view) = (&*env.settings, env.view);
    let mut clusters = vec![fixed::black_hole(settings)];
    if view.kind == NodeKind::Sidecar {
        clusters.push(fixed::passthrough(settings, audience));
        clusters.extend(dns::unknown_hosts(env, audience));
        clusters.push(fixed::inbound_passthrough(settings, audience));
        if env.flag(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && view.metadata.enable_hbone.0 {
            clusters.push(hbone::main_internal(&settings.flags));
        }
    }
    let opens_tunnels = env.flag(PILOT_ENABLE_SENDING_HBONE) && view.kind != NodeKind::Waypoint;
    if opens_tunnels && !view.metadata.disable_hbone_send.0 {
        clusters.push(hbone::originate(settings, &view.metadata));
    }
    if audience.credential_socket {
        clusters.push(fixed::credential_server(settings));
    }
    clusters
}
