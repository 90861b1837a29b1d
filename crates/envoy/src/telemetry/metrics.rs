//! Istio's standard metrics.

use canopus_proto::envoy::config::listener::v3::Filter;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;
use canopus_proto::stats::PluginConfig;
use canopus_proto::{Any, Name};

use crate::env::{Class, Env};
use crate::http::filters;
use crate::network;

const NAME: &str = "istio.stats";

/// The filters that count requests.
pub(crate) fn http(env: &Env<'_>, class: Class) -> Vec<HttpFilter> {
    configurations(env, class).map(|config| filters::typed(NAME, config)).collect()
}

/// The filters that count connections.
pub(crate) fn network(env: &Env<'_>, class: Class) -> Vec<Filter> {
    configurations(env, class).map(|config| network::typed(NAME, config)).collect()
}

/// One for each provider of metrics, in the order of their names.
fn configurations(env: &Env<'_>, class: Class) -> impl Iterator<Item = Any> {
    let mut names: Vec<_> =
        env.mesh().default_providers.iter().flat_map(|default| &default.metrics).collect();
    names.sort();
    names.dedup();
    let providers = names.into_iter().filter_map(|name| super::provider(env, name));
    let counting = providers.filter(|provider| matches!(provider.provider, Some(Provider::Prometheus(_))));
    let known = env.view.has_extension(&PluginConfig::full_name());
    counting.filter(move |_| known).map(move |_| Any::pack(&config(class)))
}

/// A sidecar's client side falls back to the request's host where it does not know the server.
fn config(class: Class) -> PluginConfig {
    PluginConfig { disable_host_header_fallback: class != Class::Outbound, ..Default::default() }
}
