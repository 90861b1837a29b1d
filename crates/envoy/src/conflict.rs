//! What a proxy goes without because something else has its place.
//!
//! Generation settles such conflicts as it meets them. Here they are told, for whoever counts or explains them; nobody is
//! configured by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View, ViewOf};

use crate::cluster::Duplicates;
use crate::{listener, route_config};

/// The conflicts of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Whether services disagree on what is spoken on a port of the workload; the oldest decides.
    pub inbound: bool,
    /// The names of outbound listeners on which connections to two services cannot be told apart; the older gets all.
    pub listeners: Vec<String>,
    /// The names of clusters that are wanted twice; the first of each counts.
    pub clusters: Arc<BTreeSet<String>>,
}

/// The conflicts of a proxy that is an Envoy.
pub struct ConflictsOf;

impl Query for ConflictsOf {
    const NAME: &'static str = "conflicts";
    type Key = Proxy;
    type Value = Conflicts;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Conflicts {
        let view = ctx.get::<ViewOf>(proxy);
        match view.kind {
            NodeKind::Ztunnel | NodeKind::Agentgateway => Conflicts::default(),
            _ if view.is_proxyless() => Conflicts::default(),
            NodeKind::Sidecar => Conflicts {
                inbound: listener::disagrees(ctx, proxy, &view),
                listeners: listener::crowded(ctx, proxy, &view),
                clusters: ctx.get::<Duplicates>(&view),
            },
            NodeKind::Router | NodeKind::Waypoint => {
                Conflicts { clusters: ctx.get::<Duplicates>(&view), ..Conflicts::default() }
            }
        }
    }
}

/// The virtual hosts of a sidecar's route table that lack a domain, or are not there at all, because another has it.
pub struct DuplicateDomains;

impl Query for DuplicateDomains {
    const NAME: &'static str = "duplicate_domains";
    /// The view, and the name of the table.
    type Key = (View, Box<str>);
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, (view, table): &Self::Key) -> Self::Value {
        match view.kind {
            NodeKind::Sidecar => route_config::duplicates(ctx, view, table),
            _ => BTreeSet::new(),
        }
    }
}
