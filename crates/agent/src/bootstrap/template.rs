//! A user's own bootstrap template (`ISTIO_BOOTSTRAP`, `customConfigFile`, `proxyBootstrapTemplatePath`): Go's template
//! language with sprig, and the values that Istio hands to such templates, under Istio's names.
//!
//! Values are taken from the bootstrap that is rendered without a template wherever it has them, so that both say the same.

use canopus_gotemplate::{Functions, Templates, Value as Text, sprig};
use serde_json::{Map, Value};

use super::clusters::metrics_service_address;
use super::{BootstrapError, BootstrapSettings, Facts, render, runtime, service_cluster};
use crate::node::Node;

/// Why a template gives no bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The values cannot be had.
    #[error(transparent)]
    Values(#[from] BootstrapError),
    /// The template cannot be read.
    #[error("bootstrap template {path}: {reason}")]
    Template {
        /// The file.
        path: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// What it gives is not a bootstrap.
    #[error(
        "bootstrap template {path}: what it renders is not {format}: {reason}; render it with the values of docs/agent.md"
    )]
    Output {
        /// The file.
        path: String,
        /// JSON or YAML.
        format: &'static str,
        /// What is wrong, and where.
        reason: String,
    },
}

/// Whether Envoy reads a template's output as YAML.
pub fn is_yaml(path: &str) -> bool {
    path.ends_with(".yaml") || path.ends_with(".yaml.tmpl")
}

/// The bootstrap that a template gives for a node.
pub fn render_template(
    path: &str,
    text: &str,
    node: &Node,
    settings: &BootstrapSettings,
) -> Result<Vec<u8>, TemplateError> {
    let failed = |reason: String| TemplateError::Template { path: path.to_owned(), reason };
    let mut functions = Functions::builtin();
    sprig::add_to(&mut functions, &sprig::Options::default());
    // Parity: Istio's own spelling of sprig's function.
    if let Some(to_json) = functions.get("toJson").cloned() {
        functions.insert("toJSON", to_json);
    }
    let mut templates = Templates::new("bootstrap", functions);
    templates.parse("bootstrap", text).map_err(|error| failed(error.to_string()))?;
    let values = from_json(&Value::Object(values(node, settings)?));
    let rendered = templates.render("bootstrap", &values).map_err(|error| failed(error.to_string()))?;
    check(path, &rendered)?;
    Ok(rendered)
}

