//! What proxies report: metrics, access logs and traces, and what they learn about their peers to name them there.
//!
//! Mesh configuration decides here; providers are its `extensionProviders`, chosen by `defaultProviders`.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod peer_metadata;
pub(crate) mod tracing;

use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;

use crate::env::Env;

/// The provider of this name, in any letter case.
fn provider<'a>(env: &'a Env<'_>, name: &str) -> Option<&'a ExtensionProvider> {
    env.mesh().extension_providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
}
