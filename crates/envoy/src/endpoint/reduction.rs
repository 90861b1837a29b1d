//! The facts of an audience that the endpoints of one service depend on.
//!
//! Most endpoints are the same for sidecars, gateways and waypoints of every namespace and zone. So before endpoints are
//! generated, the audience is reduced: every fact that cannot make a difference to this service gets the same value for
//! everybody. Services that look at the node, the zone or the network of their callers, or that have a waypoint in front of
//! them, keep exactly what they look at.
//!
//! The invariant: the reduced audience leads to the same bytes as the whole one. The property test of audiences holds it to
//! that.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::{Addressing, Position, PositionUse, Role, is_reduction_disabled};
use canopus_mesh::destination_rule::Rule;
use canopus_mesh::endpoint::Endpoints;
use canopus_mesh::locality::Locality;
use canopus_mesh::service::{Service, ServiceKey};
use canopus_proto::istio::networking::v1alpha3::LocalityLoadBalancerSetting;
use canopus_proto::istio::networking::v1alpha3::locality_load_balancer_setting::Distribute;
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use super::gateways::UsableGateways;
use super::{Destination, Env, priority, visible, waypoint};
use crate::audience::{EndpointAudience, Tunnels};
use crate::proximity::{self, Proximity};

/// Stands for every region, zone and label value that no endpoint has. No locality and no label value contains it.
const ELSEWHERE: &str = "\0";

/// The audience that the endpoints of a destination are listed for.
pub(super) fn for_destination(env: &Env<'_>, destination: &Destination<'_>) -> EndpointAudience {
    if is_reduction_disabled(env.ctx) {
        return env.audience.clone();
    }
    let service = destination.service;
    if waypoint::in_front_of(env, service).is_some() {
        let position = Position { node: node(env, service), ..Position::default() };
        return EndpointAudience { position, ..env.audience.clone() };
    }
    let policy = destination
        .rule
        .as_ref()
        .and_then(|rule| rule.subset_policy(destination.subset, destination.port.number));
    let balancer = policy.as_ref().and_then(|policy| policy.load_balancer.as_ref());
    let detects_outliers = policy.as_ref().is_some_and(|policy| policy.outlier_detection.is_some());
    let proximity = proximity::find(env.mesh(), service, balancer);
    let position = Position {
        node: node(env, service),
        ..proximity
            .as_ref()
            .map(|setting| position(env, service, setting, detects_outliers))
            .unwrap_or_default()
    };
    let is_zone_aware = matches!(proximity, Some(Proximity::Zones(_)));
    reduced(env, service, position, is_zone_aware)
}

/// The audience that the clusters of a service hold endpoints for, of all its ports and subsets.
pub(crate) fn for_clusters(env: &Env<'_>, service: &Service, rule: Option<&Rule>) -> EndpointAudience {
    if is_reduction_disabled(env.ctx) {
        return env.audience.clone();
    }
    let used = PositionUse::for_destination(env.mesh(), service, rule.map(|rule| &rule.spec));
    let whole = reduced(env, service, env.audience.position.reduced_to(&used), true);
    // Names are resolved to addresses of the families that the proxy has.
    let Addressing { ipv4, ipv6, .. } = env.audience.addressing;
    EndpointAudience { addressing: Addressing { ipv4, ipv6, ..whole.addressing }, ..whole }
}

fn reduced(env: &Env<'_>, service: &Service, position: Position, is_zone_aware: bool) -> EndpointAudience {
    let traits = *env.ctx.get::<EndpointTraits>(&service.key());
    let gateways = env.ctx.get::<UsableGateways>(&service.resolution.is_dns());
    let crosses = traits.has_networks && (gateways.are_known() || env.flag(AMBIENT_ENABLE_MULTI_NETWORK));
    let EndpointAudience { role, proxyless, addressing, network, requested_networks, tunnels, .. } =
        env.audience;
    let opens_tunnels = tunnels.may_open && !proxyless && traits.take_tunnels;
    EndpointAudience {
        role: reduced_role(
            env,
            *role,
            RoleUse {
                told_from_sidecars: crosses && gateways.have_no_port_for_sidecars(),
                is_zone_aware,
                take_tunnels: traits.take_tunnels,
            },
        ),
        proxyless: false,
        addressing: Addressing {
            ipv4: crosses && addressing.ipv4,
            ipv6: crosses && addressing.ipv6,
            cluster: match visible::stays_within_cluster(env, service) {
                true => addressing.cluster.clone(),
                false => Arc::default(),
            },
            uses_allocated: false,
        },
        network: if crosses { network.clone() } else { Arc::default() },
        requested_networks: if traits.has_networks { requested_networks.clone() } else { Arc::default() },
        tunnels: Tunnels { may_open: opens_tunnels, takes: false },
        position,
        ..env.audience.clone().without_caller()
    }
}

