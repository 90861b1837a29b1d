//! Istio's standard metrics from a proxy that lacks Istio's filter for them: Envoy's own logger of statistics counts under
//! the same names and labels.
//!
//! What the filter would learn from its peers comes from elsewhere: a client knows the server by the metadata of its
//! endpoint and by its certificate; a server knows the client by its certificate and by the headers that a stock client
//! sends (see `peer_metadata`).

mod labels;
mod prefix;

use canopus_mesh::telemetry::metrics::Override;
use canopus_proto::Name as _;
use canopus_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use canopus_proto::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, AndFilter, LogTypeFilter, OrFilter, ResponseFlagFilter,
};
use canopus_proto::envoy::data::accesslog::v3::AccessLogType;
use canopus_proto::envoy::extensions::access_loggers::stats::v3::Config;
use canopus_proto::envoy::extensions::access_loggers::stats::v3::config::histogram::Unit;
use canopus_proto::envoy::extensions::access_loggers::stats::v3::config::{Counter, Histogram, Stat, Tag};
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TcpAccessLogOptions;
use canopus_proto::envoy::r#type::v3::Scope;

use super::super::access_log::log;
use crate::env::{Class, Env};
use labels::Traffic;

/// What Envoy says of connections that never reached a server.
const NOT_CONNECTED: [&str; 5] = ["UF", "UH", "UO", "URX", "NC"];

/// The loggers that count requests; none if the proxy has Istio's filter, or nothing is to be counted.
pub(crate) fn requests(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    provider_loggers(
        env,
        class,
        |count| {
            let config = Config {
                counters: count.counter("REQUEST_COUNT", None).into_iter().collect(),
                histograms: [
                    ("REQUEST_DURATION", Unit::Milliseconds, "%DURATION%"),
                    ("REQUEST_SIZE", Unit::Bytes, "%DOWNSTREAM_WIRE_BYTES_RECEIVED%"),
                    ("RESPONSE_SIZE", Unit::Bytes, "%DOWNSTREAM_WIRE_BYTES_SENT%"),
                ]
                .into_iter()
                .filter_map(|(metric, unit, value)| count.histogram(metric, unit, value))
                .collect(),
                ..Default::default()
            };
            vec![(config, None)]
        },
        Traffic::Requests,
    )
}

/// Makes a TCP proxy count its connections. What else is logged of them is logged once, at their end, as before.
pub(crate) fn connections(env: &Env<'_>, class: Class, proxy: &mut TcpProxy) {
    let loggers = provider_loggers(
        env,
        class,
        |count| {
            let opened = Config {
                counters: count.counter("TCP_OPENED_CONNECTIONS", None).into_iter().collect(),
                ..Default::default()
            };
            let closed = [
                count.counter("TCP_CLOSED_CONNECTIONS", None),
                count.counter("TCP_RECEIVED_BYTES", Some("%DOWNSTREAM_WIRE_BYTES_RECEIVED%")),
                count.counter("TCP_SENT_BYTES", Some("%DOWNSTREAM_WIRE_BYTES_SENT%")),
            ];
            let closed = Config { counters: closed.into_iter().flatten().collect(), ..Default::default() };
            vec![(opened, Some(is_opened(class))), (closed, Some(is_ended()))]
        },
        Traffic::Connections,
    );
    if loggers.is_empty() {
        return;
    }
    for log in &mut proxy.access_log {
        log.filter = Some(match log.filter.take() {
            Some(filter) => all_of(vec![filter, is_ended()]),
            None => is_ended(),
        });
    }
    proxy.access_log.extend(loggers);
    proxy.access_log_options =
        Some(TcpAccessLogOptions { flush_access_log_on_connected: true, ..Default::default() });
}

