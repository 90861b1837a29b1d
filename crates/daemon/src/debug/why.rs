//! Why a resource is as it is: what it was made from.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use canopus_engine::{QueryError, Read, ReadKind, Snapshot};
use canopus_envoy::patch_report::{Outcome, Report};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Settings};
use canopus_xds::types;
use serde_json::{Value, json};

use super::pushes::name_of;
use super::{Answer, Debug, Question};
use crate::family::Family;
use crate::provenance;
use crate::push::Connection;

/// Names that are suggested in place of one that is not there.
const MAX_ALIKE: usize = 5;

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
        let world = self.dispatcher.engine_of(client.id).snapshot();
        let wanted =
            question.parameters.get("type").filter(|name| !name.is_empty()).map(Family::type_url_by_name);
        let Some(type_url) = find(&world, &client, wanted, name)? else {
            let alike = alike(&world, &client, wanted, name)?;
            let hint =
                if alike.is_empty() { String::new() } else { format!("; it has {}", alike.join(", ")) };
            let text = format!("{} has no resource {name}{hint}\n", client.proxy.id.id);
            return Ok(Answer::text(StatusCode::NOT_FOUND, text));
        };
        let reads = provenance::reads(&world, &client.proxy, &type_url, name)?;
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
        if provenance::resources(world, client, type_url)?.iter().any(|resource| resource.answers(name)) {
            return Ok(Some(type_url.to_string()));
        }
    }
    Ok(None)
}

/// Names of resources of a client that contain this text, or the first part of it.
fn alike(
    world: &Snapshot,
    client: &Connection,
    wanted: Option<&str>,
    name: &str,
) -> Result<Vec<String>, QueryError> {
    let part = name.rsplit('|').next().unwrap_or(name);
    let part = part.split('.').next().unwrap_or(part);
    let mut found = Vec::new();
    for type_url in client.types().keys().filter(|known| wanted.is_none_or(|wanted| wanted == &***known)) {
        let resources = provenance::resources(world, client, type_url)?;
        let alike = resources.iter().filter(|resource| !part.is_empty() && resource.name.contains(part));
        found.extend(alike.take(MAX_ALIKE).map(|resource| resource.name.to_string()));
    }
    found.sort();
    found.dedup();
    found.truncate(MAX_ALIKE);
    Ok(found)
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
