//! The configuration of the proxy: Istio's `ProxyConfig`, from the places it can be set in.
//!
//! ```text
//!  defaults ◄─ defaultConfig of the mesh file ◄─ PROXY_CONFIG ◄─ annotation proxy.istio.io/config ◄─ other annotations
//! ```
//!
//! A later layer replaces the fields it has; only `proxyMetadata` is merged key by key, and unset headers of
//! `proxyHeaders` are kept. Layers are merged as trees and decoded once at the end, so a layer can set a field back to
//! its zero value. Every layer is also decoded on its own first, so that an error names the layer it stands in.

use std::collections::BTreeMap;

use canopus_base::tree::{Limits, Map, Node, Value};
use canopus_base::yaml;
use canopus_proto::Message as _;
use canopus_proto::descriptors;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::json::{self, Problems, Unknown};
use serde_json::json;
use tracing::warn;

/// The annotation with configuration of a pod's proxy.
pub const ANNOTATION: &str = "proxy.istio.io/config";
const DISCOVERY_ADDRESS: &str = "sidecar.istio.io/discoveryAddress";
const STATUS_PORT: &str = "status.sidecar.istio.io/port";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ProxyConfigError {
    /// A layer is not YAML.
    #[error("{layer}: {error}; expected the YAML or JSON of a ProxyConfig")]
    Syntax {
        /// Where it comes from.
        layer: String,
        /// What is wrong.
        error: yaml::Error,
    },
    /// A layer is no mapping.
    #[error("{layer}: expected a mapping of ProxyConfig fields")]
    Form {
        /// Where it comes from.
        layer: String,
    },
    /// A layer has fields that do not fit.
    #[error("{layer}: {problems}")]
    Fields {
        /// Where it comes from.
        layer: String,
        /// What is wrong.
        problems: Problems,
    },
    /// A field cannot work.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field of ProxyConfig.
        field: &'static str,
        /// Why, and what to do.
        reason: String,
    },
}

/// Where configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Layers<'a> {
    /// The mesh configuration file, if there is one; its `defaultConfig` counts.
    pub mesh_file: Option<&'a str>,
    /// The variable `PROXY_CONFIG`.
    pub environment: &'a str,
    /// The annotations of the pod.
    pub annotations: BTreeMap<String, String>,
}

/// The configuration with its JSON, in which the control plane is told of it.
#[derive(Clone, Debug)]
pub struct EffectiveConfig {
    /// The message.
    pub message: ProxyConfig,
}

impl EffectiveConfig {
    /// Merges the layers over the defaults.
    pub fn resolve(layers: &Layers<'_>) -> Result<Self, ProxyConfigError> {
        let mut merged = defaults();
        if let Some(text) = layers.mesh_file {
            let mesh = parse("mesh config file", text)?;
            if let Some(node) = mesh.get("defaultConfig").or_else(|| mesh.get("default_config")) {
                overlay(&mut merged, "mesh config file: defaultConfig", node)?;
            }
        }
        let annotation = layers.annotations.get(ANNOTATION).map_or("", String::as_str);
        for (layer, text) in
            [("variable PROXY_CONFIG", layers.environment), ("annotation proxy.istio.io/config", annotation)]
        {
            if !text.trim().is_empty() {
                overlay(&mut merged, layer, &parse(layer, text)?)?;
            }
        }
        let mut message = decode("proxy configuration", &merged)?;
        apply_annotations(&mut message, &layers.annotations);
        validate(&message)?;
        Ok(Self { message })
    }

    /// Takes a configuration as it is.
    pub fn from_message(message: ProxyConfig) -> Self {
        Self { message }
    }

    /// The proto-JSON of the message.
    pub fn to_json(&self) -> serde_json::Value {
        let descriptor = descriptors::proxy_config();
        let wire = self.message.encode_to_vec();
        match descriptors::DynamicMessage::decode(descriptor, wire.as_slice()) {
            Ok(message) => json::write_dynamic(&message).to_json(),
            // The descriptor and the type come from one schema.
            Err(_) => serde_json::Value::Null,
        }
    }
}

fn defaults() -> Node {
    json!({
        "configPath": "./etc/istio/proxy",
        "serviceCluster": "istio-proxy",
        "drainDuration": "45s",
        "terminationDrainDuration": "5s",
        "proxyAdminPort": 15000,
        "controlPlaneAuthPolicy": "MUTUAL_TLS",
        "discoveryAddress": "istiod.istio-system.svc:15012",
        "binaryPath": "/usr/local/bin/envoy",
        "statNameLength": 189,
        "statusPort": 15020,
    })
    .into()
}

fn parse(layer: &str, text: &str) -> Result<Node, ProxyConfigError> {
    let limits = Limits { max_bytes: 1 << 20, ..Limits::default() };
    yaml::parse_one(text, &limits)
        .map_err(|error| ProxyConfigError::Syntax { layer: layer.to_owned(), error })
}

/// Parity: a field that is not known is left out, so that an agent can be older than the injector.
fn decode(layer: &str, node: &Node) -> Result<ProxyConfig, ProxyConfigError> {
    let failed = |problems| ProxyConfigError::Fields { layer: layer.to_owned(), problems };
    let wire = json::read_wire(&descriptors::proxy_config(), node, Unknown::Report).map_err(failed)?;
    for ignored in &wire.ignored {
        warn!(layer, "ignored: {ignored}");
    }
    Ok(ProxyConfig::decode(wire.value.as_slice()).unwrap_or_default())
}

