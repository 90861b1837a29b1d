//! Route tables of inbound listeners, which carry them inline.

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::Table;
use crate::names;
use crate::route::default;

/// Everything that comes in on a port goes to the application; `host` names the service it came in for, if known.
pub(crate) fn table(
    cluster: &str,
    host: &str,
    port: u32,
    protocol: Protocol,
    settings: &MeshSettings,
) -> Table {
    let route = default::inbound(cluster, names::operation(host, port), protocol, settings);
    let host = VirtualHost {
        name: format!("inbound|http|{port}"),
        domains: vec!["*".into()],
        routes: vec![route],
        ..Default::default()
    };
    let settings = RouteConfiguration { validate_clusters: Some(false.into()), ..Default::default() };
    Table::new(cluster, vec![host.into()], settings)
}
