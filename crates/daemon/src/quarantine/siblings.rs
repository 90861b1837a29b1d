//! Who else is sent the very bytes that a client rejects.
//!
//! Siblings can tell whether the bytes are bad or the client is: one that accepts them leaves the client alone with its problem,
//! and those that reject them too belong to the matter. Only clients that proved who they are count.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_envoy::config_keys::ConfigKeysOf;

use super::{Contested, Members, Quarantine};
use crate::family::Selection;
use crate::push::{Connection, Dispatcher};

/// Selections that are looked at; clients of others are nobody's siblings.
const MAX_SELECTIONS: usize = 1024;

/// The clients that are sent one of some contested resources.
#[derive(Default)]
pub(super) struct Siblings {
    /// Proxies that reject the bytes.
    pub(super) rejecting: Members,
    /// The identities of those that have yet to answer.
    pub(super) awaited: BTreeSet<Arc<str>>,
    /// A proxy that has answered and does not reject the bytes.
    pub(super) content: Option<Arc<Connection>>,
}

impl Siblings {
    /// Whether those that reject are enough without those that are silent: two identities, unless all have the same.
    pub(super) fn are_enough(&self) -> bool {
        let rejecting = &self.rejecting.identities;
        rejecting.len() >= 2 || self.awaited.is_subset(rejecting)
    }
}

/// Finds the clients that are sent one of these resources at the version that is rejected.
pub(super) fn find(
    dispatcher: &Dispatcher,
    quarantine: &Quarantine,
    type_url: &str,
    contested: &[Contested],
) -> Siblings {
    let revision = dispatcher.engine().revision().number();
    let mut known: Vec<((Option<u64>, Selection), bool)> = Vec::new();
    let mut siblings = Siblings::default();
    for client in dispatcher.connections().all() {
        let Some(identity) = &client.proxy.identity else { continue };
        let Some(is_sibling) = is_sent(dispatcher, &client, type_url, contested, &mut known) else {
            continue;
        };
        if !is_sibling {
            continue;
        }
        let identity: Arc<str> = identity.to_string().into();
        let is_contested = |name: &str| contested.iter().any(|one| *one.name == *name);
        let rejection = quarantine.rejection(client.id, type_url);
        if rejection.is_some_and(|nack| nack.resources.iter().any(|one| is_contested(&one.name))) {
            siblings.rejecting.connections.insert(client.id);
            siblings.rejecting.identities.insert(identity);
        } else if client.has_answered(revision) {
            siblings.content.get_or_insert(client);
        } else {
            siblings.awaited.insert(identity);
        }
    }
    siblings
}

/// Whether a client is sent one of the resources; `None` if that cannot be told.
fn is_sent(
    dispatcher: &Dispatcher,
    client: &Connection,
    type_url: &str,
    contested: &[Contested],
    known: &mut Vec<((Option<u64>, Selection), bool)>,
) -> Option<bool> {
    let interest = client.status(type_url)?.interest?;
    let world = dispatcher.engine_of(client.id).snapshot();
    let keys = world.get::<ConfigKeysOf>(&client.proxy).ok()?;
    let overlay = dispatcher.overlays().get(client.id).map(|overlay| overlay.id());
    let key = (overlay, Selection::new(type_url, &client.proxy, &keys, &interest)?);
    if let Some((_, is_sent)) = known.iter().find(|(other, _)| *other == key) {
        return Some(*is_sent);
    }
    if known.len() >= MAX_SELECTIONS {
        return None;
    }
    let resources = key.1.resources(&world).ok()?;
    let is_contested =
        |name: &str, version| contested.iter().any(|one| *one.name == *name && one.rejected == version);
    let is_sent = resources.iter().any(|resource| is_contested(&resource.name, resource.version));
    known.push((key, is_sent));
    Some(is_sent)
}
