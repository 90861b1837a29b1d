//! Listeners and hosts that a proxy does not get because another one occupies their address or name.
//!
//! Generation settles such conflicts as it meets them. These queries report them for metrics and explanations; no configuration is
//! configured by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;

use crate::audience::{AudiencesOf, Listening, RouteAudience, Shared};
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
        if proxy.is_proxyless() {
            return Conflicts::default();
        }
        let audiences = ctx.get::<AudiencesOf>(proxy);
        let clusters = || ctx.get::<Duplicates>(&audiences.clusters);
        match &audiences.listeners {
            Listening::Nowhere => Conflicts::default(),
            Listening::Sidecar { outbound, inbound } => Conflicts {
                inbound: listener::disagrees(ctx, proxy, inbound),
                listeners: listener::crowded(ctx, proxy, outbound, inbound),
                clusters: clusters(),
            },
            Listening::Gateway(_) | Listening::Waypoint(_) => {
                Conflicts { clusters: clusters(), ..Conflicts::default() }
            }
        }
    }
}

/// The virtual hosts of a sidecar's route table that lack a domain, or are not there at all, because another has it.
pub struct DuplicateDomains;

impl Query for DuplicateDomains {
    const NAME: &'static str = "duplicate_domains";
    /// The audience, and the name of the table.
    type Key = (Shared<RouteAudience>, Box<str>);
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, (audience, table): &Self::Key) -> Self::Value {
        match audience.role.kind {
            NodeKind::Sidecar => route_config::duplicates(ctx, audience, table),
            _ => BTreeSet::new(),
        }
    }
}