/// What endpoints may depend on of a role.
struct RoleUse {
    /// A gateway to another network is of no use to sidecars, so they have to be told apart.
    told_from_sidecars: bool,
    /// Callers balance over zones, which waypoints do not.
    is_zone_aware: bool,
    /// Some endpoints are reached through tunnels.
    take_tunnels: bool,
}

fn reduced_role(env: &Env<'_>, role: Role, used: RoleUse) -> Role {
    // Proxies of the ambient mesh cross networks in ways of their own.
    if env.flag(AMBIENT_ENABLE_MULTI_NETWORK) {
        return role;
    }
    let kind = match role.kind {
        NodeKind::Sidecar => NodeKind::Sidecar,
        NodeKind::Waypoint if used.is_zone_aware => NodeKind::Waypoint,
        // Only gateways go through waypoints, so what is no gateway must not become one.
        _ if used.told_from_sidecars && !used.is_zone_aware => NodeKind::Waypoint,
        kind if used.told_from_sidecars => kind,
        _ => NodeKind::Sidecar,
    };
    Role {
        kind,
        is_ingress: false,
        is_managed_waypoint: false,
        is_east_west_gateway: role.is_east_west_gateway && used.take_tunnels,
    }
}

/// The node of the proxy, if that has endpoints of a service whose traffic stays on the node.
fn node(env: &Env<'_>, service: &Service) -> Option<Arc<str>> {
    let node = env.audience.position.node.as_ref().filter(|_| visible::is_node_local(service))?;
    let nodes = env.ctx.get::<EndpointNodes>(&service.key());
    nodes.contains(node).then(|| node.clone())
}

/// Where the proxy is, as far as a setting orders the endpoints of a service by it.
fn position(env: &Env<'_>, service: &Service, setting: &Proximity, detects_outliers: bool) -> Position {
    let standpoint = Standpoint { env, service: service.key(), nowhere: &Locality::default() };
    match setting {
        Proximity::Localities { setting, .. } if !setting.distribute.is_empty() => {
            standpoint.distributing(&setting.distribute)
        }
        Proximity::Localities { setting, always } if *always || detects_outliers => {
            standpoint.failing_over(setting)
        }
        Proximity::Zones(setting)
            if env.audience.role.kind != NodeKind::Waypoint
                && setting.enabled.as_ref().is_none_or(|enabled| enabled.value) =>
        {
            let region = standpoint.region(setting.failover.iter().map(|entry| &entry.from));
            Position {
                locality: Some(Arc::new(Locality { region, ..Locality::default() })),
                ..standpoint.labelled(&setting.failover_priority)
            }
        }
        _ => Position::default(),
    }
}

/// Where endpoints of a service are looked at from.
struct Standpoint<'a> {
    env: &'a Env<'a>,
    service: ServiceKey,
    nowhere: &'a Locality,
}

