//! The configuration Envoy starts with, as data: a [`Node`] and a few settings in, the JSON of an Envoy `Bootstrap` out.
//!
//! Everything else Envoy learns from the control plane. The bootstrap has what that takes: the identity of the node, the
//! sockets of the agent (`xds-grpc`, `sds-grpc`), readiness and metrics listeners, which statistics exist, and tracing.
//! Rendering reads no file, clock or environment; files it wants beside the bootstrap (an access token) are part of the
//! result.
//!
//! [`clusters`], [`listeners`] and [`stats`] have the parts; [`overrides`] reads a file that Envoy merges over the
//! bootstrap, [`template`] renders a user's own bootstrap in the place of ours.

mod clusters;
mod grpc;
mod listeners;
pub mod overrides;
mod runtime;
mod stats;
mod template;
mod tls;

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::{ClusterName, TracingServiceName};
use canopus_proto::istio::mesh::v1alpha1::tracing::Tracer;
use serde_json::{Map, Value, json};

pub use grpc::{CertificateDirectory, grpc_bootstrap};
pub use stats::StatsSettings;
pub use template::{TemplateError, is_yaml, render_template};

use crate::address::HostPort;
use crate::node::{Node, NodeMetadata};

/// Where an outside provider of file credentials listens.
pub const FILE_CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/files-socket";
const TYPE_PREFIX: &str = "type.googleapis.com/";
const TOKEN_FILE: &str = "lightstep_access_token.txt";

/// Settings beside the node.
#[derive(Clone, Debug)]
pub struct BootstrapSettings {
    /// `ISTIO_DELTA_XDS`: whether xDS is spoken in its delta variant.
    pub delta_xds: bool,
    /// `ISTIO_DUAL_STACK`.
    pub dual_stack: bool,
    /// `ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL`.
    pub status_proxy_protocol: bool,
    /// `HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED`.
    pub strip_fragment: bool,
    /// `COMPLIANCE_POLICY`.
    pub compliance_policy: String,
    /// Whether Envoy logs JSON.
    pub log_as_json: bool,
    /// `HOST_IP`, which stands for `$(HOST_IP)` in addresses.
    pub host_ip: String,
}

impl Default for BootstrapSettings {
    fn default() -> Self {
        Self {
            delta_xds: true,
            dual_stack: false,
            status_proxy_protocol: false,
            strip_fragment: true,
            compliance_policy: String::new(),
            log_as_json: false,
            host_ip: String::new(),
        }
    }
}

/// Why there is no bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// An address of the proxy configuration is not one.
    #[error(
        "proxy configuration: {field}: {address:?} is not HOST:PORT; write for example zipkin.istio-system:9411"
    )]
    Address {
        /// The field of ProxyConfig.
        field: &'static str,
        /// The address as it was given.
        address: String,
    },
    /// A tracer needs facts of a cloud platform that nobody told.
    #[error(
        "proxy configuration: tracing.stackdriver: the GCP project is not known; set ISTIO_METAJSON_ with PLATFORM_METADATA.gcp_project"
    )]
    NoProject,
    /// `LOAD_STATS_CONFIG_JSON` is not JSON.
    #[error("node metadata: LOAD_STATS_CONFIG_JSON: {0}; expected the JSON of an ApiConfigSource")]
    LoadStats(serde_json::Error),
}

/// A bootstrap and the file it refers to.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The JSON of the bootstrap.
    pub bootstrap: Value,
    /// A file to write before Envoy starts: its path and its text, which is secret.
    pub token_file: Option<(String, String)>,
}