/// An error here names the line; Envoy's would come later and name none.
fn check(path: &str, rendered: &[u8]) -> Result<(), TemplateError> {
    let output = |format, reason| TemplateError::Output { path: path.to_owned(), format, reason };
    if is_yaml(path) {
        let text = String::from_utf8(rendered.to_vec()).map_err(|error| output("YAML", error.to_string()))?;
        let limits = canopus_base::tree::Limits { max_bytes: 4 << 20, ..Default::default() };
        canopus_base::yaml::parse_one(text, &limits).map_err(|error| output("YAML", error.to_string()))?;
        return Ok(());
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(rendered)
        .map(drop)
        .map_err(|error| output("JSON", error.to_string()))
}

/// The values, by Istio's names. One that Istio leaves out when it is empty is left out here.
fn values(node: &Node, settings: &BootstrapSettings) -> Result<Map<String, Value>, BootstrapError> {
    let facts = Facts::new(node, settings)?;
    let bootstrap = render(node, settings)?.bootstrap;
    let config = facts.config();
    let metadata = facts.metadata();
    let mut values = Map::new();
    let mut set = |name: &str, value: Value| drop(values.insert(name.to_owned(), value));
    set("config", go_names(node.config.to_json()));
    set("metadata", node.metadata_json());
    set("cluster", service_cluster(config, metadata).into());
    set("nodeID", node.id.clone().into());
    set("nodeType", node.proxy_type().into());
    set("xds_type", facts.xds_type.into());
    set("meta_json_str", node.metadata_json().to_string().into());
    set("runtime_flags", runtime::flags(config, settings).to_string().into());
    set("localhost", facts.addresses.localhost.into());
    set("wildcard", facts.addresses.wildcard.into());
    set("dns_lookup_family", facts.addresses.lookup_family.into());
    set("log_json", settings.log_as_json.into());
    set("discovery_address", config.discovery_address.clone().into());
    let host = crate::address::HostPort::parse(&config.discovery_address).map(|parsed| parsed.host);
    set("discovery_host", host.unwrap_or_default().into());
    let names: Vec<String> =
        metadata.pilot_san.iter().map(|name| format!("{{\"exact\":\"{name}\"}}")).collect();
    set("pilot_SAN", format!("[{}]", names.join(",")).into());
    set("metadata_discovery", facts.metadata_discovery.into());
    let local_only =
        config.proxy_metadata.get("METRICS_LOCALHOST_ACCESS_ONLY").is_some_and(|text| text == "true");
    set("metrics_localhost_access_only", local_only.into());
    set("envoy_status_port", metadata.envoy_status_port.into());
    set("envoy_prometheus_port", metadata.envoy_prometheus_port.into());
    set("global_downstream_max_connections", runtime::max_connections(config).into());
    set("workload_identity_socket_file", metadata.workload_identity_socket_file.clone().into());
    if let Some(second) = facts.addresses.additional_localhost {
        set("additional_localhost", second.into());
        set("additional_wildcard", facts.addresses.additional_wildcard.unwrap_or_default().into());
        set("dual_stack", true.into());
    }
    if settings.status_proxy_protocol {
        set("envoy_status_port_enable_proxy_protocol", true.into());
    }
    if metadata.enable_self_discovery.0 {
        set("enable_self_discovery", true.into());
    }
    for (name, port) in [
        ("secure_metrics_port", metadata.envoy_secure_metrics_port),
        ("secure_merged_metrics_port", metadata.envoy_secure_merged_metrics_port),
    ] {
        if port != 0 {
            set(name, port.into());
        }
    }
    for (name, text) in [
        ("region", &node.locality.region),
        ("zone", &node.locality.zone),
        ("sub_zone", &node.locality.sub_zone),
        ("outlier_log_path", &metadata.outlier_log_path),
    ] {
        if !text.is_empty() {
            set(name, text.clone().into());
        }
    }
    if node.raw.contains_key("file-credential") {
        set("custom_file_path", super::FILE_CREDENTIAL_SOCKET.into());
    }
    if let Some(Value::String(text)) = node.raw.get("LOAD_STATS_CONFIG_JSON") {
        set("load_stats_config_json_str", text.clone().into());
    }
    if !metadata.sts_port.is_empty() {
        set("sts", true.into());
        set("sts_port", metadata.sts_port.parse::<u16>().unwrap_or_default().into());
    }
    for (name, key) in [("gcp_project_id", "gcp_project"), ("gcp_project_number", "gcp_project_number")] {
        if let Some(text) = metadata.platform_metadata.get(key) {
            set(name, text.clone().into());
        }
    }
    values.extend(statistics(&facts));
    values.extend(collectors(&facts, &bootstrap)?);
    Ok(values)
}

fn statistics(facts: &Facts<'_>) -> Map<String, Value> {
    let stats = &facts.stats;
    let mut values = Map::new();
    for (name, patterns) in [
        ("inclusionPrefix", &stats.prefixes),
        ("inclusionSuffix", &stats.suffixes),
        ("inclusionRegexps", &stats.regexes),
        ("extraStatTags", &stats.extra_tags),
    ] {
        if !patterns.is_empty() {
            values.insert(name.to_owned(), patterns.clone().into());
        }
    }
    if !stats.buckets.is_empty() {
        let bucket = |(prefix, buckets): (&String, &Vec<f64>)| serde_json::json!({"match": {"prefix": prefix}, "buckets": buckets});
        values.insert("histogram_buckets".to_owned(), stats.buckets.iter().map(bucket).collect());
    }
    for (name, interval) in [
        ("stats_flush_interval", stats.flush_interval()),
        ("stats_eviction_interval", stats.eviction_interval()),
    ] {
        if !interval.is_null() {
            values.insert(name.to_owned(), interval);
        }
    }
    values
}

/// Addresses and TLS of the servers that traces, metrics and logs go to, each the JSON that the bootstrap has.
fn collectors(facts: &Facts<'_>, bootstrap: &Value) -> Result<Map<String, Value>, BootstrapError> {
    let mut values = Map::new();
    let config = facts.config();
    let clusters = bootstrap["static_resources"]["clusters"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| clusters.iter().find(|cluster| cluster["name"] == name);
    let address = |cluster: &Value| {
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        endpoint["address"]["socket_address"].to_string()
    };
    for (cluster, name) in [("zipkin", "zipkin"), ("lightstep", "lightstep"), ("datadog_agent", "datadog")] {
        if let Some(found) = find(cluster) {
            values.insert(name.to_owned(), address(found).into());
            if found["transport_socket"].is_object() {
                values.insert("tracing_tls".to_owned(), found["transport_socket"].to_string().into());
            }
        }
    }
    for name in ["envoy_metrics_service", "envoy_accesslog_service"] {
        let Some(found) = find(name) else { continue };
        values.insert(format!("{name}_address"), address(found).into());
        if found["transport_socket"].is_object() {
            values.insert(format!("{name}_tls"), found["transport_socket"].to_string().into());
        }
        if found["upstream_connection_options"].is_object() {
            let options = found["upstream_connection_options"].to_string();
            values.insert(format!("{name}_tcp_keepalive"), options.into());
        }
    }
    if metrics_service_address(facts).is_some() {
        let sink = bootstrap["stats_sinks"].to_string();
        values.insert("envoy_metrics_stats_compression".to_owned(), sink.contains("compress").into());
    }
    if !config.statsd_udp_address.is_empty() {
        let statsd = facts.socket_address("statsdUdpAddress", &config.statsd_udp_address)?;
        values.insert("statsd".to_owned(), statsd.to_string().into());
    }
    if let Some((path, _)) = super::token_file(config) {
        values.insert("lightstepToken".to_owned(), path.into());
    }
    Ok(values)
}

/// The fields of a message as Go names them: `proxyAdminPort` is `ProxyAdminPort`.
fn go_names(json: Value) -> Value {
    let Value::Object(fields) = json else { return json };
    let upper = |name: String| {
        let mut characters = name.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(characters).collect::<String>()
    };
    Value::Object(fields.into_iter().map(|(name, value)| (upper(name), value)).collect())
}

fn from_json(json: &Value) -> Text {
    match json {
        Value::Null => Text::Nil,
        Value::Bool(value) => Text::Bool(*value),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Text::Float(number.as_f64().unwrap_or_default()), Text::int)
        }
        Value::String(text) => Text::string(text.as_str()),
        Value::Array(items) => Text::list(items.iter().map(from_json)),
        Value::Object(fields) => {
            Text::map(fields.iter().map(|(name, value)| (name.as_str(), from_json(value))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeSources;
    use crate::proxy_config::{EffectiveConfig, Layers};

    fn node(config: &str) -> Node {
        let layers = Layers { environment: config, ..Layers::default() };
        let sources = NodeSources {
            id: "sidecar~10.0.0.1~cart.shop~shop.svc.cluster.local".into(),
            addresses: vec!["10.0.0.1".into()],
            status_port: 15021,
            ..Default::default()
        };
        Node::collect(&sources, EffectiveConfig::resolve(&layers).unwrap()).unwrap()
    }

    fn rendered(path: &str, text: &str, config: &str) -> Result<String, String> {
        let bytes = render_template(path, text, &node(config), &BootstrapSettings::default());
        bytes.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn template_sees_the_values_that_istio_hands_to_it() {
        let text = r#"{"node": {"id": "{{ .nodeID }}", "metadata": {{ .meta_json_str }}},
            "admin": {{ .config.ProxyAdminPort }}, "path": "{{ .config.ConfigPath }}", "port": {{ .envoy_status_port }},
            "zipkin": {{ .zipkin }}, "none": "{{ if .lightstep }}yes{{ else }}no{{ end }}",
            "prefixes": [{{ range $i, $s := .inclusionPrefix }}{{ if $i }},{{ end }}"{{ js $s }}"{{ end }}],
            "upper": {{ upper .localhost | toJSON }}}"#;
        let config = "{tracing: {zipkin: {address: 'zipkin:9411'}}, proxyAdminPort: 15999}";
        let json: Value = serde_json::from_str(&rendered("b.json", text, config).unwrap()).unwrap();
        assert_eq!(json["node"]["id"], "sidecar~10.0.0.1~cart.shop~shop.svc.cluster.local");
        assert_eq!((&json["admin"], &json["port"]), (&15999.into(), &15021.into()));
        assert_eq!(json["zipkin"], serde_json::json!({"address": "zipkin", "port_value": 9411}));
        assert_eq!((&json["none"], &json["upper"]), (&"no".into(), &"127.0.0.1".into()));
        assert_eq!(json["prefixes"][0], "cluster_manager");
    }

    #[test]
    fn error_names_the_file_and_the_place() {
        let error = rendered("/x/b.json", "{\"a\": {{ .nodeID", "{}").unwrap_err();
        assert!(error.contains("/x/b.json") && error.contains("bootstrap:1"), "{error}");
        let error = rendered("/x/b.json", "{\"a\": {{ .nodeID }}}", "{}").unwrap_err();
        assert!(error.contains("not JSON") && error.contains("line 1"), "{error}");
        assert!(rendered("/x/b.yaml", "a: {{ .nodeID }}", "{}").is_ok());
        assert!(rendered("/x/b.yaml", "a: [", "{}").unwrap_err().contains("not YAML"));
    }
}