fn overlay(merged: &mut Node, layer: &str, node: &Node) -> Result<(), ProxyConfigError> {
    let Value::Map(fields) = &node.value else {
        return match node.value {
            Value::Null => Ok(()),
            _ => Err(ProxyConfigError::Form { layer: layer.to_owned() }),
        };
    };
    decode(layer, node)?;
    let Value::Map(merged) = &mut merged.value else { return Ok(()) };
    for entry in fields {
        let name = camel_case(&entry.key);
        // The two members of the oneof `cluster_name` exclude each other.
        match &*name {
            "serviceCluster" => drop(merged.remove("tracingServiceName")),
            "tracingServiceName" => drop(merged.remove("serviceCluster")),
            _ => {}
        }
        let kept = matches!(&*name, "proxyMetadata" | "proxyHeaders").then(|| merged.remove(&name)).flatten();
        merged.insert(&*name, with_kept(entry.node.clone(), kept));
    }
    Ok(())
}

fn with_kept(mut node: Node, kept: Option<Node>) -> Node {
    if let (Value::Map(fields), Some(Value::Map(kept))) = (&mut node.value, kept.map(|node| node.value)) {
        for entry in Map::into_entries(kept) {
            if !fields.contains_key(&entry.key) {
                fields.insert(&entry.key, entry.node);
            }
        }
    }
    node
}

/// Proto-JSON accepts both spellings of a field.
fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut characters = part.chars();
        camel.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(characters.as_str());
    }
    camel
}

fn apply_annotations(config: &mut ProxyConfig, annotations: &BTreeMap<String, String>) {
    if let Some(address) = annotations.get(DISCOVERY_ADDRESS) {
        config.discovery_address.clone_from(address);
    }
    if let Some(port) = annotations.get(STATUS_PORT) {
        // Parity: a port that is no number turns the status server off.
        config.status_port = port.parse().unwrap_or_else(|_| {
            warn!("annotation {STATUS_PORT}: {port:?} is not a port; there will be no status server");
            0
        });
    }
}

fn validate(config: &ProxyConfig) -> Result<(), ProxyConfigError> {
    let invalid = |field, reason: &str| Err(ProxyConfigError::Invalid { field, reason: reason.to_owned() });
    if config.config_path.is_empty() {
        return invalid("configPath", "must not be empty; omit it for ./etc/istio/proxy");
    }
    if config.binary_path.is_empty() {
        return invalid("binaryPath", "must not be empty; omit it for /usr/local/bin/envoy");
    }
    if crate::address::HostPort::parse(&config.discovery_address).is_none() {
        return invalid("discoveryAddress", "must be HOST:PORT, such as istiod.istio-system.svc:15012");
    }
    for (field, port) in [("proxyAdminPort", config.proxy_admin_port), ("statusPort", config.status_port)] {
        if !(0..=65535).contains(&port) || (port == 0 && field == "proxyAdminPort") {
            return invalid(field, &format!("{port} is not a port; use 1 to 65535"));
        }
    }
    if config.concurrency.as_ref().is_some_and(|threads| threads.value < 0) {
        return invalid("concurrency", "must not be negative; 0 means a thread per processor");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;

    fn resolve(mesh: &str, environment: &str, annotation: &str) -> Result<ProxyConfig, ProxyConfigError> {
        let annotations = [(ANNOTATION.to_owned(), annotation.to_owned())].into();
        EffectiveConfig::resolve(&Layers { mesh_file: Some(mesh), environment, annotations })
            .map(|config| config.message)
    }

    #[test]
    fn later_layers_replace_fields_and_merge_metadata() {
        let config = resolve(
            "defaultConfig: {discoveryAddress: 'a:1', concurrency: 4, proxyMetadata: {A: '1', B: '1'}, extraStatTags: [x]}",
            "{\"discovery_address\": \"b:2\", \"proxyMetadata\": {\"B\": \"2\"}}",
            "concurrency: 0\nextraStatTags: [z]\ntracingServiceName: CANONICAL_NAME_ONLY",
        )
        .unwrap();
        assert_eq!(config.discovery_address, "b:2");
        assert_eq!(config.concurrency.map(|threads| threads.value), Some(0));
        assert_eq!(config.extra_stat_tags, ["z"]);
        assert_eq!(config.proxy_metadata, [("A".into(), "1".into()), ("B".into(), "2".into())].into());
        assert!(matches!(config.cluster_name, Some(ClusterName::TracingServiceName(_))));
        assert_eq!(config.status_port, 15020);
    }

    #[test]
    fn error_names_the_layer_and_the_field() {
        let error = resolve("", "statusPort: many", "").unwrap_err().to_string();
        assert!(error.starts_with("variable PROXY_CONFIG: statusPort: "), "{error}");
        let error = resolve("defaultConfig: 7", "", "").unwrap_err().to_string();
        assert_eq!(error, "mesh config file: defaultConfig: expected a mapping of ProxyConfig fields");
        let error = resolve("", "discoveryAddress: nowhere", "").unwrap_err().to_string();
        assert!(error.starts_with("discoveryAddress: must be HOST:PORT"), "{error}");
    }

    #[test]
    fn fields_of_a_newer_injector_are_ignored() {
        assert!(resolve("", "somethingNew: 1", "").is_ok());
    }

    #[test]
    fn json_of_the_defaults_has_their_names() {
        let config = EffectiveConfig::resolve(&Layers::default()).unwrap();
        let json = config.to_json();
        assert_eq!(json["controlPlaneAuthPolicy"], "MUTUAL_TLS");
        assert_eq!(json["drainDuration"], "45s");
    }
}