/// The loggers of all providers of metrics, and what makes Prometheus see their names as they are.
fn provider_loggers(
    env: &Env<'_>,
    class: Class,
    configs: impl Fn(&Counting<'_>) -> Vec<(Config, Option<AccessLogFilter>)>,
    traffic: Traffic,
) -> Vec<AccessLog> {
    let is_stock = !env.audience.build.has(&super::PluginConfig::full_name());
    if !is_stock || !env.audience.build.has(&Config::full_name()) {
        return Vec::new();
    }
    let prefix = prefix::registration(&env.audience.build);
    let scope = Scope {
        prefix: prefix.as_ref().map(|_| prefix::UNPREFIXED.to_owned()).unwrap_or_default(),
        sharing_name: "istio".into(),
        ..Default::default()
    };
    let mut loggers = Vec::new();
    for (_, reported) in super::reported(env) {
        let Some(overrides) = reported.overrides(super::super::side(class)) else { continue };
        let counting = Counting { env, tags: labels::tags(env, class, traffic), overrides };
        for (config, filter) in configs(&counting) {
            if config.counters.is_empty() && config.histograms.is_empty() {
                continue;
            }
            let config = Config { stats_scope: Some(scope.clone()), ..config };
            loggers.push(AccessLog { filter, ..log("envoy.access_loggers.stats", &config) });
        }
    }
    if loggers.is_empty() {
        return loggers;
    }
    prefix.into_iter().chain(loggers).collect()
}

/// What a provider counts.
struct Counting<'a> {
    env: &'a Env<'a>,
    tags: Vec<Tag>,
    overrides: Vec<(&'a str, &'a Override)>,
}

impl Counting<'_> {
    /// A counter; of this value, or of one at a time.
    fn counter(&self, metric: &str, value: Option<&str>) -> Option<Counter> {
        Some(Counter {
            stat: Some(self.stat(metric)?),
            value_format: value.unwrap_or_default().into(),
            value_fixed: value.is_none().then(|| 1_u64.into()),
        })
    }

    fn histogram(&self, metric: &str, unit: Unit, value: &str) -> Option<Histogram> {
        Some(Histogram { stat: Some(self.stat(metric)?), unit: unit as i32, value_format: value.into() })
    }

    /// The name and labels of a metric; `None` if it is not to be reported.
    fn stat(&self, metric: &str) -> Option<Stat> {
        let own = self.overrides.iter().find(|(name, _)| *name == metric).map(|(_, own)| *own);
        if own.is_some_and(|own| own.disabled) {
            return None;
        }
        let mut tags = self.tags.clone();
        for (name, value) in own.into_iter().flat_map(|own| &own.tags) {
            tags.retain(|tag| tag.name != *name);
            tags.extend(value.as_ref().and_then(|written| labels::user_tag(self.env, name, written)));
        }
        Some(Stat { name: format!("istio_{}", super::prometheus_name(metric)), tags })
    }
}

/// When a connection counts as opened: when it is connected, or has ended without that. A server's proxy connects before
/// the client has shown its certificate, so there it counts when all is known, at the end.
fn is_opened(class: Class) -> AccessLogFilter {
    if class == Class::Inbound {
        return is_ended();
    }
    let failed = ResponseFlagFilter { flags: NOT_CONNECTED.map(str::to_owned).to_vec() };
    let failed = all_of(vec![is_ended(), filter(FilterSpecifier::ResponseFlagFilter(failed))]);
    let filters = vec![log_type_filter(AccessLogType::TcpUpstreamConnected), failed];
    filter(FilterSpecifier::OrFilter(OrFilter { filters }))
}

fn is_ended() -> AccessLogFilter {
    log_type_filter(AccessLogType::TcpConnectionEnd)
}

fn log_type_filter(r#type: AccessLogType) -> AccessLogFilter {
    let types = vec![r#type as i32];
    filter(FilterSpecifier::LogTypeFilter(LogTypeFilter { types, ..Default::default() }))
}

fn all_of(filters: Vec<AccessLogFilter>) -> AccessLogFilter {
    filter(FilterSpecifier::AndFilter(AndFilter { filters }))
}

fn filter(specifier: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter { filter_specifier: Some(specifier) }
}
