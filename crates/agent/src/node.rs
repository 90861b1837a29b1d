//! What a proxy tells the control plane about itself: its id, its locality and its metadata.
//!
//! Metadata comes from `ISTIO_META_*` and `ISTIO_METAJSON_*` variables, the proxy configuration, the downward API and
//! settings of the agent. Known keys are typed ([`NodeMetadata`]) and written in the form Istio writes them; keys that
//! nobody knows travel as they are.

mod metadata;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tracing::warn;

pub use metadata::{CommaList, NodeMetadata, PodPorts, StringBool};

use crate::locality::Locality;
use crate::platform::Platform;
use crate::proxy_config::EffectiveConfig;

const LOCALITY_LABEL: &str = "istio-locality";
const TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

/// The sources that metadata is made from.
#[derive(Clone, Debug, Default)]
pub struct NodeSources<'a> {
    /// Node ID, such as `sidecar~10.0.0.1~cart.shop~shop.svc.cluster.local`.
    pub id: String,
    /// Names and texts of environment variables.
    pub environment: Vec<(&'a str, &'a str)>,
    /// The addresses of the proxy, the pod's own first.
    pub addresses: Vec<String>,
    /// Labels from the downward API.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations from the downward API.
    pub annotations: Option<BTreeMap<String, String>>,
    /// The version that is reported unless a variable says otherwise.
    pub version: String,
    /// Names that the control plane's certificate may have.
    pub control_plane_names: Vec<String>,
    /// The flag `--stsPort`.
    pub sts_port: u16,
    /// Where Envoy logs ejected hosts.
    pub outlier_log_path: String,
    /// `ENVOY_STATUS_PORT`.
    pub status_port: u16,
    /// `ENVOY_PROMETHEUS_PORT`.
    pub prometheus_port: u16,
    /// `ENVOY_SECURE_METRICS_PORT`.
    pub secure_metrics_port: u16,
    /// `ENVOY_SECURE_MERGED_METRICS_PORT`.
    pub secure_merged_metrics_port: u16,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`.
    pub exit_on_zero_active_connections: bool,
    /// `PEER_METADATA_DISCOVERY`, if set.
    pub metadata_discovery: Option<bool>,
    /// `ENVOY_SKIP_DEPRECATED_LOGS`.
    pub skip_deprecated_logs: bool,
    /// `WORKLOAD_IDENTITY_SOCKET_FILE`.
    pub identity_socket: String,
    /// Whether the socket of an outside provider of gateway credentials is there.
    pub credential_socket: bool,
    /// Whether the socket of an outside provider of file credentials is there.
    pub file_credential_socket: bool,
    /// What the cloud says, if there is one.
    pub platform: Platform,
}

/// A variable whose text does not fit.
#[derive(Debug, thiserror::Error)]
#[error(
    "node metadata: {0}; correct the variable ISTIO_META_<key> or the ISTIO_METAJSON_ variable that has the key"
)]
pub struct MetadataError(#[from] serde_json::Error);

/// A proxy, as it tells of itself.
#[derive(Clone, Debug)]
pub struct Node {
    /// Node ID: `type~address~name.namespace~domain`.
    pub id: String,
    /// Where it runs.
    pub locality: Locality,
    /// The keys that are known.
    pub metadata: NodeMetadata,
    /// The keys as they were given, known or not.
    pub raw: Map<String, Value>,
    /// The configuration of the proxy.
    pub config: EffectiveConfig,
}

impl Node {
    /// Collects what is known of the proxy.
    pub fn collect(sources: &NodeSources<'_>, config: EffectiveConfig) -> Result<Self, MetadataError> {
        let mut raw = raw_metadata(sources, &config);
        let mut metadata: NodeMetadata = serde_json::from_value(Value::Object(raw.clone()))?;
        metadata.set_from_sources(sources);
        metadata.set_from_pod(sources);
        if !sources.platform.metadata.is_empty() {
            metadata.platform_metadata.clone_from(&sources.platform.metadata);
        }
        // Parity: a label counts more than what the cloud says.
        let labelled = locality(&mut metadata);
        let locality =
            if labelled == Locality::default() { sources.platform.locality.clone() } else { labelled };
        for (given, key) in
            [(sources.credential_socket, "credential"), (sources.file_credential_socket, "file-credential")]
        {
            if given {
                raw.insert(key.to_owned(), "true".into());
            }
        }
        let discovery = metadata.metadata_discovery.unwrap_or(metadata.enable_hbone);
        metadata.metadata_discovery = Some(discovery);
        Ok(Self { id: sources.id.clone(), locality, metadata, raw, config })
    }

    /// The metadata as the control plane gets it.
    pub fn metadata_json(&self) -> Value {
        let mut json = match serde_json::to_value(&self.metadata) {
            Ok(Value::Object(known)) => known,
            _ => Map::new(),
        };
        json.insert("PROXY_CONFIG".into(), self.config.to_json());
        for (key, value) in &self.raw {
            // The typed fields of known keys may have been changed since they were decoded.
            if !json.contains_key(key) {
                json.insert(key.clone(), value.clone());
            }
        }
        Value::Object(json)
    }

    /// The type of the proxy, such as `sidecar`.
    pub fn proxy_type(&self) -> &str {
        self.id.split('~').next().unwrap_or_default()
    }
}

fn raw_metadata(sources: &NodeSources<'_>, config: &EffectiveConfig) -> Map<String, Value> {
    let mut raw = Map::new();
    let configured = config.message.proxy_metadata.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in configured.chain(sources.environment.iter().copied()) {
        if let Some(key) = name.strip_prefix("ISTIO_META_") {
            raw.insert(key.to_owned(), text.into());
        }
    }
    for (name, text) in &sources.environment {
        if !name.starts_with("ISTIO_METAJSON_") {
            continue;
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => raw.extend(object),
            Ok(_) => warn!("variable {name}: expected a JSON object"),
            Err(error) => warn!("variable {name}: {error}; expected a JSON object"),
        }
    }
    // Parity: the control plane learns of the address of the name server, which has no prefix.
    if let Some(address) = variable(sources, "DNS_PROXY_ADDR").filter(|address| !address.is_empty()) {
        raw.insert("DNS_PROXY_ADDR".to_owned(), address.into());
    }
    raw
}

fn variable<'a>(sources: &NodeSources<'a>, wanted: &str) -> Option<&'a str> {
    sources.environment.iter().find(|(name, _)| *name == wanted).map(|(_, text)| *text)
}

impl NodeMetadata {
    fn set_from_sources(&mut self, sources: &NodeSources<'_>) {
        if self.istio_version.is_empty() {
            self.istio_version.clone_from(&sources.version);
        }
        let mut addresses: Vec<String> = Vec::new();
        for address in &sources.addresses {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        self.instance_ips = CommaList(addresses);
        if sources.sts_port != 0 {
            self.sts_port = sources.sts_port.to_string();
        }
        self.envoy_status_port = sources.status_port;
        self.envoy_prometheus_port = sources.prometheus_port;
        self.envoy_secure_metrics_port = sources.secure_metrics_port;
        self.envoy_secure_merged_metrics_port = sources.secure_merged_metrics_port;
        self.exit_on_zero_active_connections = StringBool(sources.exit_on_zero_active_connections);
        self.metadata_discovery = sources.metadata_discovery.map(StringBool);
        self.envoy_skip_deprecated_logs = StringBool(sources.skip_deprecated_logs);
        self.workload_identity_socket_file.clone_from(&sources.identity_socket);
        self.pilot_san.clone_from(&sources.control_plane_names);
        self.outlier_log_path.clone_from(&sources.outlier_log_path);
    }

    fn set_from_pod(&mut self, sources: &NodeSources<'_>) {
        let labels = variable(sources, "ISTIO_METAJSON_LABELS");
        let labels = labels.and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok());
        if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
            self.labels.clone_from(&labels);
            self.static_labels = labels;
        }
        for (name, field) in [
            ("POD_NAME", &mut self.name),
            ("POD_NAMESPACE", &mut self.namespace),
            ("SERVICE_ACCOUNT", &mut self.service_account),
        ] {
            if let Some(text) = variable(sources, name) {
                text.clone_into(field);
            }
        }
        if let Some(labels) = &sources.labels {
            self.labels.clone_from(&self.static_labels);
            let given = labels.iter().filter(|(key, _)| *key != TEMPLATE_HASH_LABEL);
            self.labels.extend(given.map(|(key, value)| (key.clone(), value.clone())));
        }
        if let Some(annotations) = &sources.annotations {
            self.annotations.extend(annotations.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

/// The locality of the label, in which dots stand for slashes if there are no slashes.
fn locality(metadata: &mut NodeMetadata) -> Locality {
    let Some(label) = metadata.labels.get(LOCALITY_LABEL).filter(|label| !label.is_empty()) else {
        return Locality::default();
    };
    let path = if label.contains('/') { label.clone() } else { label.replace('.', "/") };
    for labels in [&mut metadata.labels, &mut metadata.static_labels] {
        if let Some(label) = labels.get_mut(LOCALITY_LABEL) {
            label.clone_from(&path);
        }
    }
    let mut parts = path.splitn(3, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    Locality { region: next(), zone: next(), sub_zone: next() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_config::Layers;

    fn collect(sources: NodeSources<'_>) -> Result<Node, MetadataError> {
        Node::collect(&sources, EffectiveConfig::resolve(&Layers::default()).unwrap())
    }

    #[test]
    fn unknown_keys_travel_as_they_are_and_known_ones_in_their_form() {
        let environment = vec![
            ("ISTIO_META_ENABLE_HBONE", "1"),
            ("ISTIO_META_HOUSE", "blue"),
            ("ISTIO_METAJSON_STATS", "{\"deep\": {\"a\": [1]}}"),
            ("ISTIO_METAJSON_BROKEN", "{"),
            ("POD_NAMESPACE", "shop"),
        ];
        let json = collect(NodeSources { environment, ..Default::default() }).unwrap().metadata_json();
        assert_eq!(json["ENABLE_HBONE"], "true");
        assert_eq!(json["METADATA_DISCOVERY"], "true");
        assert_eq!(json["HOUSE"], "blue");
        assert_eq!(json["deep"]["a"][0], 1);
        assert_eq!(json["NAMESPACE"], "shop");
    }

    #[test]
    fn labels_of_the_pod_are_laid_over_static_ones() {
        let environment = vec![("ISTIO_METAJSON_LABELS", "{\"app\": \"cart\", \"v\": \"1\"}")];
        let labels = [("v", "2"), ("pod-template-hash", "x"), ("istio-locality", "r.z.s")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let node = collect(NodeSources { environment, labels: Some(labels), ..Default::default() }).unwrap();
        let found: Vec<_> =
            node.metadata.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(found, ["app=cart", "istio-locality=r/z/s", "v=2"]);
        assert_eq!(node.locality.zone, "z");
        assert_eq!(node.metadata.static_labels["v"], "1");
    }

    #[test]
    fn error_says_what_to_correct_when_a_key_does_not_fit() {
        let environment = vec![("ISTIO_META_ENABLE_HBONE", "maybe")];
        let error = collect(NodeSources { environment, ..Default::default() }).unwrap_err().to_string();
        assert!(error.contains("maybe") && error.contains("ISTIO_META_<key>"), "{error}");
    }
}
