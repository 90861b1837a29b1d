//! Listeners (LDS).
//!
//! The listeners of a proxy come in groups (`group`): those that many proxies share are generated once, those of its own workload
//! apart from them, and EnvoyFilters patch a group as a whole. Sidecars have `outbound`, `inbound` and a catch-all, gateways
//! (`gateway`) what Gateway objects describe, waypoints (`waypoint`) one that leads into internal ones.
//!
//! A listener is mostly filter chains, and a chain mostly filters, which many chains share. So chains are encoded as they are
//! added ([`draft`]) and the listener is put together from bytes; its message is never built.

mod catch_all;
mod chain;
pub(crate) mod connect;
pub(crate) mod distinct_chains;
pub(crate) mod draft;
mod gateway;
mod group;
mod http_proxy;
mod inbound;
pub(crate) mod inspect;
mod outbound;
mod port;
mod sidecar;
#[cfg(test)]
mod tests;
mod waypoint;
mod why;

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;

use self::group::{ListenerGroup, PatchedListenerGroup};
pub(crate) use self::sidecar::{crowded, disagrees};
pub use self::why::reads_of;
use crate::audience::{AudiencesOf, Listening};
use crate::envoy_filter::Patched;
use crate::resources::Resources;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let audiences = ctx.get::<AudiencesOf>(proxy);
        let patches = &audiences.listener_patches;
        let mut listeners = Resources::new();
        for part in parts(ctx, proxy, &audiences.listeners) {
            // Mostly no patch is for listeners, and then there is nothing to be said about patches.
            listeners.push(match patches.is_empty() {
                true => part.generated(ctx),
                false => ctx.get::<PatchedListenerGroup>(&(part, patches.clone())).resources.clone(),
            });
        }
        listeners
    }
}

/// The listeners of a proxy after the patches of EnvoyFilters, part by part.
pub(crate) fn patched(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let audiences = ctx.get::<AudiencesOf>(proxy);
    let patched = |part| ctx.get::<PatchedListenerGroup>(&(part, audiences.listener_patches.clone()));
    parts(ctx, proxy, &audiences.listeners).into_iter().map(patched).collect()
}

fn parts(ctx: &Ctx<'_>, proxy: &Proxy, listening: &Listening) -> Vec<ListenerGroup> {
    let mut parts = Vec::new();
    let originating = match listening {
        Listening::Sidecar { outbound, inbound } => {
            parts.extend(sidecar::parts(ctx, proxy, outbound, inbound));
            outbound.clone()
        }
        Listening::Gateway(audience) => {
            parts.push(ListenerGroup::Gateway(audience.clone()));
            audience.clone()
        }
        Listening::Waypoint(audience) => return vec![ListenerGroup::Waypoint(audience.clone())],
        Listening::Nowhere => return Vec::new(),
    };
    if connect::is_originated(ctx) {
        parts.push(ListenerGroup::Originated(originating.without_caller(ctx).for_connections(ctx)));
    }
    parts
}