/// Renders the bootstrap of a node.
pub fn render(node: &Node, settings: &BootstrapSettings) -> Result<Rendered, BootstrapError> {
    let facts = Facts::new(node, settings)?;
    let mut bootstrap = Map::new();
    let mut set = |key: &str, value: Value| {
        if !value.is_null() {
            bootstrap.insert(key.to_owned(), value);
        }
    };
    set("application_log_config", log_format(settings.log_as_json));
    set("node", envoy_node(&facts));
    set("layered_runtime", runtime::layers(facts.config(), settings));
    set("bootstrap_extensions", extensions(facts.metadata_discovery));
    set("stats_flush_interval", facts.stats.flush_interval());
    set("stats_eviction_interval", facts.stats.eviction_interval());
    set("stats_config", facts.stats.config(facts.metadata_discovery));
    set("admin", admin(&facts));
    set("dynamic_resources", dynamic_resources(facts.xds_type));
    set("static_resources", json!({"clusters": clusters::all(&facts)?, "listeners": listeners::all(&facts)}));
    set("overload_manager", overload_manager(facts.config()));
    set("tracing", tracing(&facts));
    set("stats_sinks", stats::sinks(&facts)?);
    set("cluster_manager", cluster_manager(&facts)?);
    set("deferred_stat_options", json!({"enable_deferred_creation_stats": true}));
    Ok(Rendered { bootstrap: Value::Object(bootstrap), token_file: token_file(facts.config()) })
}

/// What several parts of the bootstrap are made from.
struct Facts<'a> {
    node: &'a Node,
    settings: &'a BootstrapSettings,
    addresses: Addresses,
    stats: StatsSettings,
    xds_type: &'static str,
    metadata_discovery: bool,
}

impl<'a> Facts<'a> {
    fn new(node: &'a Node, settings: &'a BootstrapSettings) -> Result<Self, BootstrapError> {
        let waypoint = node.proxy_type() == "waypoint";
        let delta = settings.delta_xds || waypoint;
        let wanted = waypoint || node.metadata.metadata_discovery.is_some_and(|discovery| discovery.0);
        if wanted && !delta {
            tracing::warn!("peers are not discovered: that needs delta xDS (ISTIO_DELTA_XDS)");
        }
        Ok(Self {
            node,
            settings,
            addresses: Addresses::new(&node.metadata.instance_ips.0, settings.dual_stack),
            stats: StatsSettings::from_node(node),
            xds_type: if delta { "DELTA_GRPC" } else { "GRPC" },
            metadata_discovery: wanted && delta,
        })
    }

    fn config(&self) -> &'a ProxyConfig {
        &self.node.config.message
    }

    fn metadata(&self) -> &'a NodeMetadata {
        &self.node.metadata
    }

    fn tracer(&self) -> Option<&'a Tracer> {
        self.config().tracing.as_ref()?.tracer.as_ref()
    }

    /// A socket address of a field of the proxy configuration.
    fn socket_address(&self, field: &'static str, text: &str) -> Result<Value, BootstrapError> {
        let parsed = HostPort::parse(text);
        let HostPort { mut host, port } =
            parsed.ok_or_else(|| BootstrapError::Address { field, address: text.to_owned() })?;
        if host == "$(HOST_IP)" && !self.settings.host_ip.is_empty() {
            host.clone_from(&self.settings.host_ip);
        }
        Ok(json!({"address": host, "port_value": port}))
    }
}

/// The addresses of this machine, by the families the proxy has.
struct Addresses {
    localhost: &'static str,
    wildcard: &'static str,
    additional_localhost: Option<&'static str>,
    additional_wildcard: Option<&'static str>,
    lookup_family: &'static str,
}

impl Addresses {
    fn new(addresses: &[String], dual_stack: bool) -> Self {
        let is_v6 =
            |address: &String| address.parse().is_ok_and(|address: std::net::IpAddr| address.is_ipv6());
        let (v4, v6) = (("127.0.0.1", "0.0.0.0"), ("::1", "::"));
        let one = |(localhost, wildcard), lookup_family| Self {
            localhost,
            wildcard,
            additional_localhost: None,
            additional_wildcard: None,
            lookup_family,
        };
        let (some_v6, all_v6) = (addresses.iter().any(is_v6), addresses.iter().all(is_v6));
        if all_v6 && !addresses.is_empty() {
            return one(v6, "V6_ONLY");
        }
        if !some_v6 || !dual_stack {
            return one(v4, "V4_ONLY");
        }
        let (first, second) = if addresses.first().is_some_and(is_v6) { (v6, v4) } else { (v4, v6) };
        Self {
            additional_localhost: Some(second.0),
            additional_wildcard: Some(second.1),
            ..one(first, "ALL")
        }
    }
}

