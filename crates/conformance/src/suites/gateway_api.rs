//! Gateway API objects in; the objects of Istio's kinds they stand for, and their statuses, out.

mod fixture;

use std::sync::Arc;

use anyhow::Context;
use canopus_api::gateway_api::GROUP;
use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::tree::{Map, Node, Value};
use canopus_engine::Snapshot;
use canopus_mesh::gateway_api::{
    DerivedRules, DerivedVirtualService, ListenersOpenedBy, RouteGroups, Status, StatusOf,
};
use canopus_mesh::world::Origin;

use super::Suite;
use super::derived;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

pub(super) struct GatewayApi;

impl Suite for GatewayApi {
    fn name(&self) -> &str {
        "gateway-api"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let golden = |key: &str| -> anyhow::Result<Vec<Node>> {
        case.corpus.documents(&case.path(case.text(key).context("nothing is expected")?))
    };
    let world = fixture::World::load(case)?;
    let rules = Rules::default();
    let expected = derived::by_name(golden("golden")?);
    let mut found = tree::difference(&expected, &derived::by_name(objects(&world)?), &rules);
    let expected = golden("statusGolden")?.into_iter().filter(|document| !document.is_null());
    let expected: Map = expected.map(|document| (derived::name(&document), status_of(&document))).collect();
    let got = statuses(&world)?;
    found.extend(tree::difference(&Value::Map(expected).into(), &Value::Map(got).into(), &rules));
    Ok(found)
}

/// Every object that stands for others.
fn objects(world: &fixture::World) -> anyhow::Result<Vec<Node>> {
    let snapshot = &world.snapshot;
    let mut made = Vec::new();
    for origin in world.origins_of_kinds(&[Kind::KubernetesGateway, Kind::ListenerSet]) {
        let opened = snapshot.get::<ListenersOpenedBy>(origin)?;
        let listeners =
            opened.iter().flat_map(|opened| &opened.listeners).filter(|listener| listener.is_valid);
        made.extend(listeners.map(|listener| Object::Gateway(listener.gateway.clone()).to_node()));
    }
    for key in snapshot.get::<RouteGroups>(&())?.keys() {
        let service = snapshot.get::<DerivedVirtualService>(key)?;
        made.extend(service.as_ref().clone().map(|service| Object::VirtualService(service).to_node()));
    }
    for namespace in world.namespaces() {
        let rules = snapshot.get::<DerivedRules>(&namespace)?;
        made.extend(rules.iter().map(|rule| Object::DestinationRule(rule.clone()).to_node()));
    }
    Ok(made)
}

/// The statuses of all objects, by what these are called.
fn statuses(world: &fixture::World) -> anyhow::Result<Map> {
    let mut all = Map::new();
    for origin in &world.origins {
        if let Some(status) = status(&world.snapshot, origin)? {
            let ObjectKey { kind, namespace, name } = &origin.key;
            all.insert(format!("{} {namespace}/{name}", kind.info().kind), comparable(status));
        }
    }
    Ok(all)
}

fn status(snapshot: &Snapshot, origin: &Origin) -> anyhow::Result<Option<Node>> {
    let status: Arc<Option<Arc<Status>>> = snapshot.get::<StatusOf>(origin)?;
    let json = match status.as_ref().as_deref() {
        None => return Ok(None),
        Some(Status::Class(status)) => serde_json::to_value(status)?,
        Some(Status::Gateway(status)) => serde_json::to_value(status)?,
        Some(Status::ListenerSet(status)) => serde_json::to_value(status)?,
        Some(Status::Route(status)) => serde_json::to_value(status)?,
        Some(Status::Policy(status)) => serde_json::to_value(status)?,
        Some(Status::Pool(status)) => serde_json::to_value(status)?,
    };
    Ok(Some(Node::from(json)))
}

fn status_of(document: &Node) -> Node {
    comparable(document.get("status").cloned().unwrap_or_default())
}

/// A status without times, with references as a cluster fills them in.
fn comparable(mut status: Node) -> Node {
    visit(&mut status);
    derived::pruned(status)
}

fn visit(node: &mut Node) {
    match &mut node.value {
        Value::Map(map) => {
            map.remove("lastTransitionTime");
            for reference in ["parentRef", "ancestorRef"] {
                if let Some(Value::Map(reference)) = map.get_mut(reference).map(|node| &mut node.value) {
                    for (key, default) in [("group", GROUP), ("kind", "Gateway")] {
                        if !reference.contains_key(key) {
                            reference.insert(key, Value::from(default).into());
                        }
                    }
                }
            }
            let keys: Vec<_> = map.iter().map(|entry| entry.key.clone()).collect();
            for key in keys {
                if let Some(child) = map.get_mut(&key) {
                    visit(child);
                }
            }
        }
        Value::List(list) => {
            // The recorded control plane had waypoints without the ambient mesh, which no process can have.
            list.retain(|item| item.get("type").and_then(Node::as_str) != Some("ResolvedWaypoints"));
            list.iter_mut().for_each(visit);
        }
        _ => {}
    }
}
