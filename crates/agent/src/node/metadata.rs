//! The keys of node metadata that Istio knows, with their types.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes fields with the key as their doc comment, all of them left out when they have their zero value.
macro_rules! metadata {
    ($($key:literal $field:ident: $kind:ty),+ $(,)?) => {
        /// Node metadata. Fields are named as their keys; a field at its zero value is left out of the JSON.
        #[derive(Clone, Debug, Default, Deserialize, Serialize)]
        #[serde(default)]
        pub struct NodeMetadata {
            $(
                #[doc = concat!("The key `", $key, "`.")]
                #[serde(rename = $key, skip_serializing_if = "is_zero")]
                pub $field: $kind,
            )+
        }
    };
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

metadata! {
    "NAME" name: String,
    "OWNER" owner: String,
    "PILOT_SAN" pilot_san: Vec<String>,
    "OUTLIER_LOG_PATH" outlier_log_path: String,
    "APP_CONTAINERS" app_containers: String,
    "ISTIO_PROXY_SHA" istio_proxy_sha: String,
    "ISTIO_VERSION" istio_version: String,
    "ISTIO_REVISION" istio_revision: String,
    "LABELS" labels: BTreeMap<String, String>,
    "STATIC_LABELS" static_labels: BTreeMap<String, String>,
    "ANNOTATIONS" annotations: BTreeMap<String, String>,
    "INSTANCE_IPS" instance_ips: CommaList,
    "NAMESPACE" namespace: String,
    "NODE_NAME" node_name: String,
    "WORKLOAD_NAME" workload_name: String,
    "INTERCEPTION_MODE" interception_mode: String,
    "SERVICE_ACCOUNT" service_account: String,
    "HTTP_PROXY_PORT" http_proxy_port: String,
    "MESH_ID" mesh_id: String,
    "CLUSTER_ID" cluster_id: String,
    "NETWORK" network: String,
    "REQUESTED_NETWORK_VIEW" requested_network_view: CommaList,
    "POD_PORTS" pod_ports: PodPorts,
    "TLS_SERVER_CERT_CHAIN" tls_server_cert_chain: String,
    "TLS_SERVER_KEY" tls_server_key: String,
    "TLS_SERVER_ROOT_CERT" tls_server_root_cert: String,
    "TLS_CLIENT_CERT_CHAIN" tls_client_cert_chain: String,
    "TLS_CLIENT_KEY" tls_client_key: String,
    "TLS_CLIENT_ROOT_CERT" tls_client_root_cert: String,
    "BASE" base: String,
    "IDLE_TIMEOUT" idle_timeout: String,
    "HTTP10" http10: String,
    "GENERATOR" generator: String,
    "ENABLE_SELF_DISCOVERY" enable_self_discovery: StringBool,
    "DNS_CAPTURE" dns_capture: StringBool,
    "DNS_AUTO_ALLOCATE" dns_auto_allocate: StringBool,
    "DNS_PROXY_ADDR" dns_proxy_addr: String,
    "ENABLE_HBONE" enable_hbone: StringBool,
    "DISABLE_HBONE_SEND" disable_hbone_send: StringBool,
    "AUTO_REGISTER_GROUP" auto_register_group: String,
    "WORKLOAD_ENTRY" workload_entry: String,
    "UNPRIVILEGED_POD" unprivileged_pod: String,
    "PLATFORM_METADATA" platform_metadata: BTreeMap<String, String>,
    "STS_PORT" sts_port: String,
    "ENVOY_STATUS_PORT" envoy_status_port: u16,
    "ENVOY_PROMETHEUS_PORT" envoy_prometheus_port: u16,
    "ENVOY_SECURE_METRICS_PORT" envoy_secure_metrics_port: u16,
    "ENVOY_SECURE_MERGED_METRICS_PORT" envoy_secure_merged_metrics_port: u16,
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS" exit_on_zero_active_connections: StringBool,
    "INBOUND_LISTENER_EXACT_BALANCE" inbound_listener_exact_balance: StringBool,
    "OUTBOUND_LISTENER_EXACT_BALANCE" outbound_listener_exact_balance: StringBool,
    "CLOUDRUN_ADDR" cloudrun_addr: String,
    "METADATA_DISCOVERY" metadata_discovery: Option<StringBool>,
    "ENVOY_SKIP_DEPRECATED_LOGS" envoy_skip_deprecated_logs: StringBool,
    "WORKLOAD_IDENTITY_SOCKET_FILE" workload_identity_socket_file: String,
}

/// A boolean that is written as `"true"` or `"false"`, and read from that or from a real boolean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StringBool(pub bool);

impl Serialize for StringBool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0 { "true" } else { "false" })
    }
}

impl<'de> Deserialize<'de> for StringBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = bool;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"true\" or \"false\"")
            }

            fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
                Ok(value)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<bool, E> {
                // The spellings of Go's ParseBool.
                match text {
                    "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
                    "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Text).map(Self)
    }
}

/// A list that is written as one text with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommaList(pub Vec<String>);

impl Serialize for CommaList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.join(","))
    }
}

impl<'de> Deserialize<'de> for CommaList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }))
    }
}

/// The ports of a pod, which are written as JSON within a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodPorts(pub Vec<PodPort>);

/// One port of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodPort {
    /// Name of the port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of the port.
    pub container_port: u16,
    /// Protocol of the port.
    pub protocol: String,
}

impl Serialize for PodPorts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for PodPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(de::Error::custom)
    }
}