/// A message with its type, as an `Any` has it in JSON.
fn typed(message: &str, fields: Value) -> Value {
    let mut typed = Map::from_iter([("@type".to_owned(), format!("{TYPE_PREFIX}{message}").into())]);
    if let Value::Object(fields) = fields {
        typed.extend(fields);
    }
    Value::Object(typed)
}

fn log_format(json: bool) -> Value {
    if json {
        return json!({"log_format": {"json_format": {
            "time": "%Y-%m-%dT%T.%fZ",
            "level": "%l",
            "scope": "envoy %n",
            "msg": "%j",
            "caller": "%g:%#",
            "thread": "%t",
        }}});
    }
    json!({"log_format": {"text_format": "%Y-%m-%dT%T.%fZ\t%l\tenvoy %n %g:%#\t%v\tthread=%t"}})
}

fn envoy_node(facts: &Facts<'_>) -> Value {
    let locality = &facts.node.locality;
    let parts = [("region", &locality.region), ("zone", &locality.zone), ("sub_zone", &locality.sub_zone)];
    let given = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let locality: Map<String, Value> =
        given.map(|(key, text)| (key.to_owned(), text.clone().into())).collect();
    json!({
        "id": facts.node.id,
        "cluster": service_cluster(facts.config(), facts.metadata()),
        "locality": locality,
        "metadata": facts.node.metadata_json(),
    })
}

/// The name that traces have for the workload.
fn service_cluster(config: &ProxyConfig, metadata: &NodeMetadata) -> String {
    let canonical = || {
        let labels = ["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"];
        let found = labels.iter().find_map(|label| metadata.labels.get(*label));
        let workload =
            if metadata.workload_name.is_empty() { "istio-proxy" } else { &metadata.workload_name };
        found.map_or(workload, String::as_str).to_owned()
    };
    match &config.cluster_name {
        Some(ClusterName::ServiceCluster(name)) => service_cluster_or_default(name, metadata),
        Some(ClusterName::TracingServiceName(kind)) => match TracingServiceName::try_from(*kind) {
            Ok(TracingServiceName::CanonicalNameOnly) => service_cluster_or_default(&canonical(), metadata),
            Ok(TracingServiceName::CanonicalNameAndNamespace) if !metadata.namespace.is_empty() => {
                format!("{}.{}", canonical(), metadata.namespace)
            }
            Ok(TracingServiceName::CanonicalNameAndNamespace) => {
                service_cluster_or_default(&canonical(), metadata)
            }
            _ => service_cluster_or_default("", metadata),
        },
        None => service_cluster_or_default("", metadata),
    }
}

fn service_cluster_or_default(name: &str, metadata: &NodeMetadata) -> String {
    if !name.is_empty() && name != "istio-proxy" {
        return name.to_owned();
    }
    let namespace = &metadata.namespace;
    let labels = ["app", "app.kubernetes.io/name", "service.istio.io/canonical-name"];
    let app = labels.iter().find_map(|label| metadata.labels.get(*label));
    match app {
        Some(app) => format!("{app}.{namespace}"),
        None if !metadata.workload_name.is_empty() => format!("{}.{namespace}", metadata.workload_name),
        None if !namespace.is_empty() => format!("istio-proxy.{namespace}"),
        None => "istio-proxy".to_owned(),
    }
}

