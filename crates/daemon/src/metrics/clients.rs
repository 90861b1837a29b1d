//! What connected proxies go without, counted when somebody asks.
//!
//! Istio sets these gauges while it generates, so that they tell what its last push happened to come across. Here they tell
//! what is so for those who are connected now.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::hash::ContentHash;
use canopus_base::{FastMap, FastSet};
use canopus_engine::{QueryError, Snapshot};
use canopus_envoy::audience::{AudiencesOf, RouteAudience, Shared};
use canopus_envoy::conflict::{ConflictsOf, DuplicateDomains};
use canopus_mesh::endpoint::Endpoints;
use canopus_mesh::service::{AllServices, ServiceKey};
use canopus_mesh::target::Targets;
use canopus_runtime::metrics::Collected;
use canopus_runtime::metrics::catalogue::{
    PILOT_CONFLICT_INBOUND_LISTENER, PILOT_CONFLICT_OUTBOUND_LISTENER_TCP_OVER_CURRENT_TCP,
    PILOT_DUPLICATE_ENVOY_CLUSTERS, PILOT_EDS_NO_INSTANCES, PILOT_NO_IP, PILOT_VSERVICE_DUP_DOMAIN,
};
use canopus_xds::{Names, types};

use crate::push::Connection;

/// Looks at every connection.
pub(super) fn collect(collected: &mut Collected, world: &Snapshot, connections: &[Arc<Connection>]) {
    let mut census = Census::default();
    for connection in connections {
        // A query that fails is reported where proxies need its result.
        let _ = census.add(world, connection);
    }
    collected.push(PILOT_NO_IP, [], census.without_service.len() as f64);
    collected.push(PILOT_CONFLICT_INBOUND_LISTENER, [], census.inbound.len() as f64);
    collected.push(PILOT_CONFLICT_OUTBOUND_LISTENER_TCP_OVER_CURRENT_TCP, [], census.listeners.len() as f64);
    collected.push(PILOT_DUPLICATE_ENVOY_CLUSTERS, [], census.clusters.len() as f64);
    collected.push(PILOT_VSERVICE_DUP_DOMAIN, [], census.domains.len() as f64);
    collected.push(PILOT_EDS_NO_INSTANCES, [], empty_assignments(world, connections) as f64);
}

/// What some proxy goes without, by name: as in Istio, what many go without counts once.
#[derive(Default)]
struct Census<'a> {
    /// Proxies that stand for no service.
    without_service: BTreeSet<&'a str>,
    /// Proxies with a port on which services disagree.
    inbound: BTreeSet<&'a str>,
    /// Outbound listeners on which two services cannot be told apart.
    listeners: BTreeSet<String>,
    /// Clusters that are wanted twice.
    clusters: BTreeSet<String>,
    /// Virtual hosts that want a domain another has.
    domains: BTreeSet<String>,
    /// Audiences with the tables they ask for that were looked at.
    seen: FastSet<(Shared<RouteAudience>, ContentHash)>,
}

impl<'a> Census<'a> {
    fn add(&mut self, world: &Snapshot, connection: &'a Connection) -> Result<(), QueryError> {
        let proxy = &connection.proxy;
        let conflicts = world.get::<ConflictsOf>(proxy)?;
        if conflicts.inbound {
            self.inbound.insert(&proxy.id.id);
        }
        self.listeners.extend(conflicts.listeners.iter().cloned());
        self.clusters.extend(conflicts.clusters.iter().cloned());
        if proxy.id.kind != NodeKind::Sidecar {
            return Ok(());
        }
        if world.get::<Targets>(proxy)?.is_empty() {
            self.without_service.insert(&proxy.id.id);
        }
        let Some(tables) = names(connection, types::ROUTE) else { return Ok(()) };
        let routes = world.get::<AudiencesOf>(proxy)?.routes.routes.clone();
        if self.seen.insert((routes.clone(), tables.digest())) {
            for table in tables.iter() {
                let key = (routes.clone(), (**table).into());
                self.domains.extend(world.get::<DuplicateDomains>(&key)?.iter().cloned());
            }
        }
        Ok(())
    }
}

/// The names a client asks for one by one.
pub(super) fn names(connection: &Connection, type_url: &str) -> Option<Names> {
    connection.status(type_url)?.interest?.names().cloned()
}

/// The clusters some client asks endpoints for and gets none.
fn empty_assignments(world: &Snapshot, connections: &[Arc<Connection>]) -> usize {
    let Ok(services) = world.get::<AllServices>(&()) else { return 0 };
    let is_empty = |key: &ServiceKey| world.get::<Endpoints>(key).is_ok_and(|endpoints| endpoints.is_empty());
    let empty: FastSet<&str> =
        services.iter().filter(|service| is_empty(&service.key())).map(|service| &*service.host).collect();
    let asked = connections.iter().filter_map(|connection| names(connection, types::ENDPOINT));
    let asked: FastMap<_, Names> = asked.map(|names| (names.digest(), names)).collect();
    let host = |cluster: &str| cluster.rsplit('|').next().unwrap_or_default().to_owned();
    let all = asked.values().flat_map(|names| names.iter());
    let without: FastSet<&Arc<str>> = all.filter(|cluster| empty.contains(host(cluster).as_str())).collect();
    without.len()
}
