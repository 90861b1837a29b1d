//! Listeners (LDS).

pub(crate) mod address;
mod catch_all;
mod chain;
pub(crate) mod connect;
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
use canopus_mesh::proxy::{Proxy, ViewOf};

use self::part::{Part, PatchedPart};
pub(crate) use self::sidecar::{crowded, disagrees};
pub use self::why::reads_of;
use crate::envoy_filter::Patched;
use crate::resources::Resources;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let mut listeners = Resources::new();
        for part in parts(ctx, proxy) {
            listeners.push(part.resources.clone());
        }
        listeners
    }
}

/// The listeners of a proxy, part by part.
pub(crate) fn parts(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let view = ctx.get::<ViewOf>(proxy);
    let mut parts = match view.kind {
        NodeKind::Sidecar => sidecar::parts(ctx, proxy, &view),
        NodeKind::Router => vec![Part::Gateway(view.as_ref().clone())],
        NodeKind::Waypoint => vec![Part::Waypoint(view.as_ref().clone())],
        _ => return Vec::new(),
    };
    if view.kind != NodeKind::Waypoint {
        parts.push(Part::Originated(view.as_ref().clone()));
    }
    parts.iter().map(|part| ctx.get::<PatchedPart>(part)).collect()
}
