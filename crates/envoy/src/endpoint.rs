//! Endpoints (EDS): where the instances of a cluster's service listen, as one proxy should use them.
//!
//! ```text
//! cluster name ──► Target: service, port, subset, rule       (Assignment, one for each audience)
//!                     │ reduction: only the facts that this service's endpoints look at
//!                     ▼
//!                  visible ──► lb_endpoint ──► group by locality ──► gateways of other networks ──► priority
//!                                                                    (Assigned, shared by all who reduce to the same)
//! ```
//!
//! What a name means depends on who asks, so it is settled first, in [`Assignment`]. Generation itself depends on the target
//! and
//! a reduced audience: proxies that differ in nothing these endpoints look at share one result, and an EndpointSlice that
//! changes is encoded once for all of them. A change here must not read the full audience below `Assigned`.

mod gateways;
mod group;
mod lb_endpoint;
mod mutual_tls;
mod priority;
mod reduction;
#[cfg(test)]
mod tests;
mod visible;
mod waypoint;

use std::sync::Arc;

use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::{self, Rule, RuleId, outbound_rule};
use canopus_mesh::endpoint::{Endpoint, Endpoints};
use canopus_mesh::gateway_api::is_inference_pool;
use canopus_mesh::scope::scoped_service;
use canopus_mesh::service::{self, Port, Service, ServiceKey};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::resource::Resource;

use self::visible::Visibility;
use crate::audience::{EndpointAudience, Shared};
use crate::env::Inputs;
use crate::names::ClusterName;
use crate::pool;

pub(crate) use group::{Group, take_messages};
pub(crate) use lb_endpoint::address;
pub(crate) use priority::{order, prioritise};
pub(crate) use reduction::for_clusters as audience_for_clusters;

/// The endpoints of one cluster, by its name. An unknown cluster has none.
pub struct Assignment;

impl Query for Assignment {
    const NAME: &'static str = "assignment";
    type Key = (Shared<EndpointAudience>, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, cluster): &Self::Key) -> Option<Resource> {
        let env = Env::new(ctx, &**audience);
        let found = Target::find(&env, cluster).and_then(|target| {
            let audience = Shared::new(target.audience(&env, cluster)?);
            ctx.get::<Assigned>(&(audience, cluster.as_str().into(), target)).as_ref().clone()
        });
        Some(found.unwrap_or_else(|| ctx.get::<Unassigned>(&cluster.as_str().into()).as_ref().clone()))
    }
}

/// The empty assignment of an unknown cluster.
struct Unassigned;

impl Query for Unassigned {
    const NAME: &'static str = "unassigned_endpoints";
    type Key = Box<str>;
    type Value = Resource;

    fn run(_: &Ctx<'_>, cluster: &Box<str>) -> Resource {
        pool::ENDPOINTS.share(Resource::encode(&**cluster, &nothing(cluster)))
    }
}

/// The endpoints of a port of a service. Which service a cluster's name means, and which rule is for the caller, is settled, so
/// that callers of different scopes share them.
struct Assigned;

impl Query for Assigned {
    const NAME: &'static str = "assigned_endpoints";
    type Key = (Shared<EndpointAudience>, Box<str>, Target);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, cluster, target): &Self::Key) -> Option<Resource> {
        let env = Env::new(ctx, &**audience);
        let assignment = target.assignment(&env, cluster)?;
        Some(pool::ENDPOINTS.share(Resource::encode(&**cluster, &assignment)))
    }
}

/// A port of a service, or of a subset of it, as a cluster stands for it.
#[derive(Clone)]
pub(crate) struct Destination<'a> {
    /// Name of the cluster.
    pub(crate) cluster: &'a str,
    /// The service.
    pub(crate) service: &'a Service,
    /// The service port that the cluster leads to.
    pub(crate) port: &'a Port,
    /// The subset; empty for the whole service.
    pub(crate) subset: &'a str,
    /// The destination rule that applies.
    pub(crate) rule: Option<Arc<Rule>>,
    /// Whether the endpoints are those of a waypoint in front of the service.
    pub(crate) through_waypoint: bool,
}

impl Destination<'_> {
    /// Whether the cluster is a waypoint's for a service that it stands in front of.
    fn is_fronted(&self) -> bool {
        ClusterName::parse(self.cluster).is_some_and(|name| name.direction == "inbound-vip")
    }

    /// The labels that endpoints of the subset have.
    fn labels(&self) -> Labels {
        self.rule.as_ref().map(|rule| rule.subset_labels(self.subset)).unwrap_or_default()
    }
}

