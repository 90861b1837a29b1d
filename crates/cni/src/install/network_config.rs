//! Network configurations of a node: which of them is used, and the plugin's entry in it.
//!
//! All of it is pure. A container runtime uses the first file by name that has a configuration; a `.conf` has one plugin, a
//! `.conflist` a chain of them. The plugin is the last of the chain, because it works on the interfaces that the others made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::selector::EnablementSelector;

/// The plugin's type, which is the name of its program.
pub const PLUGIN: &str = "istio-cni";

/// The version of the specification that the plugin's own configuration is written for.
const CNI_VERSION: &str = "0.3.1";

/// The name of a list that is made of a single configuration.
const LIST_NAME: &str = "k8s-pod-network";

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkConfigError {
    /// The file is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A field is missing or of another type.
    #[error("{field}: {reason}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

fn field(field: impl Into<String>, reason: &'static str) -> NetworkConfigError {
    NetworkConfigError::Field { field: field.into(), reason }
}

/// The plugin's configuration, as the installer writes it and the plugin reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    /// The version of the specification.
    #[serde(rename = "cniVersion")]
    pub cni_version: String,
    /// The name of the network.
    pub name: String,
    /// The program.
    #[serde(rename = "type")]
    pub kind: String,
    /// Unused; Go writes the empty structures.
    pub ipam: Map<String, Value>,
    /// Unused.
    pub dns: Map<String, Value>,
    /// How much the plugin logs.
    pub plugin_log_level: String,
    /// The directory with the agent's sockets and the kubeconfig.
    pub cni_agent_run_dir: String,
    /// Whether pods may be in ambient mode.
    pub ambient_enabled: bool,
    /// Which pods are.
    pub enablement_selectors: Vec<EnablementSelector>,
    /// Namespaces whose pods are left alone.
    pub exclude_namespaces: Option<Vec<String>>,
    /// The agent's namespace.
    pub pod_namespace: String,
    /// Use nftables instead of iptables.
    pub native_nftables: bool,
    /// Ask again when the API server does not say whether a pod is in ambient mode.
    pub enable_ambient_detection_retry: bool,
}

impl PluginConfig {
    /// The configuration with the plugin's names filled in.
    #[must_use]
    pub fn named(self) -> Self {
        Self { cni_version: CNI_VERSION.into(), name: PLUGIN.into(), kind: PLUGIN.into(), ..self }
    }

    /// The text of a file with this plugin alone.
    pub fn standalone(&self) -> Result<String, NetworkConfigError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|error| NetworkConfigError::Json(error.to_string()))
    }
}

fn object(text: &[u8]) -> Result<Map<String, Value>, NetworkConfigError> {
    serde_json::from_slice(text).map_err(|error| NetworkConfigError::Json(error.to_string()))
}

/// The text of a configuration, with sorted keys as Go writes them.
fn render(config: Map<String, Value>) -> Result<String, NetworkConfigError> {
    // The order must not depend on how the JSON library was built.
    fn sorted(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let sorted: BTreeMap<_, _> =
                    map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
                Value::Object(sorted.into_iter().collect())
            }
            Value::Array(items) => items.into_iter().map(sorted).collect(),
            other => other,
        }
    }
    let text = serde_json::to_string_pretty(&sorted(Value::Object(config)));
    text.map(|text| text + "\n").map_err(|error| NetworkConfigError::Json(error.to_string()))
}

fn plugins(config: &mut Map<String, Value>) -> Result<&mut Vec<Value>, NetworkConfigError> {
    match config.get_mut("plugins") {
        Some(Value::Array(plugins)) => Ok(plugins),
        Some(_) => Err(field("plugins", "not a list")),
        None => Err(field("plugins", "missing")),
    }
}

fn plugin_type(index: usize, plugin: &Value) -> Result<Option<&str>, NetworkConfigError> {
    let plugin = plugin.as_object().ok_or_else(|| field(format!("plugins[{index}]"), "not an object"))?;
    Ok(plugin.get("type").and_then(Value::as_str))
}

/// Takes the plugin out of a list.
fn without_plugin(plugins: &mut Vec<Value>) -> Result<bool, NetworkConfigError> {
    let mut kept = Vec::with_capacity(plugins.len());
    let before = plugins.len();
    for (index, plugin) in plugins.drain(..).enumerate() {
        if plugin_type(index, &plugin)? != Some(PLUGIN) {
            kept.push(plugin);
        }
    }
    *plugins = kept;
    Ok(plugins.len() != before)
}

