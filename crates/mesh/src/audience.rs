//! The facts about proxies that configuration may depend on, each reduced to what can matter in this world.
//!
//! No two pods say the same about themselves: labels, node, zone, owner and annotations differ. Configuration that was
//! generated for each of them would be generated a thousand times for nothing. So generators never see a proxy. They get an
//! *audience*: a small value made of the types of this module. Proxies whose audiences are equal share the result.
//!
//! Each type here answers one question about a proxy and erases everything else:
//!
//! | type | question | erased |
//! |---|---|---|
//! | [`Role`] | what the proxy is there for | the labels that say so |
//! | [`Addressing`] | which addresses it can use | the addresses themselves |
//! | [`Caller`] | what it sees, and which DestinationRules are for it | labels no rule selects by |
//! | [`PolicyTarget`] | which policies of some kinds are for it | labels none of those policies selects by |
//! | [`Position`] | where it is | zone, node and labels that no service or rule looks at |
//!
//! The invariant: whatever a query reads of one of these values, it would have read the same of the whole proxy. Labels are
//! reduced by [`SelectorLabels::reduce`], which keeps the result of every selector; what selectors there are is a tracked
//! fact, so that a new one gives new audiences to those proxies alone that it selects.

mod position;
mod selectors;

use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Input};

use crate::attachment::PolicyTarget;
use crate::gateway::PortTarget;
use crate::proxy::View;
use crate::scope::{self, ScopeKey};
use crate::waypoint::{EAST_WEST_CONTROLLER, MESH_CONTROLLER};
use crate::world::settings;

pub use position::{Position, PositionUse};
pub use selectors::{SelectingKind, SelectorLabels};

/// Set in tests: nothing is left out of audiences.
///
/// What is generated for whole audiences is what generation from all facts gives, which the reduced ones are held to.
pub struct Unreduced;

impl Input for Unreduced {
    const NAME: &'static str = "unreduced_audiences";
    type Key = ();
    type Value = ();
    type Index = ();
}

/// Whether audiences are to be left whole.
pub fn is_reduction_disabled(ctx: &Ctx<'_>) -> bool {
    ctx.read::<Unreduced>(&()).is_some()
}

/// What a proxy is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// The part it plays.
    pub kind: NodeKind,
    /// Whether it is a gateway into the mesh.
    pub is_ingress: bool,
    /// Whether it is a waypoint that the control plane deployed.
    pub is_managed_waypoint: bool,
    /// Whether it is a gateway between the networks of an ambient mesh.
    pub is_east_west_gateway: bool,
}

impl Role {
    /// The role that a proxy's kind and labels say.
    pub fn new(kind: NodeKind, labels: &Labels) -> Self {
        let managed_by = labels.get(known::GATEWAY_MANAGED.name);
        let is_waypoint = kind == NodeKind::Waypoint;
        Self {
            kind,
            is_ingress: kind == NodeKind::Router
                && (managed_by == Some("istio.io-gateway-controller")
                    || labels.get("istio") == Some("ingressgateway")),
            is_managed_waypoint: is_waypoint && managed_by == Some(MESH_CONTROLLER),
            is_east_west_gateway: is_waypoint && managed_by == Some(EAST_WEST_CONTROLLER),
        }
    }
}

/// Which addresses a proxy can use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addressing {
    /// Whether it has an IPv4 address.
    pub ipv4: bool,
    /// Whether it has an IPv6 address.
    pub ipv6: bool,
    /// The cluster it runs in, whose addresses of services it uses.
    pub cluster: Arc<str>,
    /// Whether addresses that were allocated for services without one mean something to it: its agent answers DNS.
    pub uses_allocated: bool,
}

impl Addressing {
    /// Whether the proxy has an address of the family of this one; names and CIDRs of unknown family count as supported.
    pub fn supports(&self, address: &str) -> bool {
        match parse_ip(address.split('/').next().unwrap_or(address)) {
            Ok(IpAddr::V4(_)) => self.ipv4,
            Ok(IpAddr::V6(_)) => self.ipv6,
            Err(_) => true,
        }
    }

