//! Which statistics Envoy keeps, how their names become tags, and where they are pushed.

use std::collections::BTreeMap;

use canopus_base::duration::Duration;
use serde_json::{Value, json};
use tracing::warn;

use super::clusters::metrics_service_address;
use super::{BootstrapError, Facts, typed};
use crate::node::Node;

/// Readiness and draining look at these.
const REQUIRED_PREFIXES: [&str; 5] =
    ["cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm"];
const REQUIRED_SUFFIXES: [&str; 4] = ["rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied"];
const DRAINING_SUFFIX: &str = "downstream_cx_active";
/// Statistics of routes that have a `stat_prefix`.
const REQUIRED_REGEX: &str = r"vhost\..*\.route\..*";
const DEFAULT_FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Parts of names that become tags, before and after the user's own.
const TAGS_BEFORE: [(&str, &str); 9] = [
    ("cluster_name", r"^cluster(\.(.+);)"),
    ("http_conn_manager_prefix", r"^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)"),
    ("thread_name", r"^server(\.(.+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.*?)\.)\w+?$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    (
        "http_conn_manager_listener_prefix",
        r"^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    ("listener_address", r"^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)"),
    ("mongo_prefix", r"^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$"),
];
const TAGS_AFTER: [(&str, &str); 7] = [
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
];

/// What a node asks for, by annotations and proxy configuration.
#[derive(Clone, Debug, Default)]
pub struct StatsSettings {
    /// Names that begin so are kept.
    pub prefixes: Vec<String>,
    /// Names that end so are kept.
    pub suffixes: Vec<String>,
    /// Names that match are kept.
    pub regexes: Vec<String>,
    /// Tags of the user's own.
    pub extra_tags: Vec<String>,
    /// Buckets of histograms by prefix of their names.
    pub buckets: BTreeMap<String, Vec<f64>>,
    flush: Option<Duration>,
    eviction: Option<Duration>,
}

impl StatsSettings {
    /// Reads annotations and configuration of a node.
    pub fn from_node(node: &Node) -> Self {
        let annotation = |name: &str| node.metadata.annotations.get(&format!("sidecar.istio.io/{name}"));
        let matcher = node.config.message.proxy_stats_matcher.clone().unwrap_or_default();
        let addresses = &node.metadata.instance_ips.0;
        // Parity: an annotation takes the place of the configuration; they are not merged.
        let included = |name: &str, configured: Vec<String>, required: &[&str]| {
            let annotated = annotation(name).filter(|text| !text.is_empty());
            let mut patterns = annotated.map_or(configured, |text| split(text));
            patterns.extend(required.iter().map(|&pattern| pattern.to_owned()));
            patterns.iter().flat_map(|pattern| for_each_address(pattern, addresses)).collect()
        };
        let mut suffixes = REQUIRED_SUFFIXES.to_vec();
        if node.metadata.exit_on_zero_active_connections.0 {
            suffixes.push(DRAINING_SUFFIX);
        }
        let flush = annotation("statsFlushInterval").and_then(|text| duration("statsFlushInterval", text));
        Self {
            prefixes: included("statsInclusionPrefixes", matcher.inclusion_prefixes, &REQUIRED_PREFIXES),
            suffixes: included("statsInclusionSuffixes", matcher.inclusion_suffixes, &suffixes),
            regexes: included("statsInclusionRegexps", matcher.inclusion_regexps, &[REQUIRED_REGEX]),
            extra_tags: extra_tags(&node.config.message.extra_stat_tags, annotation("extraStatTags")),
            buckets: annotation("statsHistogramBuckets").map(|text| buckets(text)).unwrap_or_default(),
            flush,
            eviction: annotation("statsEvictionInterval")
                .and_then(|text| eviction(text, flush.unwrap_or(DEFAULT_FLUSH_INTERVAL))),
        }
    }

    pub(super) fn flush_interval(&self) -> Value {
        self.flush.map_or(Value::Null, seconds)
    }

    pub(super) fn eviction_interval(&self) -> Value {
        self.eviction.map_or(Value::Null, seconds)
    }

