//! Listeners (LDS).

pub(crate) mod address;
mod catch_all;
mod chain;
pub(crate) mod connect;
pub(crate) mod draft;
mod http_proxy;
mod inbound;
pub(crate) mod inspect;
mod outbound;
mod part;
mod port;
mod sidecar;
#[cfg(test)]
mod tests;
mod waypoint;
mod why;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::{Proxy, View, ViewOf};

use self::part::{Part, PatchedPart};
pub(crate) use self::sidecar::{crowded, disagrees};
pub use self::why::reads_of;
use crate::envoy_filter::{self, Patched};
use crate::resources::Resources;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let view = ctx.get::<ViewOf>(proxy);
        // Mostly no patch is for listeners, and then there is nothing to be said about patches.
        let is_patched = envoy_filter::touch_listeners(ctx, &view);
        let mut listeners = Resources::new();
        for part in parts(ctx, proxy, &view) {
            listeners.push(match is_patched {
                true => ctx.get::<PatchedPart>(&part).resources.clone(),
                false => part.generated(ctx),
            });
        }
        listeners
    }
}

/// The listeners of a proxy after the patches of EnvoyFilters, part by part.
pub(crate) fn patched(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let view = ctx.get::<ViewOf>(proxy);
    parts(ctx, proxy, &view).iter().map(|part| ctx.get::<PatchedPart>(part)).collect()
}

fn parts(ctx: &Ctx<'_>, proxy: &Proxy, view: &View) -> Vec<Part> {
    let mut parts = match view.kind {
        NodeKind::Sidecar => sidecar::parts(ctx, proxy, view),
        NodeKind::Router => vec![Part::Gateway(view.clone())],
        NodeKind::Waypoint => return vec![Part::Waypoint(view.clone())],
        _ => return Vec::new(),
    };
    if connect::is_originated(ctx) {
        parts.push(Part::Originated(view.clone()));
    }
    parts
}
