//! Why a resource is as it is: what it was made from.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use canopus_api::Kind;
use canopus_engine::{Key, Query, QueryError, Read, ReadKind, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::envoy_filter::{Outcome, Report};
use canopus_envoy::extension::Extensions;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::route_config::Routes;
use canopus_envoy::secret::Secrets;
use canopus_envoy::{cluster, listener, proxyless};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Settings};
use canopus_xds::types;
use serde_json::{Value, json};

use super::config_dump::type_of;
use super::pushes::name_of;
use super::{Answer, Debug, Question, resources};
use crate::push::Connection;

impl Debug {
    /// The objects a resource of a proxy was made from. `resource` is its name; `type` (such as `CDS`) need only be given if
    /// the proxy has resources of several types under that name.
    pub(super) fn why(&self, question: &Question) -> Result<Answer, QueryError> {
        let client = match self.client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let Some(name) = question.parameters.get("resource").filter(|name| !name.is_empty()) else {
            let text = "You must provide the name of a resource in the query string\n";
            return Ok(Answer::text(StatusCode::BAD_REQUEST, text));
        };
        let world = self.engine().snapshot();
        let wanted = question.parameters.get("type").filter(|name| !name.is_empty()).map(type_of);
        let Some(type_url) = find(&world, &client, wanted, name)? else {
            let text = format!("{} has no resource {name}\n", client.proxy.id.id);
            return Ok(Answer::text(StatusCode::NOT_FOUND, text));
        };
        let reads = reads_of(&world, &client.proxy, &type_url, name)?;
        let mut answer = answer(&client, &type_url, name, &reads);
        answer["envoyFilters"] = patches(&world, &client.proxy, &type_url)?;
        Ok(Answer::json(question, &answer))
    }
}

/// The type of which a client has a resource of this name.
fn find(
    world: &Snapshot,
    client: &Connection,
    wanted: Option<&str>,
    name: &str,
) -> Result<Option<String>, QueryError> {
    for type_url in
        client.types().keys().filter(|type_url| wanted.is_none_or(|wanted| wanted == &***type_url))
    {
        if resources::of_client(world, client, type_url)?.iter().any(|resource| resource.answers(name)) {
            return Ok(Some(type_url.to_string()));
        }
    }
    Ok(None)
}

/// What a resource rests on.
pub(crate) fn reads_of(
    world: &Snapshot,
    proxy: &Proxy,
    type_url: &str,
    name: &str,
) -> Result<Vec<Read>, QueryError> {
    let audiences = world.get::<AudiencesOf>(proxy)?;
    let library = proxy.is_proxyless();
    Ok(match type_url {
        types::CLUSTER if library => named::<_, proxyless::Clusters>(world, &audiences.routes, name),
        types::CLUSTER => {
            patched(cluster::reads_of(world, proxy, name), world.provenance::<cluster::Clusters>(proxy))
        }
        types::LISTENER if library => {
            world.provenance::<proxyless::Listeners>(&(proxy.clone(), name.to_owned()))
        }
        types::LISTENER => {
            patched(listener::reads_of(world, proxy, name), world.provenance::<listener::Listeners>(proxy))
        }
        types::ENDPOINT => named::<_, Assignment>(world, &audiences.endpoints, name),
        types::ROUTE if library => named::<_, proxyless::Routes>(world, &audiences.routes, name),
        types::ROUTE => named::<_, Routes>(world, &audiences.routes, name),
        types::SECRET => named::<_, Secrets>(world, &audiences.secrets, name),
        types::EXTENSION => named::<_, Extensions>(world, &audiences.extensions, name),
        types::NAME_TABLE => world.provenance::<NameTables>(&audiences.names),
        _ => Vec::new(),
    })
}

fn named<A: Key, Q: Query<Key = (A, String)>>(world: &Snapshot, audience: &A, name: &str) -> Vec<Read> {
    world.provenance::<Q>(&(audience.clone(), name.to_owned()))
}

/// What a resource rests on, given what it was made from and what all resources of its type were: patches by EnvoyFilters come
/// after it was made.
fn patched(made: Vec<Read>, all: Vec<Read>) -> Vec<Read> {
    let is_filter = |read: &Read| {
        read.subject.input::<Objects>().is_some_and(|origin| origin.key.kind == Kind::EnvoyFilter)
    };
    let is_new = |read: &Read| made.iter().all(|known| known.subject != read.subject);
    let patches = all.into_iter().filter(|read| is_filter(read) && is_new(read));
    let patches: Vec<Read> = patches.map(|read| Read { depth: 1, via: None, ..read }).collect();
    made.into_iter().chain(patches).collect()
}

/// The patches of EnvoyFilters that applied to something of this type at a proxy.
fn patches(world: &Snapshot, proxy: &Proxy, type_url: &str) -> Result<Value, QueryError> {
    let report = world.get::<Report>(proxy)?;
    let applied =
        report.iter().filter(|one| one.outcome == Outcome::Applied && patched_type(one.apply_to) == type_url);
    Ok(applied
        .map(|one| {
            json!({
                "object": name_of(&one.patch.filter),
                "cluster": &*one.patch.filter.cluster,
                "patch": one.patch.index,
                "applyTo": one.apply_to,
                "operation": one.operation,
            })
        })
        .collect())
}

/// The type that patches of a kind go into.
fn patched_type(apply_to: &str) -> &'static str {
    match apply_to {
        "CLUSTER" => types::CLUSTER,
        "ROUTE_CONFIGURATION" | "VIRTUAL_HOST" | "HTTP_ROUTE" => types::ROUTE,
        "EXTENSION_CONFIG" => types::EXTENSION,
        _ => types::LISTENER,
    }
}

/// The objects that were read with the shortest way to each, those that were looked for in vain, and the settings.
fn answer(client: &Connection, type_url: &str, name: &str, reads: &[Read]) -> Value {
    let mut objects = BTreeMap::new();
    let mut absent = BTreeMap::new();
    let mut settings = false;
    for read in reads {
        settings |= read.subject.input::<Settings>().is_some();
        let Some(origin) = read.subject.input::<Objects>() else { continue };
        let list = if read.kind == ReadKind::Absent { &mut absent } else { &mut objects };
        list.entry(origin).or_insert_with(|| way(reads, read));
    }
    let shown = |list: &BTreeMap<&canopus_mesh::world::Origin, Vec<&'static str>>| -> Vec<Value> {
        list.iter()
            .map(|(origin, way)| json!({"object": name_of(origin), "cluster": &*origin.cluster, "through": way}))
            .collect()
    };
    json!({
        "proxy": client.proxy.id.id,
        "type": type_url,
        "resource": name,
        "objects": shown(&objects),
        "lookedFor": shown(&absent),
        "meshConfig": settings,
    })
}

/// The queries between a resource and something it rests on, the resource's own side first.
fn way(reads: &[Read], read: &Read) -> Vec<&'static str> {
    let mut way = Vec::new();
    let mut next = read.via;
    while let Some(read) = next.and_then(|at| reads.get(at)) {
        way.push(read.subject.name());
        next = read.via;
    }
    way.reverse();
    way
}
