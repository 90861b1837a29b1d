//! `istioctl proxy-status` of what control planes answer. The answers are described in words, and made here as they are sent.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_cli::proxy_status::render;
use serde_json::{Value as Json, json};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::tree::Rules;
use crate::compare::{Difference, text, tree};
use crate::dump::Dump;

const CLIENT_CONFIG: &str = "type.googleapis.com/envoy.service.status.v3.ClientConfig";

/// The types in the order in which their states are sent.
const TYPES: [(&str, &str); 5] = [
    ("CDS", "type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ("LDS", "type.googleapis.com/envoy.config.listener.v3.Listener"),
    ("RDS", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
    ("EDS", "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("ECDS", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
];

/// What `same` stands for: the states of the first proxy of the suite.
const SAME: &str = "CDS STALE, LDS SYNCED, RDS NOT_SENT, EDS SYNCED, ECDS SYNCED";

pub(super) struct ProxyStatus;

impl Suite for ProxyStatus {
    fn name(&self) -> &str {
        "istioctl-proxy-status"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let mut words = case.text("format").context("no format")?.split(", ");
    let format = words.next().unwrap_or_default();
    let (mut namespace, mut is_verbose) = ("", false);
    for word in words {
        match word.split_once(' ') {
            Some(("namespace", name)) => namespace = name,
            Some(("verbosity", level)) => is_verbose = level != "0",
            _ => bail!("{word}: neither a namespace nor a verbosity"),
        }
    }
    let clients = case.entry.get("clients").and_then(Node::as_list).context("no clients")?;
    let mut by_plane: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    for client in clients {
        let cells: Vec<&str> = client.as_list().into_iter().flatten().filter_map(Node::as_str).collect();
        let [plane, proxy, cluster, version, states] = cells.as_slice() else { bail!("not five cells") };
        by_plane.entry(plane).or_default().push(client_config(proxy, cluster, version, states)?);
    }
    let responses = by_plane.into_iter().map(|(plane, clients)| response(plane, &clients));
    let printed = render(responses.collect(), namespace, format, is_verbose)?;
    let golden = case.text("golden").context("no golden")?;
    let golden = String::from_utf8(case.corpus.bytes(&case.path("testdata").join(golden))?)?;
    if format == "table" {
        return Ok(text::difference(&golden, &printed));
    }
    let parsed = |text: &str| yaml::parse_one(text, &Limits::default());
    Ok(tree::difference(&parsed(&golden)?, &parsed(&printed)?, &Rules::default()))
}

fn response(plane: &str, clients: &[Json]) -> Node {
    // The text is compared, so its fields stand in the order in which Go writes them.
    let identifier = format!(
        r#"{{"Component":"istiod","ID":"{plane}","Info":{{"version":"1.1","revision":"","golang_version":"","status":"","tag":""}}}}"#
    );
    Node::from(json!({
        "versionInfo": "1.1",
        "resources": clients,
        "typeUrl": CLIENT_CONFIG,
        "controlPlane": {"identifier": identifier},
    }))
}

fn client_config(proxy: &str, cluster: &str, version: &str, states: &str) -> anyhow::Result<Json> {
    let (id, namespace) = match proxy.split_once(" (ns ") {
        Some((id, namespace)) => (id, Some(namespace.trim_end_matches(')'))),
        None => (proxy, None),
    };
    let mut metadata = json!({"CLUSTER_ID": cluster, "ISTIO_VERSION": version});
    if let Some(namespace) = namespace {
        metadata["NAMESPACE"] = json!(namespace);
    }
    let states = if states == "same" { SAME } else { states };
    let mut configs = Vec::new();
    for (short, type_url) in TYPES {
        let state = match states.strip_prefix("all ") {
            Some(state) => state,
            None => {
                let state = states.split(", ").find_map(|state| state.strip_prefix(short)?.strip_prefix(' '));
                state.with_context(|| format!("no state of {short}"))?
            }
        };
        let mut config = json!({"typeUrl": type_url});
        // The first value of an enumeration is not written.
        if state != "UNKNOWN" {
            config["configStatus"] = json!(state);
        }
        configs.push(config);
    }
    Ok(json!({
        "@type": CLIENT_CONFIG,
        "node": {"id": id, "metadata": metadata},
        "genericXdsConfigs": configs,
    }))
}
