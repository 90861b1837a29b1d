//! Listeners (LDS).

pub(crate) mod address;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, ViewOf};

use crate::gateway::GatewayListeners;
use crate::resources::Resources;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let view = ctx.get::<ViewOf>(proxy);
        let mut listeners = Resources::new();
        if view.kind == NodeKind::Router {
            listeners.push(ctx.get::<GatewayListeners>(&view));
        }
        listeners
    }
}