/// Puts the plugin at the end of a configuration's chain. A single configuration becomes a list.
pub fn insert(existing: &[u8], plugin: &[u8]) -> Result<String, NetworkConfigError> {
    let mut plugin = object(plugin)?;
    // The list has a version of its own.
    plugin.remove("cniVersion");
    let mut config = object(existing)?;
    if config.contains_key("type") {
        config.remove("cniVersion");
        config = match json!({
            "name": LIST_NAME,
            "cniVersion": CNI_VERSION,
            "plugins": [config],
        }) {
            Value::Object(list) => list,
            _ => Map::new(),
        };
    }
    let chain = plugins(&mut config)?;
    without_plugin(chain)?;
    chain.push(Value::Object(plugin));
    render(config)
}

/// The configuration without the plugin; `None` if it does not have it.
pub fn remove(existing: &[u8]) -> Result<Option<String>, NetworkConfigError> {
    let mut config = object(existing)?;
    if !without_plugin(plugins(&mut config)?)? {
        return Ok(None);
    }
    render(config).map(Some)
}

/// Whether a file is a configuration that a container runtime would use.
pub fn validate(name: &str, text: &[u8]) -> Result<(), NetworkConfigError> {
    let mut config = object(text)?;
    let is_text = |config: &Map<String, Value>, key: &str| {
        config.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    };
    if !name.ends_with(".conflist") {
        return if is_text(&config, "type") {
            Ok(())
        } else {
            Err(field("type", "missing; is this a list?"))
        };
    }
    if !is_text(&config, "name") {
        return Err(field("name", "missing"));
    }
    let plugins = plugins(&mut config)?;
    if plugins.is_empty() {
        return Err(field("plugins", "empty"));
    }
    for (index, plugin) in plugins.iter().enumerate() {
        plugin_type(index, plugin)?;
    }
    Ok(())
}

/// The types of a list's plugins.
pub fn plugin_types(text: &[u8]) -> Result<Vec<String>, NetworkConfigError> {
    let mut config = object(text)?;
    let plugins = plugins(&mut config)?;
    let types = plugins.iter().enumerate().map(|(index, plugin)| {
        let named = plugin_type(index, plugin)?.map(str::to_owned);
        named.ok_or_else(|| field(format!("plugins[{index}].type"), "not a text"))
    });
    types.collect()
}

/// The type of a single configuration.
pub fn single_type(text: &[u8]) -> Result<Option<String>, NetworkConfigError> {
    Ok(object(text)?.get("type").and_then(Value::as_str).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"bridge","mtu":1500}]}"#;

    fn plugin() -> String {
        PluginConfig::default().named().standalone().unwrap()
    }

    #[test]
    fn inserting_twice_is_inserting_once_and_removing_gives_the_rest_back() {
        let once = insert(LIST.as_bytes(), plugin().as_bytes()).unwrap();
        assert_eq!(insert(once.as_bytes(), plugin().as_bytes()).unwrap(), once);
        assert_eq!(plugin_types(once.as_bytes()).unwrap(), ["bridge", PLUGIN]);
        let rest: Value = serde_json::from_str(&remove(once.as_bytes()).unwrap().unwrap()).unwrap();
        assert_eq!(rest, serde_json::from_str::<Value>(LIST).unwrap());
        assert_eq!(remove(LIST.as_bytes()).unwrap(), None);
    }

    #[test]
    fn single_configuration_becomes_a_list() {
        let list =
            insert(br#"{"type":"bridge","name":"x","cniVersion":"0.4.0"}"#, plugin().as_bytes()).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["cniVersion"], "0.3.1");
        assert_eq!(list["plugins"][0], json!({"type": "bridge", "name": "x"}));
    }

    #[test]
    fn unusable_configurations_are_named() {
        let message = |name: &str, text: &str| validate(name, text.as_bytes()).unwrap_err().to_string();
        assert!(message("a.conf", "\"text\"").starts_with("not a JSON object"));
        assert_eq!(message("a.conf", "{}"), "type: missing; is this a list?");
        assert_eq!(message("a.conflist", r#"{"plugins":[{}]}"#), "name: missing");
        assert_eq!(message("a.conflist", r#"{"name":"x"}"#), "plugins: missing");
        assert_eq!(message("a.conflist", r#"{"name":"x","plugins":[1]}"#), "plugins[0]: not an object");
    }
}
