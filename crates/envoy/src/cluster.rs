//! Clusters (CDS): where a proxy's traffic may go, and how it gets there.

mod connection_pool;
mod constant;
mod dns;
mod draft;
mod duplicate;
mod fixed;
mod gateway;
mod group;
pub(crate) mod hbone;
mod inbound;
pub(crate) mod load_balancer;
mod mesh_tls;
mod metadata;
mod outbound;
mod outlier;
mod stat_name;
#[cfg(test)]
mod tests;
mod traits;
mod transport;
mod waypoint;
mod why;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::FastSet;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::list::List;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope;
use canopus_mesh::service::{Port, Resolution, Service};
use canopus_proto::resource::Resource;

use self::constant::ConstantCluster;
pub(crate) use self::duplicate::Duplicates;
use self::group::{ClusterGroup, PatchedClusterGroup};
use self::outbound::{Purpose, Request, ServiceClusters};
use self::traits::ClientTraits;
pub use self::why::reads_of;
use crate::audience::{Audiences, AudiencesOf, ClusterAudience, EndpointAudience, PatchSet, Shared, intern};
use crate::endpoint;
use crate::env::Inputs;
use crate::envoy_filter::Patched;
use crate::resources::Resources;
use canopus_mesh::audience::is_reduction_disabled;
use canopus_mesh::destination_rule::Rule;

/// How many clusters a proxy has, at most, that are of no service.
const USUAL_FIXED: usize = 8;

/// Every cluster of a proxy.
pub struct Clusters;

impl Query for Clusters {
    const NAME: &'static str = "clusters";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let list = list(ctx, proxy, &ctx.get::<AudiencesOf>(proxy));
        ctx.get::<ListedClusters>(&list).as_ref().clone()
    }
}

/// What decides all clusters of a proxy: the groups they come in, and what is patched of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterList {
    groups: Vec<ClusterGroup>,
    patches: PatchSet,
}

/// The clusters of all proxies that have this list.
pub struct ListedClusters;

impl Query for ListedClusters {
    const NAME: &'static str = "listed_clusters";
    type Key = Shared<ClusterList>;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, list: &Shared<ClusterList>) -> Resources {
        let mut clusters = Resources::new();
        for group in &list.groups {
            // Mostly no patch is for clusters, and then there is nothing to be said about patches.
            clusters.push(match list.patches.is_empty() {
                true => group.generated(ctx),
                false => patched_group(ctx, list, group).resources.clone(),
            });
        }
        clusters
    }
}

/// The list of a proxy of these audiences.
pub(crate) fn list(ctx: &Ctx<'_>, proxy: &Proxy, audiences: &Audiences) -> Shared<ClusterList> {
    let mut groups = vec![ClusterGroup::Shared(audiences.clusters.clone())];
    if proxy.id.kind == NodeKind::Sidecar {
        groups.push(ClusterGroup::Inbound(inbound::Audience::new(ctx, proxy, &audiences.inbound_clusters)));
    }
    intern(ctx, ClusterList { groups, patches: audiences.cluster_patches.clone() })
}

/// The clusters of a proxy after the patches of EnvoyFilters, group by group.
pub(crate) fn patched(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let list = list(ctx, proxy, &ctx.get::<AudiencesOf>(proxy));
    list.groups.iter().map(|group| patched_group(ctx, &list, group)).collect()
}

fn patched_group(ctx: &Ctx<'_>, list: &ClusterList, group: &ClusterGroup) -> Arc<Patched> {
    ctx.get::<PatchedClusterGroup>(&(group.clone(), list.patches.clone()))
}

/// What clusters are generated from: an audience and the world around it.
pub(crate) type Env<'a> = Inputs<'a, ClusterAudience>;

/// The clusters of an audience, but for those of a workload of its own.
struct SharedClusters;

