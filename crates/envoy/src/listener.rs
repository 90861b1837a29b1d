//! Listeners (LDS).

pub(crate) mod address;
mod catch_all;
mod chain;
mod connect;
mod http_proxy;
mod inbound;
pub(crate) mod inspect;
mod outbound;
mod port;
mod sidecar;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, ViewOf};

use self::connect::Originated;
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
        let mut listeners = match view.kind {
            NodeKind::Sidecar => sidecar::listeners(ctx, proxy, &view),
            NodeKind::Router => ctx.get::<GatewayListeners>(&view).into(),
            _ => return Resources::new(),
        };
        listeners.push(ctx.get::<Originated>(&view));
        listeners
    }
}
