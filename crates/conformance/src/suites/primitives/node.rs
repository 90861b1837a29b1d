//! Node metadata, node ids, versions.

use anyhow::Context;
use canopus_api::node::{
    NodeId, NodeMetadata, StringBool, StringList, Version, VersionPrefix, locality_of_label,
};
use canopus_base::tree::Node;
use serde_json::json;

use super::Check;
use super::row::{Row, equal, equal_tree, with_lower_case_keys};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestStringList" => string_list,
        "TestStringBool" => string_bool,
        "TestSanitizeLocalityLabel" => locality,
        "TestParseMetadata" => metadata,
        "TestProxyVersion_Compare" => compare_versions,
        "Test_parseIstioVersion" => parse_version,
        _ => return None,
    })
}

fn string_list(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let text = row.text("in")?;
    let list: StringList = serde_json::from_str(text)?;
    let mut found = equal("expect", &row.texts("expect")?, &list.0);
    if !row.truth("noRoundTrip")? {
        found.extend(equal("in", &text, &serde_json::to_string(&list)?.as_str()));
    }
    Ok(found)
}

/// An input that is not a truth value has an empty expectation.
fn string_bool(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = match serde_json::from_str::<StringBool>(row.text("in")?) {
        Ok(truth) => serde_json::to_string(&truth)?,
        Err(_) => String::new(),
    };
    Ok(equal("expect", &row.text("expect")?, &got.as_str()))
}

fn locality(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = locality_of_label(row.text("label")?);
    Ok(equal("expected", &row.text("expected")?, &got.as_str()))
}

/// The node id every row of the table is about.
const NODE: &str = "sidecar~1.1.1.1~id~domain";

fn metadata(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let sent = row.get("metadata").cloned().unwrap_or_else(|| json!({}).into());
    let metadata = NodeMetadata::from_tree(sent)?;
    let node = NodeId::parse(NODE, &metadata)?;
    let expected = row.get("out").context("column out is missing")?;
    let raw = expected.pointer("/metadata/raw").cloned().unwrap_or_default();
    let mut found = equal_tree(&raw, &metadata.raw.to_json().into());
    found.extend(equal_tree(&without_raw(&with_lower_case_keys(expected)), &described(&node, &metadata)));
    Ok(found)
}

/// The raw metadata has keys of its own, whose case counts.
fn without_raw(expected: &Node) -> Node {
    let mut expected = expected.clone();
    if let Some(metadata) = expected.get_mut("metadata").and_then(Node::as_map_mut) {
        metadata.remove("raw");
    }
    expected
}

fn described(node: &NodeId, metadata: &NodeMetadata) -> Node {
    let mut known = serde_json::Map::new();
    if !metadata.labels.is_empty() {
        known.insert("labels".into(), json!(metadata.labels));
    }
    let ports = metadata.pod_ports.0.iter();
    let ports: Vec<_> = ports
        .map(|port| json!({"name": port.name, "containerport": port.container_port, "protocol": port.protocol}))
        .collect();
    if !ports.is_empty() {
        known.insert("podports".into(), json!(ports));
    }
    let version = Version::parse(&metadata.istio_version);
    let described = json!({
        "type": node.kind.as_str(),
        "ipaddresses": node.addresses,
        "dnsdomain": node.domain,
        "id": node.id,
        "istioversion": {"major": version.major, "minor": version.minor, "patch": version.patch},
        "metadata": known,
    });
    described.into()
}

fn compare_versions(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let (fields, other) = (row.row("fields")?, row.row("args")?.row("inv")?);
    let (fields, other) = (numbers(fields)?, numbers(other)?);
    // A negative number leaves the comparison open from there on.
    let open = |number: i64| u32::try_from(number).ok();
    let prefix =
        VersionPrefix { major: u32::try_from(other[0])?, minor: open(other[1]), patch: open(other[2]) };
    let version = Version {
        major: u32::try_from(fields[0])?,
        minor: u32::try_from(fields[1])?,
        patch: u32::try_from(fields[2])?,
    };
    let got = version.compare(prefix) as i64;
    Ok(equal("want", &row.integer("want")?, &got))
}

fn parse_version(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let Version { major, minor, patch } = Version::parse(row.row("args")?.text("ver")?);
    let got = [major, minor, patch].map(i64::from);
    Ok(equal("want", &numbers(row.row("want")?)?, &got))
}

/// The three numbers of a version, whose names are in either case.
fn numbers(row: Row<'_>) -> anyhow::Result<[i64; 3]> {
    let number = |lower: &str, upper: &str| Ok::<_, anyhow::Error>(row.integer(lower)? + row.integer(upper)?);
    Ok([number("major", "Major")?, number("minor", "Minor")?, number("patch", "Patch")?])
}
