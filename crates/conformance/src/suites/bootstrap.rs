//! Proxy configurations in, Envoy bootstraps out.

mod text_format;

use std::collections::BTreeMap;

use anyhow::Context;
use canopus_agent::bootstrap::{BootstrapSettings, render};
use canopus_agent::node::{Node as ProxyNode, NodeSources};
use canopus_agent::proxy_config::EffectiveConfig;
use canopus_base::tree::Node;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::json::{self, Unknown};
use serde_json::{Value, json};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::proto;
use crate::compare::tree::Rules;
use crate::dump::Dump;

const MAX_CONNECTIONS: &str = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";
const MESSAGE: &str = "envoy.config.bootstrap.v3.Bootstrap";

pub(super) struct Bootstrap;

impl Suite for Bootstrap {
    fn name(&self) -> &str {
        "bootstrap"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let golden = case.path(case.text("golden").context("nothing is expected")?);
    let mut golden = case.corpus.document(&golden)?.to_json();
    let variables = texts(&case.entry, "envVars");
    let mut config = proxy_config(case, &golden)?;
    if let Some(limit) = variables.get(MAX_CONNECTIONS) {
        config.proxy_metadata.insert(MAX_CONNECTIONS.to_owned(), limit.clone());
    }
    let node = proxy_node(case, config, &variables)?;
    let rendered = render(&node, &BootstrapSettings::default())?;
    let token = rendered.token_file.is_some();
    let mut got = rendered.bootstrap;
    let mut found = stats_matcher(case, &got, &node);
    let token_expected =
        case.entry.get("expectLightstepAccessToken").and_then(Node::as_bool).unwrap_or(false);
    if token != token_expected {
        found.push(Difference::new("access token file", token_expected, token));
    }
    rewrite(case, &mut got);
    for bootstrap in [&mut golden, &mut got] {
        leave_out(bootstrap);
    }
    let (golden, got) = (proto::read(MESSAGE, &golden.into())?, proto::read(MESSAGE, &got.into())?);
    found.extend(proto::difference(&golden, &got, &Rules::default()));
    Ok(found)
}

fn proxy_config(case: &Case, golden: &Value) -> anyhow::Result<ProxyConfig> {
    let file = case.text("proxyConfig").context("no proxyConfig")?;
    let text = String::from_utf8(case.corpus.bytes(&case.path(file))?)?;
    let fields = text_format::parse(&text).with_context(|| file.to_owned())?;
    let mut config = json::read::<ProxyConfig>(&fields.into(), Unknown::Reject)?.value;
    // Where the driver put its files is in the golden file alone.
    let path = golden.pointer("/node/metadata/PROXY_CONFIG/configPath").and_then(Value::as_str);
    path.context("the golden file has no configPath")?.clone_into(&mut config.config_path);
    config.custom_config_file = "envoy_bootstrap.json".to_owned();
    if config.status_port == 0 {
        config.status_port = number(case, "statusPortIfZero")?;
    }
    Ok(config)
}

fn proxy_node(
    case: &Case,
    config: ProxyConfig,
    variables: &BTreeMap<String, String>,
) -> anyhow::Result<ProxyNode> {
    let annotations = texts(&case.entry, "annotations");
    let annotated = serde_json::to_string(&annotations)?;
    let mut environment = vec![("ISTIO_METAJSON_LABELS", "{}")];
    if !annotations.is_empty() {
        environment.push(("ISTIO_METAJSON_ANNOTATIONS", &annotated));
    }
    environment.retain(|(name, _)| !variables.contains_key(*name));
    environment.extend(variables.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let port = |key: &str| case.entry.get(key).and_then(Node::as_i64).map_or(Ok(0), u16::try_from);
    let default = |key: &str| -> anyhow::Result<String> {
        let found = case.shared.pointer(&format!("/defaults/{key}")).and_then(Node::as_str);
        Ok(found.with_context(|| format!("no default {key}"))?.to_owned())
    };
    let sources = NodeSources {
        id: default("nodeID")?,
        environment,
        addresses: list(case, "instanceIPs")?,
        annotations: Some(annotations.clone()),
        version: default("binaryVersion")?,
        control_plane_names: list(case, "pilotSubjectAltName")?,
        outlier_log_path: default("outlierLogPath")?,
        status_port: number(case, "envoyStatusPort")?,
        prometheus_port: number(case, "envoyPrometheusPort")?,
        secure_metrics_port: port("secureMetricsPort")?,
        secure_merged_metrics_port: port("secureMergedMetricsPort")?,
        identity_socket: default("workloadIdentitySocketFile")?,
        ..Default::default()
    };
    Ok(ProxyNode::collect(&sources, EffectiveConfig::from_message(config))?)
}

fn texts(node: &Node, key: &str) -> BTreeMap<String, String> {
    let entries = node.get(key).and_then(Node::as_map).into_iter().flatten();
    entries.filter_map(|entry| Some((entry.key.to_string(), entry.node.as_str()?.to_owned()))).collect()
}

fn list(case: &Case, key: &str) -> anyhow::Result<Vec<String>> {
    let items = case.shared.pointer(&format!("/defaults/{key}")).and_then(Node::as_list);
    let items = items.with_context(|| format!("no default {key}"))?;
    Ok(items.iter().filter_map(Node::as_str).map(str::to_owned).collect())
}

fn number<T: TryFrom<i64>>(case: &Case, key: &str) -> anyhow::Result<T> {
    let number = case.shared.pointer(&format!("/defaults/{key}")).and_then(Node::as_i64);
    number.and_then(|number| T::try_from(number).ok()).with_context(|| format!("no default {key}"))
}

/// The matcher is checked apart: by kind, in order, with what is always there around what the case has.
fn stats_matcher(case: &Case, got: &Value, node: &ProxyNode) -> Vec<Difference> {
    let patterns = got.pointer("/stats_config/stats_matcher/inclusion_list/patterns");
    let patterns = patterns.and_then(Value::as_array).cloned().unwrap_or_default();
    let of_kind = |pointer: &str| -> String {
        let texts = patterns.iter().filter_map(|pattern| pattern.pointer(pointer)?.as_str());
        texts.collect::<Vec<_>>().join(",")
    };
    let stats = |key: &str| case.entry.pointer(&format!("/stats/{key}")).and_then(Node::as_str);
    let joined = |given: Option<&str>, required: &str| {
        given.map_or(required.to_owned(), |given| format!("{given},{required}"))
    };
    let prefixes = joined(stats("prefixes"), "cluster_manager,listener_manager,server,cluster.xds-grpc,wasm");
    let discovery = if node.metadata.enable_hbone.0 { "workload_discovery," } else { "" };
    [
        ("/prefix", format!("reporter=,{discovery}{prefixes},component,istio")),
        ("/suffix", joined(stats("suffixes"), "rbac.allowed,rbac.denied,shadow_allowed,shadow_denied")),
        ("/safe_regex/regex", joined(stats("regexps"), r"vhost\..*\.route\..*")),
    ]
    .into_iter()
    .filter(|(kind, expected)| of_kind(kind) != *expected)
    .map(|(kind, expected)| Difference::new(format!("stats matcher {kind}"), expected, of_kind(kind)))
    .collect()
}

/// What the driver makes independent of the machine.
fn rewrite(case: &Case, got: &mut Value) {
    let clusters = got.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    for cluster in clusters.into_iter().flatten().filter(|cluster| cluster["name"] == "xds-grpc") {
        if let Some(path) =
            cluster.pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path")
        {
            *path = json!("/tmp/XDS");
        }
    }
    if let Some(path) = got.pointer_mut("/tracing/http/typed_config/access_token_file") {
        let file = path.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        *path = json!(format!("/test-path/{file}"));
    }
    let checked = case.entry.get("checkLocality").and_then(Node::as_bool).unwrap_or(false);
    if let Some(locality) = got.pointer_mut("/node/locality").and_then(Value::as_object_mut)
        && !checked
    {
        locality.retain(|key, _| key == "sub_zone");
    }
}

fn leave_out(bootstrap: &mut Value) {
    if let Some(stats) = bootstrap.get_mut("stats_config").and_then(Value::as_object_mut) {
        stats.remove("stats_matcher");
    }
    if let Some(metadata) = bootstrap.pointer_mut("/node/metadata").and_then(Value::as_object_mut) {
        for key in ["Prefixes", "Suffixes", "Regexps"] {
            metadata.remove(&format!("sidecar.istio.io/statsInclusion{key}"));
        }
    }
}