fn extensions(metadata_discovery: bool) -> Value {
    let extension = |name: &str, message: &str, value: Value| {
        let config = json!({"type_url": format!("{TYPE_PREFIX}{message}"), "value": value});
        json!({"name": name, "typed_config": typed("udpa.type.v1.TypedStruct", config)})
    };
    let mut extensions = Vec::new();
    if metadata_discovery {
        let source = json!({"config_source": {"ads": {}}});
        extensions.push(extension("metadata_discovery", "istio.workload.BootstrapExtension", source));
    }
    extensions.push(extension(
        "envoy.bootstrap.internal_listener",
        "envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
        json!({"buffer_size_kb": 64}),
    ));
    Value::Array(extensions)
}

fn admin(facts: &Facts<'_>) -> Value {
    let log = typed("envoy.extensions.access_loggers.file.v3.FileAccessLog", json!({"path": "/dev/null"}));
    json!({
        "access_log": [{"name": "envoy.access_loggers.file", "typed_config": log}],
        "profile_path": "/var/lib/istio/data/envoy.prof",
        "address": {"socket_address": {
            "address": facts.addresses.localhost,
            "port_value": facts.config().proxy_admin_port,
        }},
    })
}

fn dynamic_resources(xds_type: &str) -> Value {
    let over_ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "lds_config": over_ads,
        "cds_config": over_ads,
        "ads_config": {
            "api_type": xds_type,
            "set_node_on_first_message_only": true,
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
        },
    })
}

fn overload_manager(config: &ProxyConfig) -> Value {
    let limit = typed(
        "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        json!({"max_active_downstream_connections": runtime::max_connections(config)}),
    );
    let name = "envoy.resource_monitors.global_downstream_max_connections";
    json!({"resource_monitors": [{"name": name, "typed_config": limit}]})
}

fn tracing(facts: &Facts<'_>) -> Value {
    let (name, message, fields) = match facts.tracer() {
        Some(Tracer::Zipkin(_)) => (
            "envoy.tracers.zipkin",
            "envoy.config.trace.v3.ZipkinConfig",
            json!({
                "collector_cluster": "zipkin",
                "collector_endpoint": "/api/v2/spans",
                "collector_endpoint_version": "HTTP_JSON",
                "trace_id_128bit": true,
                "shared_span_context": false,
            }),
        ),
        Some(Tracer::Lightstep(_)) => (
            "envoy.tracers.lightstep",
            "envoy.config.trace.v3.LightstepConfig",
            json!({"collector_cluster": "lightstep", "access_token_file": token_path(facts.config())}),
        ),
        Some(Tracer::Datadog(_)) => (
            "envoy.tracers.datadog",
            "envoy.config.trace.v3.DatadogConfig",
            json!({
                "collector_cluster": "datadog_agent",
                "service_name": service_cluster(facts.config(), facts.metadata()),
            }),
        ),
        _ => return Value::Null,
    };
    json!({"http": {"name": name, "typed_config": typed(message, fields)}})
}

fn token_path(config: &ProxyConfig) -> String {
    format!("{}/{TOKEN_FILE}", config.config_path.trim_end_matches('/'))
}

fn token_file(config: &ProxyConfig) -> Option<(String, String)> {
    match config.tracing.as_ref()?.tracer.as_ref()? {
        Tracer::Lightstep(lightstep) => Some((token_path(config), lightstep.access_token.clone())),
        _ => None,
    }
}

fn cluster_manager(facts: &Facts<'_>) -> Result<Value, BootstrapError> {
    let mut manager = Map::new();
    if facts.metadata().enable_self_discovery.0 {
        manager.insert("local_cluster_name".into(), "local_cluster".into());
    }
    if !facts.metadata().outlier_log_path.is_empty() {
        let log = json!({"event_log_path": facts.metadata().outlier_log_path});
        manager.insert("outlier_detection".into(), log);
    }
    if let Some(Value::String(text)) = facts.node.raw.get("LOAD_STATS_CONFIG_JSON") {
        let config = serde_json::from_str(text).map_err(BootstrapError::LoadStats)?;
        manager.insert("load_stats_config".into(), config);
    }
    if manager.is_empty() {
        return Ok(Value::Null);
    }
    manager.insert("enable_deferred_cluster_creation".into(), true.into());
    Ok(Value::Object(manager))
}
