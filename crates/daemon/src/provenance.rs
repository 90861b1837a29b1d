//! What a client gets, computed on the spot.

use canopus_engine::{QueryError, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_proto::resource::Resource;

use crate::family::Selection;
use crate::push::Connection;

/// What a client gets of one type it watches; nothing if it does not watch it.
pub(crate) fn of_client(
    world: &Snapshot,
    client: &Connection,
    type_url: &str,
) -> Result<Vec<Resource>, QueryError> {
    let interest = client.status(type_url).and_then(|status| status.interest);
    let Some(interest) = interest else { return Ok(Vec::new()) };
    let audiences = world.get::<AudiencesOf>(&client.proxy)?;
    let selection = Selection::new(type_url, &client.proxy, &audiences, &interest);
    selection.map_or_else(|| Ok(Vec::new()), |selection| selection.resources(world))
}
