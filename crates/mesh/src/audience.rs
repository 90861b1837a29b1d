//! Audiences: the facts about a proxy that generated configuration may depend on, each reduced to what some object in the
//! mesh can observe.
//!
//! No two pods are equal: labels, node, zone, owner and annotations differ. If configuration were generated for each proxy,
//! a fleet of a thousand would generate the same bytes a thousand times. So generators never see a proxy. They get an
//! *audience*, a small value made of the types below, and proxies with equal audiences share the result.
//!
//! Each type answers one question and drops everything else:
//!
//! | type | question | dropped |
//! |---|---|---|
//! | [`Role`] | what the proxy is deployed for | the labels that say so |
//! | [`Addressing`] | which addresses it can use | the addresses themselves |
//! | [`Caller`] | which services and DestinationRules it sees | labels that no rule selects by |
//! | [`PolicyTarget`] | which policies of some kinds apply | labels that no such policy selects by |
//! | [`Position`] | where it runs | zone, node and labels that no service or rule uses |
//! | [`GatewayRunner`] | which Gateways it runs | labels that no Gateway selects by |
//! | [`WaypointRunner`] | which services are behind it | everything but its place and ports |
//!
//! Invariant: a query that reads one of these values gets the answer that the complete proxy would have given. Labels are
//! reduced by [`SelectorLabels::reduce`], which preserves the result of every selector. The set of selectors is a tracked
//! query, so a new selector changes the audiences of the proxies it matches and of no others. A test compares generation
//! from reduced audiences with generation from complete ones.

mod position;
mod view;

use std::sync::Arc;

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_engine::Ctx;

use crate::scope::{self, ScopeKey};
use crate::world::settings;

pub use crate::attachment::PolicyTarget;
pub use crate::gateway::GatewayRunner;
pub use crate::proxy::{Addressing, Role, is_in_network};
pub use crate::selector::{SelectingKind, SelectorLabels, Unreduced, is_reduction_disabled};
use crate::selector::{has_objects, is_selected};
pub use crate::waypoint::WaypointRunner;
pub use position::{Position, PositionUse};
pub use view::View;

/// A proxy as a client: what it sees, and which DestinationRules apply to its connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// Identifies the scope of the proxy.
    pub scope: ScopeKey,
    /// The labels that DestinationRules of the namespace select the proxy by.
    pub labels: SelectorLabels,
}

impl Caller {
    /// Reduces a proxy to what its connections depend on.
    pub fn new(ctx: &Ctx<'_>, view: &View) -> Self {
        let rules = [(SelectingKind::DestinationRule, view.namespace.clone())];
        Self {
            namespace: view.namespace.clone(),
            scope: scope::choose(ctx, view.role.kind, &view.namespace, &view.labels),
            labels: SelectorLabels::reduce(ctx, &view.labels, &rules),
        }
    }
}

/// Reduces a proxy to what the policies of these kinds select it by.
pub fn policy_target(ctx: &Ctx<'_>, view: &View, kinds: &[SelectingKind]) -> PolicyTarget {
    let gateway = view.labels.get(known::GATEWAY_NAME.name).map(Arc::from);
    let is_waypoint = view.role.kind == NodeKind::Waypoint;
    let labels = if is_waypoint && gateway.is_none() {
        // Policies of every namespace with a service behind the waypoint may select it, so no label can be dropped.
        SelectorLabels::unreduced(&view.labels)
    } else {
        let root: Arc<str> = settings(ctx).root_namespace().into();
        let namespaces = [view.namespace.clone(), root];
        let own = if namespaces[0] == namespaces[1] { &namespaces[..1] } else { &namespaces[..] };
        let sources: Vec<_> =
            kinds.iter().flat_map(|kind| own.iter().map(|namespace| (*kind, namespace.clone()))).collect();
        SelectorLabels::reduce(ctx, &view.labels, &sources)
    };
    // A namespace whose policies are not for the workload is like all others.
    let own = &view.namespace;
    let matters = is_waypoint
        || is_reduction_disabled(ctx)
        || (gateway.is_some() && has_objects(ctx, kinds, own))
        || is_selected(ctx, kinds, own, &view.labels);
    let namespace = if matters { own.clone() } else { Arc::default() };
    PolicyTarget { namespace, gateway, labels, is_waypoint, service: None }
}
