//! What a proxy's bootstrap says about the proxy: its version, its name in traces, whether it looks for its peers.

use canopus_agent::bootstrap::{BootstrapSettings, render};
use canopus_agent::node::{Node as ProxyNode, NodeSources};
use canopus_agent::proxy_config::{EffectiveConfig, Layers};
use serde_json::{Value, json};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestSetIstioVersion" => version,
        "TestServiceClusterOrDefault" => service_cluster,
        "TestZoneAwareRoutingTemplateParam" => self_discovery,
        _ => return None,
    })
}

/// A proxy as the agent learns of it.
#[derive(Default)]
struct Proxy {
    variables: Vec<(&'static str, String)>,
    /// The variable `PROXY_CONFIG`.
    config: String,
    /// The version of the agent's own binary.
    binary: String,
}

impl Proxy {
    /// A proxy whose variables give it the metadata of a row.
    fn with_metadata(row: Row<'_>) -> anyhow::Result<Self> {
        let metadata = row.row("nodeMetadata")?;
        let mut variables = Vec::new();
        for (column, variable) in [
            ("namespace", "ISTIO_META_NAMESPACE"),
            ("workloadName", "ISTIO_META_WORKLOAD_NAME"),
            ("istioVersion", "ISTIO_META_ISTIO_VERSION"),
        ] {
            variables.push((variable, metadata.text(column)?.to_owned()));
        }
        if let Some(labels) = metadata.get("labels") {
            variables.push(("ISTIO_METAJSON_LABELS", labels.to_json().to_string()));
        }
        variables.retain(|(_, text)| !text.is_empty());
        Ok(Self { variables, ..Self::default() })
    }

    fn bootstrap(&self) -> anyhow::Result<Value> {
        let sources = NodeSources {
            id: "sidecar~1.2.3.4~foo~bar".to_owned(),
            environment: self.variables.iter().map(|(name, text)| (*name, text.as_str())).collect(),
            version: self.binary.clone(),
            ..NodeSources::default()
        };
        let layers = Layers { environment: &self.config, ..Layers::default() };
        let node = ProxyNode::collect(&sources, EffectiveConfig::resolve(&layers)?)?;
        Ok(render(&node, &BootstrapSettings::default())?.bootstrap)
    }
}

fn version(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let proxy =
        Proxy { binary: row.text("binaryVersion")?.to_owned(), ..Proxy::with_metadata(row.row("meta")?)? };
    let bootstrap = proxy.bootstrap()?;
    let got = bootstrap.pointer("/node/metadata/ISTIO_VERSION").and_then(Value::as_str).unwrap_or_default();
    Ok(equal("expectedVersion", &row.text("expectedVersion")?, &got))
}

fn service_cluster(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let config = json!({"serviceCluster": row.text("input")?}).to_string();
    let proxy = Proxy { config, ..Proxy::with_metadata(row.row("metadata")?)? };
    let bootstrap = proxy.bootstrap()?;
    let got = bootstrap.pointer("/node/cluster").and_then(Value::as_str).unwrap_or_default();
    Ok(equal("expected", &row.text("expected")?, &got))
}

fn self_discovery(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut proxy = Proxy::default();
    let variable = row.text("envVal")?;
    if !variable.is_empty() {
        proxy.variables.push(("ISTIO_META_ENABLE_SELF_DISCOVERY", variable.to_owned()));
    }
    let got = proxy.bootstrap()?.pointer("/cluster_manager/local_cluster_name").is_some();
    Ok(equal("want", &row.truth("want")?, &got))
}
