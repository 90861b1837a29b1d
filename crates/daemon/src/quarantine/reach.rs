//! Whom a hold reaches: the clients that would be sent something else for it.
//!
//! Objects are inputs of the whole mesh, so an object that is held is held for everybody. What confines a hold to those who
//! rejected is this check, made before anything is held and again and again while it is: the present world is compared with
//! the world as it would be, client by client. If one *stranger*, who has not rejected what changes for him, would be sent
//! another byte, there is no hold. So whatever clients accept and reject, others are sent what they would be sent without them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_engine::{Batch, QueryError, Snapshot};
use canopus_envoy::audience::{Audiences, AudiencesOf};
use canopus_proto::resource::Resource;
use canopus_xds::{Interest, types};

use crate::family::Selection;
use crate::provenance;
use crate::push::{Connection, ConnectionId, Dispatcher};

/// Audiences that are compared; if there are more, the rest counts as reached.
const MOST_AUDIENCES: usize = 1024;

/// The names of resources that differ, by type.
pub(super) type Differences = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Whom a change of objects reaches.
#[derive(Default)]
pub(super) struct Reach {
    /// Those who belong to the matter.
    pub(super) members: BTreeSet<ConnectionId>,
    /// The first found who does not and has answered all he was sent.
    pub(super) stranger: Option<Arc<Connection>>,
    /// Whether somebody who does not has yet to answer.
    pub(super) is_awaited: bool,
}

impl Reach {
    /// Whether nobody but members is reached.
    pub(super) fn is_confined(&self) -> bool {
        self.stranger.is_none() && !self.is_awaited
    }
}

/// Whom a batch would reach; `belongs` says who is part of the matter, given what would change for him.
pub(super) fn predict(
    dispatcher: &Dispatcher,
    change: Batch,
    belongs: impl Fn(&Connection, &Differences) -> bool,
) -> Reach {
    let engine = dispatcher.engine();
    let fork = engine.fork_unwatched();
    let now = engine.snapshot();
    fork.apply(change);
    let worlds = Worlds { now: &now, then: &fork.snapshot() };
    let revision = now.revision().number();
    let mut known: Vec<(Group, Arc<Differences>)> = Vec::new();
    let mut reach = Reach::default();
    for client in dispatcher.connections().all() {
        let differences = Group::for_client(&now, &client).and_then(|group| {
            if let Some((_, differences)) = known.iter().find(|(other, _)| *other == group) {
                return Ok(Some(Arc::clone(differences)));
            }
            if known.len() >= MOST_AUDIENCES {
                return Ok(None);
            }
            let differences = Arc::new(worlds.differences(&client, &group)?);
            known.push((group, Arc::clone(&differences)));
            Ok(Some(differences))
        });
        match differences {
            Ok(Some(differences)) if differences.is_empty() => {}
            Ok(Some(differences)) if belongs(&client, &differences) => {
                reach.members.insert(client.id);
            }
            // Whoever cannot be compared counts as reached.
            _ if client.has_answered(revision) => {
                reach.stranger = Some(client);
                return reach;
            }
            _ => reach.is_awaited = true,
        }
    }
    reach
}

/// What decides what a client is sent. Clients of one group are sent the same.
#[derive(PartialEq)]
struct Group {
    audiences: Arc<Audiences>,
    is_proxyless: bool,
    interests: Vec<(Arc<str>, Interest)>,
}

impl Group {
    fn for_client(world: &Snapshot, client: &Connection) -> Result<Self, QueryError> {
        let interests =
            client.types().into_iter().filter_map(|(kind, status)| Some((kind, status.interest?)));
        Ok(Self {
            audiences: world.get::<AudiencesOf>(&client.proxy)?,
            is_proxyless: client.proxy.is_proxyless(),
            interests: interests.collect(),
        })
    }
}

struct Worlds<'a> {
    now: &'a Snapshot,
    then: &'a Snapshot,
}

impl Worlds<'_> {
    fn differences(&self, client: &Connection, group: &Group) -> Result<Differences, QueryError> {
        let mut differences = Differences::new();
        for (type_url, _) in &group.interests {
            let (now, then) = (sent(self.now, client, type_url)?, sent(self.then, client, type_url)?);
            let names = different(&now, &then);
            if !names.is_empty() {
                differences.insert(Arc::clone(type_url), names);
            }
        }
        Ok(differences)
    }
}

/// What a client is sent of a type, or more than that where it asks for a part of what everybody gets.
fn sent(world: &Snapshot, client: &Connection, type_url: &str) -> Result<Vec<Resource>, QueryError> {
    match type_url {
        types::ADDRESS => Selection::Addresses.resources(world),
        types::WORKLOAD => Selection::Workloads.resources(world),
        _ => provenance::resources(world, client, type_url),
    }
}

/// The names of which one side has something else than the other.
fn different(now: &[Resource], then: &[Resource]) -> BTreeSet<Arc<str>> {
    let same = |(one, other): (&Resource, &Resource)| one.version == other.version && one.name == other.name;
    if now.len() == then.len() && now.iter().zip(then).all(same) {
        return BTreeSet::new();
    }
    let versions = |all: &[Resource]| -> BTreeMap<Arc<str>, _> {
        all.iter().map(|resource| (Arc::clone(&resource.name), resource.version)).collect()
    };
    let (now, then) = (versions(now), versions(then));
    let names = now.keys().chain(then.keys()).filter(|name| now.get(*name) != then.get(*name));
    names.cloned().collect()
}