    /// Whether `cluster` is the proxy's; an unnamed one is everybody's.
    pub fn is_in_cluster(&self, cluster: &str) -> bool {
        cluster.is_empty() || self.cluster.is_empty() || *self.cluster == *cluster
    }
}

/// Whether `network` is the proxy's `own`; an unnamed one is everybody's.
pub fn is_in_network(own: &str, network: &str) -> bool {
    network.is_empty() || own.is_empty() || own == network
}

/// What a proxy sees, and which DestinationRules are for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// Whose scope it has.
    pub scope: ScopeKey,
    /// The labels that DestinationRules of its namespace select it by.
    pub labels: SelectorLabels,
}

impl Caller {
    /// The caller that a proxy is.
    pub fn new(ctx: &Ctx<'_>, view: &View) -> Self {
        let rules = [(SelectingKind::DestinationRule, view.namespace.clone())];
        Self {
            namespace: view.namespace.clone(),
            scope: scope::choose(ctx, view.role.kind, &view.namespace, &view.labels),
            labels: SelectorLabels::reduce(ctx, &view.labels, &rules),
        }
    }
}

/// Which Gateways a proxy runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayRunner {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The labels that Gateways select it by.
    pub labels: SelectorLabels,
    /// Where the ports of its services lead.
    pub port_targets: Vec<PortTarget>,
    /// The identity it proved, which may use the credentials of its namespace.
    pub identity: Option<Identity>,
}

impl GatewayRunner {
    /// The runner that a proxy is; nothing selects proxies that are no gateways.
    pub fn new(ctx: &Ctx<'_>, view: &View) -> Self {
        Self {
            namespace: view.namespace.clone(),
            labels: SelectorLabels::for_gateways(ctx, &view.labels),
            port_targets: view.port_targets.clone(),
            identity: view.proxy.identity.clone(),
        }
    }
}

/// What a waypoint stands in front of follows from this.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaypointRunner {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Whether it is a gateway between networks.
    pub is_east_west_gateway: bool,
    /// The cluster it runs in.
    pub cluster: Arc<str>,
    /// The network it is in.
    pub network: Arc<str>,
    /// Where the ports of its services lead.
    pub port_targets: Vec<PortTarget>,
}

impl WaypointRunner {
    /// The runner that a proxy is; `None` if it is no waypoint.
    pub fn new(view: &View) -> Option<Self> {
        (view.role.kind == NodeKind::Waypoint).then(|| Self {
            namespace: view.namespace.clone(),
            is_east_west_gateway: view.role.is_east_west_gateway,
            cluster: view.proxy.metadata.cluster_id.as_str().into(),
            network: view.proxy.metadata.network.as_str().into(),
            port_targets: view.port_targets.clone(),
        })
    }
}

/// The target that policies of these kinds see in a proxy.
pub fn policy_target(ctx: &Ctx<'_>, view: &View, kinds: &[SelectingKind]) -> PolicyTarget {
    let gateway = view.labels.get(known::GATEWAY_NAME.name).map(Arc::from);
    let is_waypoint = view.role.kind == NodeKind::Waypoint;
    let labels = if is_waypoint && gateway.is_none() {
        // Policies of any namespace that the waypoint has services of may select it.
        SelectorLabels::unreduced(&view.labels)
    } else {
        let root: Arc<str> = settings(ctx).root_namespace().into();
        let namespaces = [view.namespace.clone(), root];
        let own = if namespaces[0] == namespaces[1] { &namespaces[..1] } else { &namespaces[..] };
        let sources: Vec<_> =
            kinds.iter().flat_map(|kind| own.iter().map(|namespace| (*kind, namespace.clone()))).collect();
        SelectorLabels::reduce(ctx, &view.labels, &sources)
    };
    PolicyTarget { namespace: view.namespace.clone(), gateway, labels, is_waypoint, service: None }
}
