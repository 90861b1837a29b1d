//! Istio's standard metrics.

pub(crate) mod stock;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_mesh::telemetry::metrics::{self, Override, ReportedMetrics};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;
use canopus_proto::stats::{MetricConfig, PluginConfig, Reporter};
use canopus_proto::{Any, Name};

use crate::audience::{ListenerAudience, Shared};
use crate::env::{Class, Env};
use crate::filter::{Filters, packed_http_filter};

const NAME: &str = "istio.stats";

/// The filters that count requests.
pub(crate) fn http(env: &Env<'_>, class: Class) -> Vec<HttpFilter> {
    configurations(env, class).iter().map(|config| packed_http_filter(NAME, config.clone())).collect()
}

/// Adds the filters that count connections.
pub(crate) fn on_connections(filters: &mut Filters, env: &Env<'_>, class: Class) {
    configurations(env, class).iter().for_each(|config| filters.add_packed(NAME, config));
}

fn configurations(env: &Env<'_>, class: Class) -> Arc<Vec<Any>> {
    env.ctx.get::<Configurations>(&(env.connections().clone(), env.service.map(Service::key), class))
}

/// The configurations of the filters, one for each provider of metrics, in the order of their names.
struct Configurations;

impl Query for Configurations {
    const NAME: &'static str = "metrics_filters";
    /// The service whose traffic is handled, where that makes a difference.
    type Key = (Shared<ListenerAudience>, Option<ServiceKey>, Class);
    type Value = Vec<Any>;

    fn run(ctx: &Ctx<'_>, (audience, service, class): &Self::Key) -> Vec<Any> {
        if !audience.build.has(&PluginConfig::full_name()) {
            return Vec::new();
        }
        let service = service.as_ref().and_then(|key| service::service(ctx, key));
        let env = Env::with_service(ctx, audience, service.as_deref());
        let configs = reported(&env).into_values();
        configs.filter_map(|reported| Some(Any::pack(&config(&env, *class, &reported)?))).collect()
    }
}

/// What the providers get that take metrics from the proxies, by their names.
fn reported(env: &Env<'_>) -> BTreeMap<String, ReportedMetrics> {
    let defaults = env.mesh().default_providers.as_ref().map_or(&[][..], |defaults| &defaults.metrics);
    let mut merged = metrics::merge(&env.telemetry().metrics, defaults);
    merged.retain(|name, _| counts(env, name));
    merged
}

/// Whether a provider gets its metrics from the proxies themselves.
fn counts(env: &Env<'_>, name: &str) -> bool {
    let provider = super::provider(env, name).and_then(|provider| provider.provider.as_ref());
    matches!(provider, Some(Provider::Prometheus(_)))
}

/// What is counted; `None` if nothing is.
fn config(env: &Env<'_>, class: Class, reported: &ReportedMetrics) -> Option<PluginConfig> {
    let overrides = reported.overrides(super::side(class))?;
    let reporter = match env.audience.role.kind {
        NodeKind::Waypoint => Reporter::ServerGateway,
        _ => Reporter::Unspecified,
    };
    Some(PluginConfig {
        // A sidecar's client side falls back to the request's host where it does not know the server.
        disable_host_header_fallback: class != Class::Outbound,
        tcp_reporting_duration: reported.interval,
        metrics: overrides.into_iter().map(|(name, one)| metric(name, one)).collect(),
        reporter: reporter as i32,
        ..Default::default()
    })
}

fn metric(name: &str, changed: &Override) -> MetricConfig {
    let (kept, removed): (Vec<_>, Vec<_>) = changed.tags.iter().partition(|(_, value)| value.is_some());
    MetricConfig {
        name: prometheus_name(name).into(),
        drop: changed.disabled,
        dimensions: kept.into_iter().filter_map(|(tag, value)| Some((tag.clone(), value.clone()?))).collect(),
        tags_to_remove: removed.into_iter().map(|(tag, _)| tag.clone()).collect(),
        ..Default::default()
    }
}

/// A metric's name without its prefix; one that is not of the standard is named as it is written.
fn prometheus_name(name: &str) -> &str {
    match name {
        "REQUEST_COUNT" => "requests_total",
        "REQUEST_DURATION" => "request_duration_milliseconds",
        "REQUEST_SIZE" => "request_bytes",
        "RESPONSE_SIZE" => "response_bytes",
        "TCP_OPENED_CONNECTIONS" => "tcp_connections_opened_total",
        "TCP_CLOSED_CONNECTIONS" => "tcp_connections_closed_total",
        "TCP_SENT_BYTES" => "tcp_sent_bytes_total",
        "TCP_RECEIVED_BYTES" => "tcp_received_bytes_total",
        "GRPC_REQUEST_MESSAGES" => "request_messages_total",
        "GRPC_RESPONSE_MESSAGES" => "response_messages_total",
        own => own,
    }
}
