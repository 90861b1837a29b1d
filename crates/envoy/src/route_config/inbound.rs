//! Route tables of inbound listeners, which carry them inline.

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;

use super::{Host, Table, Traits};
use crate::names;
use crate::route::default;

/// Route table that sends all requests on a port to the application; `host` names the service they came in for, if known.
pub(crate) fn table(
    cluster: &str,
    host: &str,
    port: u32,
    protocol: Protocol,
    settings: &MeshSettings,
) -> Table {
    let port = &*port.to_string();
    let operation = [&*names::bracketed(host), ":", port, "/*"];
    let routes = default::inbound(cluster, &operation, protocol, settings);
    let name = ["inbound|http|", port].concat();
    Table::for_application(
        cluster,
        Host::with_own_routes(name.into(), vec!["*".into()], routes, &Traits::default()),
    )
}
