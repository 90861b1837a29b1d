//! What an Envoy started with.

use std::collections::BTreeMap;

use canopus_proto::google::protobuf::Value;
use canopus_proto::google::protobuf::value::Kind;

use super::dump::ConfigDump;
use super::render::{self, Format};
use crate::table::aligned;

pub(super) fn print(dump: &ConfigDump, format: Format) -> anyhow::Result<String> {
    // Parity: there is no table of it; what is not YAML is JSON.
    Ok(render::message(&dump.bootstrap()?, format))
}

/// The versions of the proxy.
pub(super) fn summary(dump: &ConfigDump) -> anyhow::Result<String> {
    let node = dump.bootstrap()?.bootstrap.unwrap_or_default().node.unwrap_or_default();
    let metadata = node.metadata.unwrap_or_default().fields;
    let mut rows = Vec::new();
    let mut add = |title: &str, value: String| {
        if !value.is_empty() {
            rows.push([title.to_owned(), value]);
        }
    };
    add("Istio Version:", text(&metadata, "ISTIO_VERSION"));
    let sha = text(&metadata, "ISTIO_PROXY_SHA");
    add("Istio Proxy Version:", sha.split(':').nth(1).map_or(sha.clone(), str::to_owned));
    let build = match node.user_agent_version_type {
        Some(canopus_proto::envoy::config::core::v3::node::UserAgentVersionType::UserAgentBuildVersion(
            build,
        )) => build,
        _ => Default::default(),
    };
    let version = build.version.unwrap_or_default();
    let about = build.metadata.unwrap_or_default().fields;
    let mut envoy = format!("{}.{}.{}", version.major_number, version.minor_number, version.patch);
    for (key, separator) in
        [("build.label", '-'), ("revision.status", '/'), ("build.type", '/'), ("ssl.version", '/')]
    {
        if about.contains_key(key) {
            envoy.push(separator);
            envoy.push_str(&text(&about, key));
        }
    }
    add("Envoy Version:", envoy);
    Ok(aligned(&rows, 1))
}

fn text(fields: &BTreeMap<String, Value>, key: &str) -> String {
    match fields.get(key).and_then(|value| value.kind.as_ref()) {
        Some(Kind::StringValue(text)) => text.clone(),
        _ => String::new(),
    }
}
