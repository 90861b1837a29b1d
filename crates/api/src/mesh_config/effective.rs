//! The settings of one proxy, from all that may set them.

use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use canopus_proto::{istio::networking::v1beta1, json};

use super::{default_proxy_config, merge_proxy_config_node, overlay, parse};
use crate::istio;

/// The proxy whose settings are asked for.
#[derive(Clone, Copy, Debug)]
pub struct ProxyTarget<'a> {
    /// Namespace of the proxy.
    pub namespace: &'a str,
    /// Labels of the proxy.
    pub labels: &'a Labels,
    /// The value of its annotation `proxy.istio.io/config`, if it has one.
    pub annotation: Option<&'a str>,
}

/// The settings of a proxy.
///
/// From the weakest: built-in defaults, the mesh's, the ProxyConfig of the root namespace, that of the proxy's namespace,
/// the proxy's annotation, the ProxyConfig that selects it. Of several on one level the oldest counts. An annotation that
/// cannot be read counts as absent: admission refuses those.
pub fn effective_proxy_config<'a>(
    mesh: &MeshConfig,
    resources: impl IntoIterator<Item = &'a istio::ProxyConfig>,
    target: ProxyTarget<'_>,
) -> ProxyConfig {
    let root = mesh.root_namespace.as_str();
    let mut resources: Vec<_> = resources.into_iter().collect();
    resources.sort_by_key(|resource| age_order(resource));
    let of_namespace = |namespace: &str| {
        let whole = |resource: &&&istio::ProxyConfig| {
            *resource.meta.namespace == *namespace && resource.spec.selector.is_none()
        };
        resources.iter().find(whole).map(|resource| settings_of(&resource.spec))
    };
    let of_workload = || {
        let selects = |resource: &&&istio::ProxyConfig| {
            *resource.meta.namespace == *target.namespace && selects(&resource.spec, target.labels)
        };
        resources.iter().find(selects).map(|resource| settings_of(&resource.spec))
    };
    let layers = [
        mesh.default_config.clone(),
        (!root.is_empty()).then(|| of_namespace(root)).flatten(),
        (target.namespace != root).then(|| of_namespace(target.namespace)).flatten(),
        target.annotation.and_then(from_annotation),
        of_workload(),
    ];
    layers.into_iter().flatten().fold(default_proxy_config(), |below, layer| over(&layer, below))
}

/// Oldest first; those without a time before all others, and equal ones by name.
fn age_order(resource: &istio::ProxyConfig) -> (Option<jiff::Timestamp>, &str, &str) {
    let meta = &resource.meta;
    (meta.creation_timestamp, &meta.name, &meta.namespace)
}

fn selects(spec: &v1beta1::ProxyConfig, labels: &Labels) -> bool {
    let wanted = spec.selector.as_ref().map(|selector| &selector.match_labels);
    wanted.is_some_and(|wanted| {
        !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// What a ProxyConfig resource sets.
fn settings_of(spec: &v1beta1::ProxyConfig) -> ProxyConfig {
    ProxyConfig {
        concurrency: spec.concurrency,
        proxy_metadata: spec.environment_variables.clone(),
        image: spec.image.clone(),
        ..ProxyConfig::default()
    }
}

fn from_annotation(text: &str) -> Option<ProxyConfig> {
    let node = parse(text).ok()?;
    overlay::lay_over(&ProxyConfig::default(), &node).ok().map(|decoded| decoded.value)
}

/// Parity: a layer counts by what it writes, so that it cannot set a number back to zero.
fn over(layer: &ProxyConfig, below: ProxyConfig) -> ProxyConfig {
    let node: Node = json::write(layer);
    match merge_proxy_config_node(&node, &below) {
        Ok(merged) => merged.value,
        Err(_) => below,
    }
}
