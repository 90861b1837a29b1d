//! What a listener was made from.

use canopus_engine::{Query, Read, Snapshot};
use canopus_mesh::proxy::Proxy;

use super::Listeners;
use super::inbound::InboundListeners;
use super::outbound::Built;

/// Everything the listener of a proxy that has this name rests on; all listeners, if none of the parts they are made in has
/// it.
pub fn reads_of(world: &Snapshot, proxy: &Proxy, name: &str) -> Vec<Read> {
    let all = world.provenance::<Listeners>(proxy);
    let narrow = all.iter().find_map(|read| {
        let outbound = read.subject.query::<Built>().and_then(|key| {
            let made = world.get::<Built>(key).ok()?;
            (*made.name == *name).then(|| world.provenance::<Built>(key))
        });
        outbound.or_else(|| inbound(world, read.subject.query::<InboundListeners>()?, name))
    });
    narrow.unwrap_or(all)
}

fn inbound(world: &Snapshot, key: &<InboundListeners as Query>::Key, name: &str) -> Option<Vec<Read>> {
    let made = world.get::<InboundListeners>(key).ok()?;
    let found = made.iter().any(|resource| *resource.name == *name);
    found.then(|| world.provenance::<InboundListeners>(key))
}
