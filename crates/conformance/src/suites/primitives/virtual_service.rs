//! VirtualServices: delegates merged into their roots, names in full, and which host is meant most narrowly.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::{Kind, ObjectKey};
use canopus_base::tree::Node;
use canopus_envoy::names;
use canopus_mesh::virtual_service::{HostOwners, Semantics, VirtualService, merge_delegate};
use canopus_mesh::world::{Origin, qualified_host};
use canopus_proto::descriptors::to_dynamic;
use canopus_proto::istio::networking::v1alpha3 as proto;
use canopus_proto::json::{self, Unknown};
use serde_json::{Value as Json, json};

use super::Check;
use super::row::{Row, equal};
use crate::compare::tree::Rules;
use crate::compare::{Difference, proto as messages};

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestMergeHttpRoutes" => routes,
        "TestMergeHTTPMatchRequests" => matches,
        "TestHasConflict" => conflict,
        "TestResolveShortnameToFQDN" => short_name,
        "TestMostSpecificHostMatch" => most_specific,
        "TestLabelsEquals" => labels,
        "TestSubsetKey" => cluster_name,
        _ => return None,
    })
}

fn column(row: Row<'_>, name: &str) -> Json {
    row.get(name).map(Node::to_json).unwrap_or_default()
}

/// The routes of a VirtualService that says nothing else.
fn read(http: Json) -> anyhow::Result<Vec<proto::HttpRoute>> {
    let node = Node::from(json!({ "http": http }));
    Ok(json::read::<proto::VirtualService>(&node, Unknown::Reject)?.value.http)
}

/// A route with these matches.
fn with_matches(matches: Json) -> anyhow::Result<proto::HttpRoute> {
    Ok(read(json!([{ "match": matches }]))?.remove(0))
}

fn against(expected: Json, http: Vec<proto::HttpRoute>) -> anyhow::Result<Vec<Difference>> {
    let got = to_dynamic(&proto::VirtualService { http, ..Default::default() });
    let expected =
        messages::read("istio.networking.v1alpha3.VirtualService", &json!({ "http": expected }).into())?;
    Ok(messages::difference(&expected, &got, &Rules::default()))
}

fn routes(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut root = read(json!([column(row, "root")]))?.remove(0);
    root.delegate = None;
    against(column(row, "expected"), merge_delegate(&root, read(column(row, "delegate"))?))
}

/// Matches that cannot be merged leave no route.
fn matches(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let (root, leaf) = (with_matches(column(row, "root"))?, with_matches(column(row, "delegate"))?);
    let expected = match column(row, "expected") {
        Json::Null => json!([]),
        matches => json!([{ "match": matches }]),
    };
    against(expected, merge_delegate(&root, vec![leaf]))
}

fn conflict(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let only = |name: &str| with_matches(json!([column(row, name)]));
    let merged = merge_delegate(&only("root")?, vec![only("leaf")?]);
    Ok(equal("expected", &row.truth("expected")?, &merged.is_empty()))
}

fn short_name(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let meta = row.row("meta")?;
    let got = qualified_host(row.text("name")?, meta.text("namespace")?, meta.text("domain")?);
    Ok(equal("out", &row.text("out")?, &got.as_str()))
}

/// Every host is that of a VirtualService of its name.
fn most_specific(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let hosts = row.texts("in")?;
    let services: Vec<_> = hosts.iter().map(|host| Arc::new(virtual_service_for(host))).collect();
    let owners = HostOwners::new(&services);
    let found = owners.owner(row.text("needle")?).map_or("", |service| service.name());
    Ok(equal("want", &row.text("want")?, &found))
}

fn virtual_service_for(host: &str) -> VirtualService {
    VirtualService {
        origin: Origin::new("", ObjectKey::new(Kind::VirtualService, "", host)),
        created: None,
        semantics: Semantics::Istio,
        export_to: BTreeSet::new(),
        spec: proto::VirtualService { hosts: vec![host.to_owned()], ..Default::default() },
    }
}

fn labels(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let same = row.labels("a")? == row.labels("b")?;
    Ok(equal("want", &row.truth("want")?, &same))
}

fn cluster_name(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let port = u32::try_from(row.integer("port")?)?;
    let got = names::outbound_cluster(row.text("hostname")?, port, row.text("subset")?);
    Ok(equal("want", &row.text("want")?, &got.as_str()))
}