/// The inputs of generated endpoints: an audience and the world.
pub(crate) type Env<'a> = Inputs<'a, EndpointAudience>;

fn nothing(cluster: &str) -> ClusterLoadAssignment {
    ClusterLoadAssignment { cluster_name: cluster.to_owned(), ..Default::default() }
}

/// The service, port and rule that the name of a cluster stands for, to one audience.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    service: ServiceKey,
    port: Port,
    rule: Option<RuleId>,
}

impl Target {
    fn find(env: &Env<'_>, cluster: &str) -> Option<Self> {
        let name = ClusterName::parse(cluster)?;
        let caller = &env.audience.caller;
        let service = scoped_service(env.ctx, &caller.scope, name.host)?;
        let port = service.port(name.port).filter(|_| !service.resolution.is_dns())?.clone();
        let rule = outbound_rule(env.ctx, caller, &service.key());
        Some(Self { service: service.key(), port, rule: rule.map(|rule| rule.id.clone()) })
    }

    /// The audience, reduced to the facts that the endpoints of this target depend on.
    fn audience(&self, env: &Env<'_>, cluster: &str) -> Option<EndpointAudience> {
        let service = service::service(env.ctx, &self.service)?;
        Some(reduction::for_destination(env, &self.destination(env.ctx, cluster, &service)?))
    }

    fn destination<'a>(
        &'a self,
        ctx: &Ctx<'_>,
        cluster: &'a str,
        service: &'a Service,
    ) -> Option<Destination<'a>> {
        Some(Destination {
            cluster,
            service,
            port: &self.port,
            subset: ClusterName::parse(cluster)?.subset_of_service(),
            rule: self.rule.as_ref().and_then(|id| destination_rule::rule(ctx, id)),
            through_waypoint: false,
        })
    }

    fn assignment(&self, env: &Env<'_>, cluster: &str) -> Option<ClusterLoadAssignment> {
        let service = service::service(env.ctx, &self.service)?;
        let mut destination = self.destination(env.ctx, cluster, &service)?;
        if let Some(waypoints) = waypoint::in_front_of(env, &service) {
            destination.through_waypoint = true;
            let mut groups = groups(env, &destination, waypoints);
            return Some(ClusterLoadAssignment { endpoints: take_messages(&mut groups), ..nothing(cluster) });
        }
        let mut groups = listed(env, &destination);
        let mut assignment =
            ClusterLoadAssignment { endpoints: take_messages(&mut groups), ..nothing(cluster) };
        if !groups.is_empty() {
            prioritise(env, &destination, &groups, &mut assignment);
        }
        Some(assignment)
    }
}

/// The endpoints that the control plane lists for a destination, by locality.
fn listed(env: &Env<'_>, destination: &Destination<'_>) -> Vec<Group> {
    let endpoints = env.ctx.get::<Endpoints>(&destination.service.key());
    let labels = destination.labels();
    let is_pool = is_inference_pool(destination.service);
    let of_port = endpoints.iter().filter(|endpoint| {
        // A name in the place of an address is for proxies that resolve it.
        // One without address is behind the gateway of its network.
        let address = endpoint.address();
        let resolved =
            endpoint.port == 0 || address.is_empty() || canopus_base::net::parse_ip(address).is_ok();
        (is_pool || endpoint.port_name == destination.port.name)
            && resolved
            && labels.subset_of(&endpoint.workload.labels)
    });
    groups(env, destination, of_port.cloned().collect())
}

/// The endpoints of a destination that the proxy resolves by name, by locality.
pub(crate) fn resolved(env: &Env<'_>, destination: &Destination<'_>) -> Vec<Group> {
    let endpoints = env.ctx.get::<Endpoints>(&destination.service.key());
    let (port, labels) = (destination.port, destination.labels());
    let of_port = endpoints.iter().filter(|endpoint| {
        endpoint.is_for(&port.name, port.number) && labels.subset_of(&endpoint.workload.labels)
    });
    groups(env, destination, of_port.cloned().collect())
}

fn groups(env: &Env<'_>, destination: &Destination<'_>, mut endpoints: Vec<Arc<Endpoint>>) -> Vec<Group> {
    let visibility = Visibility::new(env, destination);
    endpoints.retain(|endpoint| visibility.covers(endpoint));
    let groups = group::by_locality(env, destination, &endpoints);
    let groups = gateways::through_gateways(env, destination, groups);
    if ClusterName::parse(destination.cluster).is_some_and(|name| name.is_sni) {
        // The gateway cannot see whether a connection it passes on is mutual TLS.
        return groups.into_iter().map(Group::with_mutual_tls_only).collect();
    }
    groups
}