impl Query for SharedClusters {
    const NAME: &'static str = "shared_clusters";
    type Key = Shared<ClusterAudience>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ClusterAudience>) -> Vec<Resource> {
        let env = &Env::new(ctx, &**audience);
        let traits = ClientTraits::from(&**audience);
        let mut clusters = Vec::new();
        for (purpose, services) in destinations(env) {
            add_services(&mut clusters, env, &traits, &services, purpose);
        }
        let of_no_service = ctx.get_all::<ConstantCluster>(&constant::clusters(env, &traits));
        of_no_service.iter().for_each(|made| clusters.extend_from_slice(made));
        // Services that claim the same host and port make the same cluster: the first one counts.
        let mut names = FastSet::with_capacity_and_hasher(clusters.len(), Default::default());
        clusters.retain(|cluster| names.insert(cluster.name.clone()));
        clusters
    }
}

/// The services a proxy has clusters for, by what the clusters are for.
fn destinations(env: &Env<'_>) -> Vec<(Purpose, List<Service>)> {
    let scope = &env.audience.caller.scope;
    match env.audience.role.kind {
        NodeKind::Router => {
            let mut destinations = vec![(Purpose::Calls, gateway::services(env))];
            if gateway::passes_connections_on(env) {
                let services = scope::services(env.ctx, scope);
                let of_mesh: Vec<_> = services.iter().filter(|service| !service.external).cloned().collect();
                destinations.push((Purpose::PassingOn, of_mesh.into()));
            }
            destinations
        }
        NodeKind::Waypoint => {
            let fronted = waypoint::fronted(env).to_vec();
            let is_east_west_gateway = env.audience.role.is_east_west_gateway;
            let purpose = if is_east_west_gateway { Purpose::Terminating } else { Purpose::Fronting };
            vec![(Purpose::Calls, waypoint::called(env).into()), (purpose, fronted.into())]
        }
        _ => vec![(Purpose::Calls, scope::services(env.ctx, scope))],
    }
}

/// Adds the clusters of services, in their order.
fn add_services(
    clusters: &mut Vec<Resource>,
    env: &Env<'_>,
    traits: &ClientTraits,
    services: &List<Service>,
    purpose: Purpose,
) {
    let (ctx, settings) = (env.ctx, &*env.settings);
    let mut requests = Vec::with_capacity(services.len());
    let of_sidecars = if is_reduction_disabled(ctx) { traits.clone() } else { traits.gateway_as_sidecar() };
    for service in services {
        let is_reachable = |port: &&Port| outbound::is_reachable(&settings.flags, purpose, service, port);
        let ports: Vec<_> = service.ports.iter().filter(is_reachable).cloned().collect();
        if ports.is_empty() {
            continue;
        }
        let key = service.key();
        let rule = match purpose {
            Purpose::Calls | Purpose::PassingOn => outbound_rule(ctx, &env.audience.caller, &key),
            Purpose::Fronting => waypoint::rule(env, service),
            Purpose::Terminating => None,
        };
        let is_alike = purpose == Purpose::Calls && is_alike_for_gateways(service, rule.as_deref());
        requests.push(Request {
            traits: if is_alike { of_sidecars.clone() } else { traits.clone() },
            purpose,
            service: key,
            ports,
            near: outbound::holds_endpoints(service).then(|| near(env, service, rule.as_deref())),
            rule: rule.map(|rule| rule.id.clone()),
        });
    }
    let made = ctx.get_all::<ServiceClusters>(&requests);
    clusters.reserve(made.iter().map(|of_service| of_service.len()).sum::<usize>() + USUAL_FIXED);
    made.iter().for_each(|of_service| clusters.extend_from_slice(of_service));
}

/// Whether gateways have the same clusters of a service as sidecars: they differ in connections that go where the client
/// wanted, in what is done about unknown protocols, and in who may read secrets.
fn is_alike_for_gateways(service: &Service, rule: Option<&Rule>) -> bool {
    service.resolution != Resolution::Passthrough
        && service.ports.iter().all(|port| !port.protocol.is_unsupported())
        && rule.is_none_or(|rule| !rule.has_client_tls())
}

/// The audience of the endpoints that a cluster of this service holds itself.
fn near(env: &Env<'_>, service: &Service, rule: Option<&Rule>) -> Box<EndpointAudience> {
    let whole = env.audience.endpoints();
    Box::new(endpoint::audience_for_clusters(&endpoint::Env::new(env.ctx, &whole), service, rule))
}
