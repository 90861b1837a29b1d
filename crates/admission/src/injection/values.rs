//! The values of the installation: key `values` of the ConfigMap `istio-sidecar-injector`.
//!
//! Templates see all of them; a few are also read by the injector itself.

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_gotemplate::Value;

use super::config::ConfigError;

/// The values, and those among them that the injector reads.
#[derive(Clone, Debug)]
pub struct Values {
    pub(super) tree: Value,
    pub(super) hub: String,
    pub(super) tag: String,
    pub(super) variant: String,
    pub(super) proxy_image: String,
    pub(super) init_image: String,
    /// The cluster of the proxies, unless the webhook's path names another.
    pub cluster_name: String,
    pub(super) network: String,
    pub(super) hold_application: bool,
    pub(super) rewrite_probes: bool,
}

impl Values {
    /// Reads values in YAML or JSON.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let document = yaml::parse_one(text, &Limits::default())
            .map_err(|error| ConfigError::Values(error.to_string()))?;
        if document.as_map().is_none() && !document.is_null() {
            return Err(ConfigError::Values(format!("expected a map, found a {}", document.kind_name())));
        }
        let at = |path: &str| document.pointer(path).filter(|node| !node.is_null());
        let text = |path: &str| match at(path) {
            None => Ok(String::new()),
            Some(node) => node.as_str().map(str::to_owned).ok_or_else(|| mismatch(path, "a string", node)),
        };
        let truth = |path: &str| match at(path) {
            None => Ok(false),
            Some(node) => node.as_bool().ok_or_else(|| mismatch(path, "true or false", node)),
        };
        // Users write `tag: 1.30` without quotes, so any scalar will do.
        let tag = match at("/global/tag") {
            None => String::new(),
            Some(node) => scalar(node).ok_or_else(|| mismatch("/global/tag", "a string", node))?,
        };
        let or_default = |image: String| if image.is_empty() { "proxyv2".to_owned() } else { image };
        Ok(Self {
            hub: text("/global/hub")?,
            tag,
            variant: text("/global/variant")?,
            proxy_image: or_default(text("/global/proxy/image")?),
            init_image: or_default(text("/global/proxy_init/image")?),
            cluster_name: text("/global/multiCluster/clusterName")?,
            network: text("/global/network")?,
            hold_application: truth("/global/proxy/holdApplicationUntilProxyStarts")?,
            rewrite_probes: truth("/sidecarInjectorWebhook/rewriteAppHTTPProbe")?,
            tree: match Value::from(&document) {
                Value::Nil => Value::map::<&str, Value>([]),
                tree => tree,
            },
        })
    }
}

fn scalar(node: &Node) -> Option<String> {
    if let Some(text) = node.as_str() {
        return Some(text.to_owned());
    }
    match &node.value {
        canopus_base::tree::Value::Number(number) => Some(number.to_string()),
        canopus_base::tree::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn mismatch(path: &str, expected: &str, found: &Node) -> ConfigError {
    let path = path.trim_start_matches('/').replace('/', ".");
    ConfigError::Values(format!("{path}: expected {expected}, found a {}", found.kind_name()))
}
