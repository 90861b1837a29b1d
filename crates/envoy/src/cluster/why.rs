//! What a cluster was made from.

use canopus_engine::{Query, Read, Snapshot};
use canopus_mesh::proxy::Proxy;
use canopus_proto::resource::Resource;

use super::Clusters;
use super::inbound::InboundClusters;
use super::outbound::ServiceClusters;

/// All reads behind the proxy's clusters of this name; behind all of its clusters, if none has the name.
pub fn reads_of(world: &Snapshot, proxy: &Proxy, name: &str) -> Vec<Read> {
    let all = world.provenance::<Clusters>(proxy);
    let narrow = all.iter().find_map(|read| {
        let outbound =
            read.subject.query::<ServiceClusters>().and_then(|key| part::<ServiceClusters>(world, key, name));
        outbound.or_else(|| {
            read.subject.query::<InboundClusters>().and_then(|key| part::<InboundClusters>(world, key, name))
        })
    });
    narrow.unwrap_or(all)
}

/// What a part rests on, if it has a cluster of this name.
fn part<Q: Query<Value = Vec<Resource>>>(world: &Snapshot, key: &Q::Key, name: &str) -> Option<Vec<Read>> {
    let made = world.get::<Q>(key).ok()?;
    made.iter().any(|resource| *resource.name == *name).then(|| world.provenance::<Q>(key))
}
