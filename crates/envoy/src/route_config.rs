//! Route tables (RDS).

pub(crate) mod catch_all;
pub(crate) mod domains;
pub(crate) mod headers;
pub(crate) mod inbound;
mod sidecar;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::resource::Resource;

use crate::gateway;
pub(crate) use sidecar::virtual_hosts as sidecar_virtual_hosts;

/// Room for the longest body that validation lets a direct response have.
pub(crate) const MAX_DIRECT_RESPONSE_BYTES: u32 = 1 << 20;

/// One route table of a view, by its name. A name nobody uses is an empty table: a draining listener still asks.
pub struct Routes;

impl Query for Routes {
    const NAME: &'static str = "routes";
    type Key = (View, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (view, name): &Self::Key) -> Self::Value {
        let table = match view.kind {
            NodeKind::Router => gateway::route_table(ctx, view, name),
            NodeKind::Sidecar | NodeKind::Waypoint => sidecar::table(ctx, view, name),
            NodeKind::Ztunnel | NodeKind::Agentgateway => return None,
        };
        let table = table.unwrap_or_else(|| RouteConfiguration {
            name: name.clone(),
            validate_clusters: Some(false.into()),
            ..Default::default()
        });
        Some(Resource::encode(name.as_str(), &table))
    }
}
