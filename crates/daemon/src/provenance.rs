//! What a client gets and what that was made from, evaluated on a snapshot of the world.
//!
//! Debug endpoints show it and quarantine decides by it. Both follow the queries of `family` and the engine's record of reads:
//! no list of what contributes to a resource is kept anywhere.

use canopus_engine::{QueryError, Read, Snapshot};
use canopus_envoy::config_keys::ConfigKeysOf;
use canopus_mesh::proxy::Proxy;
use canopus_proto::resource::Resource;
use canopus_xds::{Interest, Names};

use crate::family::{Family, Selection};
use crate::push::Connection;

/// What a client gets of one type it watches; nothing if it does not watch it.
pub(crate) fn resources(
    world: &Snapshot,
    client: &Connection,
    type_url: &str,
) -> Result<Vec<Resource>, QueryError> {
    let interest = client.status(type_url).and_then(|status| status.interest);
    let Some(interest) = interest else { return Ok(Vec::new()) };
    let keys = world.get::<ConfigKeysOf>(&client.proxy)?;
    let selection = Selection::new(type_url, &client.proxy, &keys, &interest);
    selection.map_or_else(|| Ok(Vec::new()), |selection| selection.resources(world))
}

/// What a resource was made from, for quarantine: nothing where it does not look for objects behind resources.
pub(crate) fn quarantined_reads(
    world: &Snapshot,
    proxy: &Proxy,
    type_url: &str,
    name: &str,
) -> Result<Vec<Read>, QueryError> {
    if Family::find(type_url).is_some_and(|family| family.is_quarantined) {
        return reads(world, proxy, type_url, name);
    }
    Ok(Vec::new())
}

/// What a resource of a proxy was made from.
pub(crate) fn reads(
    world: &Snapshot,
    proxy: &Proxy,
    type_url: &str,
    name: &str,
) -> Result<Vec<Read>, QueryError> {
    let keys = world.get::<ConfigKeysOf>(proxy)?;
    let interest = Interest::Names(Names::new([name]));
    let selection = Selection::new(type_url, proxy, &keys, &interest);
    Ok(selection.map(|selection| selection.reads(world, proxy, name)).unwrap_or_default())
}
