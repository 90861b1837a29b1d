//! The metadata of a node: what the agent beside a proxy found out and configured.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use canopus_base::labels::Labels;
use canopus_base::tree::{DecodeError, Node};
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::json::{self, Problems, Unknown};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

/// What the control plane reads of a node's metadata. Every key may be missing: older agents do not send it.
#[derive(Clone, PartialEq, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "SCREAMING_SNAKE_CASE")]
pub struct NodeMetadata {
    /// The proxy configuration in force, which wins over the mesh's default.
    #[serde(skip)]
    pub proxy_config: Option<ProxyConfig>,
    /// The version of the agent.
    pub istio_version: String,
    /// The revision of the control plane it belongs to.
    pub istio_revision: String,
    /// The labels of the workload.
    pub labels: Labels,
    /// The labels given to the agent itself rather than to the workload.
    pub static_labels: Labels,
    /// The annotations of the workload.
    pub annotations: BTreeMap<String, String>,
    /// The addresses of the proxy.
    pub instance_ips: StringList,
    /// The namespace of the workload.
    pub namespace: String,
    /// The Kubernetes node it runs on.
    pub node_name: String,
    /// The workload's name, such as its Deployment's.
    pub workload_name: String,
    /// How traffic reaches the proxy: `REDIRECT`, `TPROXY` or `NONE`.
    pub interception_mode: String,
    /// The service account it runs as.
    pub service_account: String,
    /// The port of an HTTP forward proxy to open.
    pub http_proxy_port: String,
    /// The mesh it belongs to.
    pub mesh_id: String,
    /// The cluster it runs in.
    pub cluster_id: String,
    /// The network it is in.
    pub network: String,
    /// The networks whose endpoints it wants; all if empty.
    pub requested_network_view: StringList,
    /// The ports of its containers, for looking up named ports.
    pub pod_ports: PodPorts,
    /// Path of the certificate chain to serve with.
    pub tls_server_cert_chain: String,
    /// Path of the key to serve with.
    pub tls_server_key: String,
    /// Path of the roots clients are checked against.
    pub tls_server_root_cert: String,
    /// Path of the certificate chain to connect with.
    pub tls_client_cert_chain: String,
    /// Path of the key to connect with.
    pub tls_client_key: String,
    /// Path of the roots servers are checked against.
    pub tls_client_root_cert: String,
    /// The directory relative certificate paths are in.
    pub base: String,
    /// Idle timeout of connections, as a Go duration.
    pub idle_timeout: String,
    /// `1` if the workload makes HTTP/1.0 requests.
    pub http10: String,
    /// The generator to use: `grpc` for proxyless clients.
    pub generator: String,
    /// Whether the bootstrap has a cluster of the workload itself, for zone-aware balancing.
    pub enable_self_discovery: StringBool,
    /// Whether the agent answers DNS queries.
    pub dns_capture: StringBool,
    /// Whether ServiceEntries without an address get one.
    pub dns_auto_allocate: StringBool,
    /// Where the agent listens for DNS.
    pub dns_proxy_addr: String,
    /// Whether the proxy takes HBONE connections.
    pub enable_hbone: StringBool,
    /// Whether the proxy must not open HBONE connections.
    pub disable_hbone_send: StringBool,
    /// The WorkloadGroup to register the proxy under when it connects.
    pub auto_register_group: String,
    /// The WorkloadEntry the proxy is.
    pub workload_entry: String,
    /// Whether the proxy cannot bind ports below 1024.
    pub unprivileged_pod: String,
    /// What the cloud it runs on says about it.
    pub platform_metadata: BTreeMap<String, String>,
    /// The port of the token exchange server.
    pub sts_port: String,
    /// The port health is served on.
    pub envoy_status_port: i64,
    /// The port metrics are served on.
    pub envoy_prometheus_port: i64,
    /// The port the proxy's own metrics are served on over mutual TLS; none if zero.
    pub envoy_secure_metrics_port: i64,
    /// The port merged metrics are served on over mutual TLS; none if zero.
    pub envoy_secure_merged_metrics_port: i64,
    /// Whether the proxy ends once no connection is left.
    pub exit_on_zero_active_connections: StringBool,
    /// Whether inbound connections are balanced exactly over worker threads.
    pub inbound_listener_exact_balance: StringBool,
    /// Whether outbound connections are balanced exactly over worker threads.
    pub outbound_listener_exact_balance: StringBool,
    /// Whether the proxy asks the control plane for the metadata of its peers.
    pub metadata_discovery: Option<StringBool>,
    /// The file name of the workload SDS socket.
    pub workload_identity_socket_file: String,
    /// The metadata as the proxy sent it, for lookups of keys that are not listed here.
    #[serde(skip)]
    pub raw: RawMetadata,
}

/// Metadata as it was sent. It is looked at seldom and kept for every proxy, so it is kept as text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RawMetadata(Box<str>);

impl RawMetadata {
    fn new(tree: &Node) -> Self {
        Self(tree.to_json().to_string().into())
    }

    /// The text at a key; `None` if there is none, or something else than a text.
    pub fn text(&self, key: &str) -> Option<String> {
        let entries: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(&self.0).ok()?;
        serde_json::from_str(entries.get(key)?.get()).ok()
    }

    /// All of it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for RawMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why metadata cannot be read.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MetadataError {
    /// A key has a value of the wrong type.
    #[error("failed to unmarshal node metadata: {0}")]
    Value(#[from] DecodeError),
    /// `PROXY_CONFIG` is not a proxy configuration.
    #[error("failed to unmarshal node metadata: PROXY_CONFIG: {0}")]
    ProxyConfig(#[from] Problems),
}

impl NodeMetadata {
    /// Reads the metadata of an xDS node.
    pub fn from_struct(metadata: &Struct) -> Result<Self, MetadataError> {
        Self::from_tree(json::write(metadata))
    }

    /// Reads metadata in JSON form.
    pub fn from_tree(raw: Node) -> Result<Self, MetadataError> {
        let mut metadata: Self = raw.decode()?;
        metadata.proxy_config = match raw.get("PROXY_CONFIG") {
            // Newer agents may send fields that are not known here.
            Some(config) if !config.is_null() => Some(json::read(config, Unknown::Report)?.value),
            _ => None,
        };
        metadata.raw = RawMetadata::new(&raw);
        Ok(metadata)
    }
}

/// A list that is written as one string with commas.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StringList(pub Vec<String>);

impl<'de> Deserialize<'de> for StringList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text.is_empty() { Self::default() } else { Self(text.split(',').map(str::to_owned).collect()) })
    }
}

impl Serialize for StringList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.join(","))
    }
}

/// A truth value that is written as a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StringBool(pub bool);

impl<'de> Deserialize<'de> for StringBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The spellings of Go's `strconv.ParseBool`.
        match String::deserialize(deserializer)?.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Self(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Self(false)),
            other => Err(de::Error::custom(format_args!("{other:?} is neither \"true\" nor \"false\""))),
        }
    }
}

impl Serialize for StringBool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0 { "true" } else { "false" })
    }
}

/// A port of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodPort {
    /// The name services refer to it by.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The port number.
    pub container_port: i64,
    /// `TCP` or `UDP`.
    pub protocol: String,
}

/// Ports, written as a string that holds a JSON list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodPorts(pub Vec<PodPort>);

impl<'de> Deserialize<'de> for PodPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for PodPorts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}