    /// The `stats_config` of the bootstrap.
    pub(super) fn config(&self, metadata_discovery: bool) -> Value {
        let tag = |name: &str, regex: &str| json!({"tag_name": name, "regex": regex});
        let extra = self.extra_tags.iter().map(|name| tag(name, &format!(r"({name}=\.=(.*?);\.;)")));
        let tags: Vec<Value> = (TAGS_BEFORE.iter().map(|(name, regex)| tag(name, regex)))
            .chain(extra)
            .chain(TAGS_AFTER.iter().map(|(name, regex)| tag(name, regex)))
            .collect();
        let mut config = json!({
            "use_all_default_tags": false,
            "stats_tags": tags,
            "stats_matcher": {"inclusion_list": {"patterns": self.patterns(metadata_discovery)}},
        });
        if !self.buckets.is_empty() {
            let settings = self.buckets.iter();
            let settings =
                settings.map(|(prefix, buckets)| json!({"match": {"prefix": prefix}, "buckets": buckets}));
            config["histogram_bucket_settings"] = settings.collect();
        }
        config
    }

    fn patterns(&self, metadata_discovery: bool) -> Vec<Value> {
        let prefix = |text: &str| json!({"prefix": text});
        let mut patterns = vec![prefix("reporter=")];
        if metadata_discovery {
            patterns.push(prefix("workload_discovery"));
        }
        patterns.extend(self.prefixes.iter().map(|text| prefix(text)));
        patterns.extend(self.suffixes.iter().map(|text| json!({"suffix": text})));
        patterns.extend(self.regexes.iter().map(|text| json!({"safe_regex": {"regex": text}})));
        patterns.extend([prefix("component"), prefix("istio")]);
        patterns
    }
}

/// Where statistics are pushed; null if nowhere.
pub(super) fn sinks(facts: &Facts<'_>) -> Result<Value, BootstrapError> {
    let mut sinks = Vec::new();
    if metrics_service_address(facts).is_some() {
        let fields = json!({
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "envoy_metrics_service"}},
        });
        let config = typed("envoy.config.metrics.v3.MetricsServiceConfig", fields);
        sinks.push(json!({"name": "envoy.stat_sinks.metrics_service", "typed_config": config}));
    }
    let statsd = &facts.config().statsd_udp_address;
    if !statsd.is_empty() {
        let address = facts.socket_address("statsdUdpAddress", statsd)?;
        let config =
            typed("envoy.config.metrics.v3.StatsdSink", json!({"address": {"socket_address": address}}));
        sinks.push(json!({"name": "envoy.stat_sinks.statsd", "typed_config": config}));
    }
    Ok(if sinks.is_empty() { Value::Null } else { Value::Array(sinks) })
}

fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// A pattern with `{pod_ip}` stands for one pattern per address.
fn for_each_address(pattern: &str, addresses: &[String]) -> Vec<String> {
    const VARIABLE: &str = "{pod_ip}";
    if !pattern.contains(VARIABLE) {
        return vec![pattern.to_owned()];
    }
    addresses.iter().map(|address| pattern.replace(VARIABLE, address)).collect()
}

fn extra_tags(configured: &[String], annotated: Option<&String>) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    let annotated = annotated.map_or("", String::as_str).split(',');
    for tag in configured.iter().map(String::as_str).chain(annotated) {
        if !tag.is_empty() && !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags
}

fn buckets(text: &str) -> BTreeMap<String, Vec<f64>> {
    serde_json::from_str(text).unwrap_or_else(|error| {
        warn!("annotation sidecar.istio.io/statsHistogramBuckets is ignored: {error}");
        BTreeMap::new()
    })
}

fn duration(annotation: &str, text: &str) -> Option<Duration> {
    let parsed = text.parse::<Duration>();
    parsed.inspect_err(|error| warn!("annotation sidecar.istio.io/{annotation} is ignored: {error}")).ok()
}

fn eviction(text: &str, flush: Duration) -> Option<Duration> {
    let interval = duration("statsEvictionInterval", text)?;
    if flush.as_nanos() == 0 || interval.as_nanos() % flush.as_nanos() != 0 {
        warn!(
            "annotation sidecar.istio.io/statsEvictionInterval is ignored: it must be a multiple of the flush interval"
        );
        return None;
    }
    // Parity: fractions of a second are cut off.
    Some(Duration::from_secs(interval.as_nanos() / 1_000_000_000))
}

fn seconds(duration: Duration) -> Value {
    let nanos = duration.as_nanos();
    let (whole, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if fraction == 0 { format!("{whole}s").into() } else { format!("{whole}.{fraction:09}s").into() }
}
