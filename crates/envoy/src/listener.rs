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
use crate::audience::{Audiences, AudiencesOf, Listening, PatchSet, Shared, intern};
use crate::envoy_filter::Patched;
use crate::resources::Resources;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let list = list(ctx, proxy, &ctx.get::<AudiencesOf>(proxy));
        ctx.get::<ListedListeners>(&list).as_ref().clone()
    }
}

/// What decides all listeners of a proxy: the groups they come in, and what is patched of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerList {
    groups: Vec<ListenerGroup>,
    patches: PatchSet,
}

/// The listeners of all proxies that have this list.
pub struct ListedListeners;

impl Query for ListedListeners {
    const NAME: &'static str = "listed_listeners";
    type Key = Shared<ListenerList>;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, list: &Shared<ListenerList>) -> Resources {
        let mut listeners = Resources::new();
        for group in &list.groups {
            // Mostly no patch is for listeners, and then there is nothing to be said about patches.
            listeners.push(match list.patches.is_empty() {
                true => group.generated(ctx),
                false => patched_group(ctx, list, group).resources.clone(),
            });
        }
        listeners
    }
}

/// The list of a proxy of these audiences.
pub(crate) fn list(ctx: &Ctx<'_>, proxy: &Proxy, audiences: &Audiences) -> Shared<ListenerList> {
    let groups = groups(ctx, proxy, &audiences.listeners);
    intern(ctx, ListenerList { groups, patches: audiences.listener_patches.clone() })
}

/// The listeners of a proxy after the patches of EnvoyFilters, group by group.
pub(crate) fn patched(ctx: &Ctx<'_>, proxy: &Proxy) -> Vec<Arc<Patched>> {
    let list = list(ctx, proxy, &ctx.get::<AudiencesOf>(proxy));
    list.groups.iter().map(|group| patched_group(ctx, &list, group)).collect()
}

fn patched_group(ctx: &Ctx<'_>, list: &ListenerList, group: &ListenerGroup) -> Arc<Patched> {
    ctx.get::<PatchedListenerGroup>(&(group.clone(), list.patches.clone()))
}

fn groups(ctx: &Ctx<'_>, proxy: &Proxy, listening: &Listening) -> Vec<ListenerGroup> {
    let mut groups = Vec::new();
    let originating = match listening {
        Listening::Sidecar { outbound, inbound } => {
            groups.extend(sidecar::groups(ctx, proxy, outbound, inbound));
            outbound.clone()
        }
        Listening::Gateway(audience) => {
            groups.push(ListenerGroup::Gateway(audience.clone()));
            audience.clone()
        }
        Listening::Waypoint(audience) => return vec![ListenerGroup::Waypoint(audience.clone())],
        Listening::Nowhere => return Vec::new(),
    };
    if connect::is_originated(ctx) {
        groups.push(ListenerGroup::Originated(originating.without_caller(ctx).for_connections(ctx)));
    }
    groups
}
