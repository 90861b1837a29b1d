//! Clusters (CDS): where a proxy's traffic may go, and how it gets there.

mod audience;
mod connection_pool;
mod dns;
mod draft;
mod duplicate;
mod fixed;
mod gateway;
pub(crate) mod hbone;
mod inbound;
pub(crate) mod load_balancer;
mod mesh_tls;
mod metadata;
mod outbound;
mod outlier;
mod part;
mod stat_name;
#[cfg(test)]
mod tests;
mod transport;
mod waypoint;
mod why;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::FastSet;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::list::List;
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_mesh::scope;
use canopus_mesh::service::{Port, Service};
use canopus_mesh::waypoint::{ServicesBehind, is_east_west_gateway};
use canopus_mesh::world::settings;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::PILOT_ENABLE_SIDECAR_LISTENING_HBONE;

use self::audience::Audience;
pub(crate) use self::duplicate::Duplicates;
use self::inbound::InboundClusters;
use self::outbound::{Purpose, Request, ServiceClusters};
use self::part::{Part, PatchedPart};
pub use self::why::reads_of;
use crate::env::Env;
use crate::envoy_filter::{self, Patched};
use crate::resources::Resources;

/// How many clusters a proxy has, at most, that are of no service.
const USUAL_FIXED: usize = 8;

/// Every cluster of a proxy.
pub struct Clusters;

impl Query for Clusters {
    const NAME: &'static str = "clusters";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let view = ctx.get::<ViewOf>(proxy);
        let mut clusters = Resources::new();
        if envoy_filter::touch_clusters(ctx, &view) {
            parts(ctx, proxy).iter().for_each(|part| clusters.push(part.resources.clone()));
            return clusters;
        }
        // Mostly no patch is for clusters, and then there is nothing to be said about patches.
        clusters.push(ctx.get::<SharedClusters>(&view));
        if has_inbound(&view) {
            clusters.push(ctx.get::<InboundClusters>(proxy));
        }
        clusters
    }
}

/// The clusters of a proxy, part by part.
pub(crate) fn parts(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let view = ctx.get::<ViewOf>(proxy);
    let mut parts = vec![Part::Shared(view.as_ref().clone())];
    if has_inbound(&view) {
        parts.push(Part::Inbound(proxy.clone()));
    }
    parts.iter().map(|part| ctx.get::<PatchedPart>(part)).collect()
}

/// Whether proxies of a view have clusters of their own workload.
fn has_inbound(view: &View) -> bool {
    view.kind == NodeKind::Sidecar
}

/// The clusters that all proxies of a view have.
struct SharedClusters;

impl Query for SharedClusters {
    const NAME: &'static str = "shared_clusters";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Vec<Resource> {
        let audience = Audience::of(ctx, view);
        let mut clusters = Vec::new();
        for (purpose, services) in destinations(ctx, view) {
            add_services(&mut clusters, ctx, view, &audience, &services, purpose);
        }
        clusters.extend(of_kind(&Env::new(ctx, view), &audience));
        // Services that claim the same host and port make the same cluster: the first one counts.
        let mut names = FastSet::with_capacity_and_hasher(clusters.len(), Default::default());
        clusters.retain(|cluster| names.insert(cluster.name.clone()));
        clusters
    }
}

/// The services a proxy has clusters for, by what the clusters are for.
fn destinations(ctx: &Ctx<'_>, view: &View) -> Vec<(Purpose, List<Service>)> {
    match view.kind {
        NodeKind::Router => {
            let mut destinations = vec![(Purpose::Calls, gateway::services(ctx, view))];
            if gateway::passes_connections_on(ctx, view) {
                let services = scope::services(ctx, view);
                let of_mesh: Vec<_> = services.iter().filter(|service| !service.external).cloned().collect();
                destinations.push((Purpose::PassingOn, of_mesh.into()));
            }
            destinations
        }
        NodeKind::Waypoint => {
            let fronted = ctx.get::<ServicesBehind>(view).to_vec();
            let purpose = if is_east_west_gateway(view) { Purpose::Terminating } else { Purpose::Fronting };
            vec![(Purpose::Calls, waypoint::called(ctx, view).into()), (purpose, fronted.into())]
        }
        _ => vec![(Purpose::Calls, scope::services(ctx, view))],
    }
}

/// Adds the clusters of services, in their order.
fn add_services(
    clusters: &mut Vec<Resource>,
    ctx: &Ctx<'_>,
    view: &View,
    audience: &Audience,
    services: &List<Service>,
    purpose: Purpose,
) {
    let settings = settings(ctx);
    let mut requests = Vec::with_capacity(services.len());
    for service in services {
        let is_reachable = |port: &&Port| outbound::is_reachable(&settings.flags, purpose, service, port);
        let ports: Vec<_> = service.ports.iter().filter(is_reachable).cloned().collect();
        if ports.is_empty() {
            continue;
        }
        let key = service.key();
        let rule = match purpose {
            Purpose::Calls | Purpose::PassingOn => outbound_rule(ctx, view, &key),
            Purpose::Fronting => waypoint::rule(ctx, view, service),
            Purpose::Terminating => None,
        };
        requests.push(Request {
            audience: audience.clone(),
            purpose,
            service: key,
            ports,
            rule: rule.map(|rule| rule.id.clone()),
            near: outbound::holds_endpoints(service).then(|| view.clone()),
        });
    }
    let made = ctx.get_all::<ServiceClusters>(&requests);
    clusters.reserve(made.iter().map(|of_service| of_service.len()).sum::<usize>() + USUAL_FIXED);
    made.iter().for_each(|of_service| clusters.extend_from_slice(of_service));
}

/// The clusters that the kind of a proxy and its settings bring.
fn of_kind(env: &Env<'_>, audience: &Audience) -> Vec<Resource> {
    let (settings, view) = (&*env.settings, env.view);
    let flags = &settings.flags;
    let mut clusters = match view.kind {
        NodeKind::Sidecar => {
            let mut clusters = vec![
                fixed::black_hole(settings),
                fixed::passthrough(settings, audience),
                fixed::inbound_passthrough(settings, audience),
            ];
            clusters.extend(dns::unknown_hosts(env, audience));
            if flags.get(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && view.metadata.enable_hbone.0 {
                clusters.push(hbone::main_internal(flags));
            }
            clusters
        }
        NodeKind::Waypoint => waypoint::fixed(env),
        _ => vec![fixed::black_hole(settings)],
    };
    if hbone::opens_tunnels(env) && view.kind != NodeKind::Waypoint {
        clusters.push(hbone::originate(settings, &view.metadata, None));
    }
    if hbone::crosses_networks(env) {
        clusters.extend(hbone::originate_double(settings, &view.metadata));
    }
    if audience.credential_socket {
        clusters.push(fixed::credential_server(settings));
    }
    clusters
}
