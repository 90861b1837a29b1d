//! The configuration of the mesh as a whole: defaults, and how what users write is laid over them.
//!
//! Laying over is not protobuf's merge. A field that is mentioned takes the place of the one below it as a whole, be it
//! to become empty; a few fields are joined instead: the proxy's defaults, the providers, the trust-domain aliases.

mod defaults;
mod effective;
mod overlay;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ProxyHeaders;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks, ProxyConfig};

use crate::decode::{Decoded, Problem};
use crate::validate::{self, Finding};
pub use defaults::{default_mesh_config, default_networks, default_proxy_config};
pub use effective::{ProxyTarget, effective_proxy_config};
use overlay::{given, lay_over};

/// Why a configuration could not be read. The one before it stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshConfigError {
    /// The text is not YAML.
    #[error("{0}")]
    Syntax(#[from] yaml::Error),
    /// Fields cannot be read; never empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
    /// The document can be read, but holds values that cannot be used; never empty.
    #[error("{}", .0.iter().map(remedied).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<Finding>),
}

fn remedied(finding: &Finding) -> String {
    format!("{}: {} ({})", finding.path, finding.message, finding.code.remedy)
}

/// Lays a mesh configuration over another, usually [`default_mesh_config`].
pub fn apply(text: &str, base: &MeshConfig) -> Result<Decoded<MeshConfig>, MeshConfigError> {
    apply_node(&parse(text)?, base)
}

/// [`apply`], of a configuration that is to come into force: what Istio would not use is refused.
pub fn apply_usable(text: &str, base: &MeshConfig) -> Result<Decoded<MeshConfig>, MeshConfigError> {
    let decoded = apply(text, base)?;
    usable(&decoded.value)?;
    Ok(decoded)
}

/// Whether Istio would use a configuration.
pub fn usable(mesh: &MeshConfig) -> Result<(), MeshConfigError> {
    let found = validate::fragment(|scope| validate::mesh_config::check(mesh, scope)).errors;
    if found.is_empty() { Ok(()) } else { Err(MeshConfigError::Unusable(found)) }
}

/// [`apply`] for a configuration that is already a document.
pub fn apply_node(node: &Node, base: &MeshConfig) -> Result<Decoded<MeshConfig>, MeshConfigError> {
    // Reads, and so checks, the whole document; the fields that are joined are then read again over their own base.
    let Decoded { value: laid, ignored } = lay_over(base, node)?;
    let default_config = match given::<MeshConfig>(node, "defaultConfig") {
        Some(overlay) => {
            let below = base.default_config.clone().unwrap_or_default();
            Some(merge_proxy_config_node(overlay, &below)?.value)
        }
        None => base.default_config.clone(),
    };
    let default_providers = match given::<MeshConfig>(node, "defaultProviders") {
        Some(overlay) => {
            let below = base.default_providers.clone().unwrap_or_default();
            Some(lay_over(&below, overlay)?.value)
        }
        None => base.default_providers.clone(),
    };
    let value = MeshConfig {
        default_config,
        default_providers,
        extension_providers: merge_providers(&base.extension_providers, &laid.extension_providers),
        trust_domain_aliases: union(&base.trust_domain_aliases, &laid.trust_domain_aliases),
        ..laid
    };
    Ok(Decoded { value, ignored })
}

/// Lays a proxy configuration over the mesh's default for proxies.
pub fn apply_proxy_config(text: &str, mesh: &MeshConfig) -> Result<MeshConfig, MeshConfigError> {
    let base = mesh.default_config.clone().unwrap_or_default();
    Ok(MeshConfig { default_config: Some(merge_proxy_config(text, &base)?.value), ..mesh.clone() })
}

/// Lays a proxy configuration over another. The environment is joined; of the headers, those that are not mentioned stay.
pub fn merge_proxy_config(text: &str, base: &ProxyConfig) -> Result<Decoded<ProxyConfig>, MeshConfigError> {
    merge_proxy_config_node(&parse(text)?, base)
}

/// [`merge_proxy_config`] for a configuration that is already a document.
pub fn merge_proxy_config_node(
    node: &Node,
    base: &ProxyConfig,
) -> Result<Decoded<ProxyConfig>, MeshConfigError> {
    let mut decoded = lay_over(base, node)?;
    let merged = &mut decoded.value;
    for (key, value) in &base.proxy_metadata {
        merged.proxy_metadata.entry(key.clone()).or_insert_with(|| value.clone());
    }
    if let (Some(headers), Some(below)) = (&mut merged.proxy_headers, &base.proxy_headers) {
        keep_unmentioned(headers, below);
    }
    Ok(decoded)
}

/// Reads the networks of the mesh.
pub fn read_networks(text: &str) -> Result<Decoded<MeshNetworks>, MeshConfigError> {
    lay_over(&default_networks(), &parse(text)?)
}

fn parse(text: &str) -> Result<Node, MeshConfigError> {
    Ok(yaml::parse_one(text, &Limits::default())?)
}

/// A provider takes the place of one with its name, or comes last.
fn merge_providers(base: &[ExtensionProvider], given: &[ExtensionProvider]) -> Vec<ExtensionProvider> {
    let mut merged = base.to_vec();
    for provider in given {
        match merged.iter_mut().find(|present| present.name == provider.name) {
            Some(present) => present.provider = provider.provider.clone(),
            None => merged.push(provider.clone()),
        }
    }
    merged
}

fn union(a: &[String], b: &[String]) -> Vec<String> {
    a.iter().chain(b).cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Parity: only these five headers are kept, the other settings go with the mention of any.
fn keep_unmentioned(headers: &mut ProxyHeaders, below: &ProxyHeaders) {
    if headers.forwarded_client_cert == 0 {
        headers.forwarded_client_cert = below.forwarded_client_cert;
    }
    keep(&mut headers.request_id, &below.request_id);
    keep(&mut headers.attempt_count, &below.attempt_count);
    keep(&mut headers.server, &below.server);
    keep(&mut headers.envoy_debug_headers, &below.envoy_debug_headers);
}

fn keep<T: Clone>(value: &mut Option<T>, below: &Option<T>) {
    if value.is_none() {
        value.clone_from(below);
    }
}
