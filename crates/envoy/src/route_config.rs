//! Route tables (RDS).

pub(crate) mod catch_all;
pub(crate) mod domains;
mod gateway;
mod host;
pub(crate) mod inbound;
mod sidecar;
mod table;
pub(crate) mod waypoint;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::resource::Resource;

use crate::audience::{PatchSet, RouteAudience, Shared, TableAudience};
use crate::envoy_filter::{self, Patched};
pub(crate) use host::{Host, Traits};
pub(crate) use sidecar::{duplicates, virtual_hosts as sidecar_virtual_hosts};
pub(crate) use table::Table;

/// Room for the longest body that validation lets a direct response have.
pub(crate) const MAX_DIRECT_RESPONSE_BYTES: u32 = 1 << 20;

/// One route table, by its name. A name nobody uses is an empty table: a draining listener still asks.
pub struct Routes;

impl Query for Routes {
    const NAME: &'static str = "routes";
    type Key = (TableAudience, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value {
        let (audience, name) = key;
        // Mostly no patch is for tables, and then there is nothing to be said about patches.
        if !audience.patches.is_empty() {
            return ctx.get::<PatchedTables>(key).resources.first().cloned();
        }
        has_tables(&audience.routes).then(|| match table(ctx, &audience.routes, name) {
            // Tables of one virtual host mostly are the same in all namespaces.
            Some(table) if table.is_small() => ctx.get::<SmallTable>(&table).as_ref().clone(),
            Some(table) => table.to_resource(),
            None => unused(ctx, name),
        })
    }
}

/// A table of at most one virtual host, known by what it says.
struct SmallTable;

impl Query for SmallTable {
    const NAME: &'static str = "small_route_table";
    type Key = Table;
    type Value = Resource;

    fn run(_: &Ctx<'_>, table: &Table) -> Resource {
        table.to_resource()
    }
}

/// The table after the patches of EnvoyFilters, with what became of them.
pub(crate) struct PatchedTables;

impl Query for PatchedTables {
    const NAME: &'static str = "patched_routes";
    type Key = (TableAudience, String);
    type Value = Patched;

    fn run(ctx: &Ctx<'_>, (TableAudience { routes, patches }, name): &Self::Key) -> Self::Value {
        let generated = TableAudience { routes: routes.clone(), patches: PatchSet::default() };
        match ctx.get::<Routes>(&(generated, name.clone())).as_ref() {
            Some(generated) if is_used(ctx, routes, name) => {
                envoy_filter::table(ctx, routes, patches, generated.clone())
            }
            Some(unused) => Patched::untouched(Arc::new(vec![unused.clone()])),
            None => Patched::default(),
        }
    }
}

/// Whether such proxies route requests by tables.
fn has_tables(audience: &RouteAudience) -> bool {
    matches!(audience.role.kind, NodeKind::Router | NodeKind::Sidecar | NodeKind::Waypoint)
}

/// A table by its name; `None` if nobody uses it.
fn table(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>, name: &str) -> Option<Table> {
    match audience.role.kind {
        NodeKind::Router => gateway::table(ctx, audience, name),
        _ => sidecar::table(ctx, audience, name),
    }
}

/// Whether somebody uses a table of this name.
fn is_used(ctx: &Ctx<'_>, audience: &RouteAudience, name: &str) -> bool {
    match audience.role.kind {
        NodeKind::Router => gateway::has_table(ctx, audience, name),
        _ => sidecar::has_table(name),
    }
}

/// What the tables of outbound and gateway listeners say besides their virtual hosts.
pub(crate) fn settings() -> RouteConfiguration {
    RouteConfiguration {
        validate_clusters: Some(false.into()),
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES.into()),
        ignore_port_in_host_matching: true,
        ..Default::default()
    }
}

/// The table of a name nobody uses.
fn unused(ctx: &Ctx<'_>, name: &str) -> Resource {
    let settings = RouteConfiguration { validate_clusters: Some(false.into()), ..Default::default() };
    ctx.get::<SmallTable>(&Table::new(name, Vec::new(), settings)).as_ref().clone()
}
