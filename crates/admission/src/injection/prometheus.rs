//! Metrics of application and proxy behind one address.
//!
//! What `prometheus.io/…` annotations say is handed to the agent in the proxy's environment, and they are rewritten to
//! the agent's port, where both are scraped together.

use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::pod::{self, PROXY};

const MERGE: &str = "prometheus.istio.io/merge-metrics";
pub(super) const VARIABLE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
const SECURE_PORT_VARIABLE: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";

/// Annotations as Prometheus spells them in labels; it takes `prometheus.io/port` and `prometheus-io/port` for one.
const SCRAPE: &str = "prometheus_io_scrape";
const PORT: &str = "prometheus_io_port";
const PATH: &str = "prometheus_io_path";
const TARGETS: &str = "prometheus_istio_io_scrape_targets";
const SECURE_PORT: &str = "prometheus_istio_io_secure_port";

/// Ports that the agent and the proxy listen on, and for what.
const RESERVED_PORTS: [(i64, &str); 9] = [
    (15000, "Envoy admin"),
    (15001, "outbound traffic capture"),
    (15004, "pilot debug"),
    (15006, "inbound traffic capture"),
    (15008, "HBONE tunnel"),
    (15020, "pilot-agent status / merged Prometheus"),
    (15021, "Envoy health"),
    (15053, "DNS proxy"),
    (15090, "Envoy Prometheus (already merged)"),
];

/// The value of the variable.
#[derive(Default, Serialize)]
struct Configuration {
    scrape: String,
    path: String,
    port: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    targets: Vec<Target>,
}

#[derive(Clone, Serialize)]
struct Target {
    port: String,
    path: String,
}

/// Makes the agent scrape the application.
pub(super) fn merge(pod: &mut Json, mesh: &MeshConfig, agent_port: i32) -> Result<(), String> {
    if !is_scraped(pod) || !is_enabled(pod, mesh) {
        return Ok(());
    }
    let agent_port = agent_port.to_string();
    // The pod was injected before, or its user knows what to do.
    if port(pod).is_some_and(|port| port == agent_port) {
        return Ok(());
    }
    let mut found = configuration(pod);
    if let Some(first) = found.targets.first().cloned() {
        Target { port: found.port, path: found.path } = first;
        for target in &found.targets {
            check_port("targets", "target port", &target.port, &agent_port)?;
        }
    } else if !found.port.is_empty() {
        check_port("configuration", "port", &found.port, &agent_port)?;
    }
    let is_empty = found.scrape.is_empty() && found.path.is_empty() && found.port.is_empty();
    if let Some(proxy) = pod::find_in_pod_mut(pod, PROXY).filter(|_| !is_empty || !found.targets.is_empty()) {
        let value = serde_json::to_string(&found).unwrap_or_default();
        pod::environment_mut(proxy).push(json!({"name": VARIABLE, "value": value}));
    }
    clear(pod);
    pod::set_annotation(pod, "prometheus.io/port", agent_port);
    pod::set_annotation(pod, "prometheus.io/path", "/stats/prometheus");
    pod::set_annotation(pod, "prometheus.io/scrape", "true");
    Ok(())
}

/// Removes the annotations that say where to scrape, however they are spelt.
pub(super) fn clear(pod: &mut Json) {
    let known = [SCRAPE, PORT, PATH, TARGETS];
    pod::metadata_mut(pod, "annotations").retain(|key, _| !known.contains(&as_label(key).as_str()));
}

/// The port that annotations name.
pub(super) fn port(pod: &Json) -> Option<&str> {
    pod::metadata_map(pod, "annotations").find(|(key, _)| as_label(key) == PORT).map(|(_, value)| value)
}

/// Names the port of metrics over TLS in an annotation, where the proxy has one.
pub(super) fn announce_secure_port(pod: &mut Json) {
    if pod::metadata_map(pod, "annotations").any(|(key, _)| as_label(key) == SECURE_PORT) {
        return;
    }
    let environment = pod::find_in_pod(pod, PROXY).and_then(|proxy| proxy.get("env")?.as_array());
    let variable =
        environment.into_iter().flatten().find(|variable| pod::name(variable) == SECURE_PORT_VARIABLE);
    let port = variable.and_then(|variable| variable.get("value")?.as_str());
    if let Some(port) = port.filter(|port| !matches!(*port, "" | "0")).map(str::to_owned) {
        pod::set_annotation(pod, "prometheus.istio.io/secure-port", port);
    }
}

fn is_scraped(pod: &Json) -> bool {
    let annotations = pod::metadata_map(pod, "annotations").filter(|(key, _)| as_label(key) == SCRAPE);
    annotations.filter_map(|(_, value)| pod::parse_bool(value)).next().unwrap_or(true)
}

fn is_enabled(pod: &Json, mesh: &MeshConfig) -> bool {
    let annotation = pod::annotation(pod, MERGE).and_then(pod::parse_bool);
    annotation.or(mesh.enable_prometheus_merge.map(|merge| merge.value)).unwrap_or(true)
}

fn configuration(pod: &Json) -> Configuration {
    let mut found = Configuration::default();
    for (key, value) in pod::metadata_map(pod, "annotations") {
        match as_label(key).as_str() {
            PORT => value.clone_into(&mut found.port),
            SCRAPE => value.clone_into(&mut found.scrape),
            PATH => value.clone_into(&mut found.path),
            TARGETS => found.targets = targets(value).unwrap_or_default(),
            _ => {}
        }
    }
    found
}

/// Reads `port:path` pairs; nothing if one has no port.
fn targets(text: &str) -> Option<Vec<Target>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let target = |entry: &str| {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let (port, path) = (port.trim(), path.trim());
        let path = if path.is_empty() { "/metrics" } else { path };
        (!port.is_empty()).then(|| Target { port: port.to_owned(), path: path.to_owned() })
    };
    entries.map(target).collect()
}

fn check_port(what: &str, name: &str, port: &str, agent_port: &str) -> Result<(), String> {
    let refused = |why: String| Err(format!("invalid prometheus scrape {what}: {why}"));
    let Some(number) = port.parse::<i64>().ok().filter(|number| (1..=65535).contains(number)) else {
        return refused(format!("invalid {name} {port:?}"));
    };
    if number.to_string() == agent_port {
        return refused(format!("{name} {port} conflicts with agent port"));
    }
    if let Some((_, owner)) = RESERVED_PORTS.iter().find(|(reserved, _)| *reserved == number) {
        return refused(format!("{name} {port} is reserved for Istio ({owner}) and cannot be scraped"));
    }
    Ok(())
}

/// A name as Prometheus turns it into one of a label.
fn as_label(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