impl Standpoint<'_> {
    fn locality(&self) -> &Locality {
        self.env.audience.position.locality.as_deref().unwrap_or(self.nowhere)
    }

    /// Proxies that the same entry is for are in the same position.
    fn distributing(&self, entries: &[Distribute]) -> Position {
        let entry = priority::distribution(entries, self.locality());
        let pattern = entry.map_or_else(
            || Locality { region: ELSEWHERE.into(), zone: ELSEWHERE.into(), subzone: ELSEWHERE.into() },
            |entry| Locality::parse(&entry.from),
        );
        // What a pattern leaves open must not be covered by an earlier entry that does not leave it open.
        let fixed = |text: String| if matches!(&*text, "*" | "") { ELSEWHERE.to_owned() } else { text };
        let region = if pattern.region == "*" { ELSEWHERE.to_owned() } else { pattern.region };
        let locality = Locality { region, zone: fixed(pattern.zone), subzone: fixed(pattern.subzone) };
        Position { locality: Some(Arc::new(locality)), ..Position::default() }
    }

    fn failing_over(&self, setting: &LocalityLoadBalancerSetting) -> Position {
        let by_labels = !setting.failover_priority.is_empty();
        let position = self.labelled(&setting.failover_priority);
        if by_labels && setting.failover.is_empty() {
            return position;
        }
        let own = self.locality();
        let known = self.env.ctx.get::<EndpointLocalities>(&self.service);
        let is_zone = |other: &&Locality| other.region == own.region && other.zone == own.zone;
        let has_zone = known.iter().any(|other| is_zone(&other));
        let has_subzone = known.iter().any(|other| is_zone(&other) && other.subzone == own.subzone);
        let or_elsewhere =
            |known: bool, text: &str| if known { text.to_owned() } else { ELSEWHERE.to_owned() };
        let locality = Locality {
            region: self.region(setting.failover.iter().map(|entry| &entry.from)),
            zone: or_elsewhere(has_zone, &own.zone),
            subzone: or_elsewhere(has_subzone, &own.subzone),
        };
        Position { locality: Some(Arc::new(locality)), ..position }
    }

    /// The region, if endpoints are there or somebody says where to go from there.
    fn region<'f>(&self, mut sources: impl Iterator<Item = &'f String>) -> String {
        let region = &self.locality().region;
        let known = self.env.ctx.get::<EndpointLocalities>(&self.service);
        let counts = sources.any(|from| from == region) || known.iter().any(|other| other.region == *region);
        if counts { region.clone() } else { ELSEWHERE.to_owned() }
    }

    /// The labels of the proxy that endpoints are preferred by, with the values that endpoints have.
    fn labelled(&self, wanted: &[String]) -> Position {
        let own = &self.env.audience.position;
        if wanted.is_empty() || !own.has_labels {
            return Position::default();
        }
        let mut labels = Labels::new();
        for key in wanted.iter().filter(|entry| !entry.contains('=')) {
            let Some(value) = own.labels.get(key) else { continue };
            let values =
                self.env.ctx.get::<EndpointLabelValues>(&(self.service.clone(), key.as_str().into()));
            labels.insert(key.as_str(), if values.contains(value) { value } else { ELSEWHERE });
        }
        Position { labels, has_labels: true, ..Position::default() }
    }
}

/// What some endpoints of a service are like. It changes far less often than they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SomeEndpoints {
    /// Some endpoints take HBONE tunnels.
    take_tunnels: bool,
    /// Some endpoints name their network.
    has_networks: bool,
}

/// What some endpoints of a service are like.
struct EndpointTraits;

impl Query for EndpointTraits {
    const NAME: &'static str = "some_endpoint_traits";
    type Key = ServiceKey;
    type Value = SomeEndpoints;

    fn run(ctx: &Ctx<'_>, service: &ServiceKey) -> SomeEndpoints {
        let endpoints = ctx.get::<Endpoints>(service);
        let mut workloads = endpoints.iter().map(|endpoint| &endpoint.workload);
        SomeEndpoints {
            take_tunnels: workloads.clone().any(|workload| super::lb_endpoint::takes_tunnels(workload)),
            has_networks: workloads.any(|workload| !workload.network.is_empty()),
        }
    }
}

/// The nodes that endpoints of a service are on.
struct EndpointNodes;

impl Query for EndpointNodes {
    const NAME: &'static str = "endpoint_nodes";
    type Key = ServiceKey;
    type Value = BTreeSet<Arc<str>>;

    fn run(ctx: &Ctx<'_>, service: &ServiceKey) -> Self::Value {
        ctx.get::<Endpoints>(service).iter().map(|endpoint| endpoint.workload.node.clone()).collect()
    }
}

/// The localities that endpoints of a service are in.
struct EndpointLocalities;

impl Query for EndpointLocalities {
    const NAME: &'static str = "endpoint_localities";
    type Key = ServiceKey;
    type Value = Vec<Locality>;

    fn run(ctx: &Ctx<'_>, service: &ServiceKey) -> Self::Value {
        let endpoints = ctx.get::<Endpoints>(service);
        let texts: BTreeSet<&str> = endpoints.iter().map(|endpoint| &*endpoint.workload.locality).collect();
        texts.into_iter().map(Locality::parse).collect()
    }
}

/// The values that endpoints of a service have of a label; those of gateways to other networks too, which may stand for them.
struct EndpointLabelValues;

impl Query for EndpointLabelValues {
    const NAME: &'static str = "endpoint_label_values";
    type Key = (ServiceKey, Box<str>);
    type Value = BTreeSet<Box<str>>;

    fn run(ctx: &Ctx<'_>, (service, label): &Self::Key) -> Self::Value {
        let endpoints = ctx.get::<Endpoints>(service);
        let values = endpoints.iter().filter_map(|endpoint| endpoint.workload.labels.get(label));
        let mut values: BTreeSet<Box<str>> = values.map(Into::into).collect();
        let gateways = ctx.get::<UsableGateways>(&true);
        match &**label {
            name if name == known::TOPOLOGY_NETWORK.name => values.extend(gateways.networks()),
            name if name == known::TOPOLOGY_CLUSTER.name => values.extend(gateways.clusters()),
            _ => {}
        }
        values
    }
}
