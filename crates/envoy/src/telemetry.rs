//! What proxies report: metrics, access logs and traces, and what they learn about their peers to name them there.
//!
//! Providers are the mesh's `extensionProviders`; Telemetry objects choose among them, or else `defaultProviders` do.

pub(crate) mod access_log;
mod expression;
pub(crate) mod metrics;
pub(crate) mod peer_metadata;
pub(crate) mod tracing;

use std::collections::BTreeSet;

use canopus_mesh::telemetry::{Side, logging, tracing as traces};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;

use crate::env::{Class, Env};

/// The side that listeners of a class report on.
pub(crate) fn side(class: Class) -> Side {
    match class {
        Class::Inbound => Side::Server,
        Class::Outbound | Class::Gateway => Side::Client,
    }
}

/// The provider of this name, in any letter case.
fn provider<'a>(env: &'a Env<'_>, name: &str) -> Option<&'a ExtensionProvider> {
    env.mesh().extension_providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
}

/// The providers that get access logs or traces of either side.
pub(crate) fn in_force<'a>(env: &'a Env<'_>) -> Vec<&'a ExtensionProvider> {
    let applicable = env.telemetry();
    let defaults = env.mesh().default_providers.clone().unwrap_or_default();
    let mut names = BTreeSet::new();
    for side in [Side::Client, Side::Server] {
        let logs = logging::merge(&applicable.logging, &defaults.access_logging, side);
        names.extend(logs.into_iter().filter(|(_, log)| !log.disabled).map(|(name, _)| name));
        let traces = traces::merge(&applicable.tracing, &defaults.tracing, side);
        names.extend(traces.filter(|traces| !traces.disabled).and_then(|traces| traces.provider));
    }
    names.iter().filter_map(|name| provider(env, name)).collect()
}
