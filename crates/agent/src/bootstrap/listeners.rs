//! The listeners Envoy has before it knows any: metrics (plain and behind mutual TLS) and readiness.

use serde_json::{Value, json};

use super::tls::secret;
use super::{Facts, typed};

/// What is compressed when a client of metrics asks for it.
const METRIC_TYPES: [&str; 4] = [
    "text/plain",
    "application/vnd.google.protobuf",
    "application/openmetrics-text",
    "application/openmetrics-protobuf",
];

pub(super) fn all(facts: &Facts<'_>) -> Vec<Value> {
    let metadata = facts.metadata();
    let mut listeners = vec![metrics(facts)];
    if metadata.envoy_secure_metrics_port != 0 {
        let routes = [("/stats/prometheus", "prometheus_stats")];
        listeners.push(secure(facts, metadata.envoy_secure_metrics_port, "secure_stats", &routes));
    }
    if metadata.envoy_secure_merged_metrics_port != 0 {
        let routes = [("/stats/prometheus", "agent"), ("/metrics", "agent")];
        listeners.push(secure(
            facts,
            metadata.envoy_secure_merged_metrics_port,
            "secure_merged_stats",
            &routes,
        ));
    }
    listeners.push(readiness(facts));
    listeners
}

fn metrics(facts: &Facts<'_>) -> Value {
    let addresses = &facts.addresses;
    let local_only =
        facts.config().proxy_metadata.get("METRICS_LOCALHOST_ACCESS_ONLY").is_some_and(|text| text == "true");
    let (host, additional) = if local_only {
        (addresses.localhost, addresses.additional_localhost)
    } else {
        (addresses.wildcard, addresses.additional_wildcard)
    };
    // Parity: compression is on unless it is turned off.
    let compressed = facts.config().stats_compression.as_ref().is_none_or(|compression| compression.value);
    let filters = if compressed { compressors() } else { Vec::new() };
    let manager = connection_manager("stats", &[("/stats/prometheus", "prometheus_stats")], filters);
    let chains = json!([{"filters": [manager]}]);
    listener(host, additional, facts.metadata().envoy_prometheus_port, chains, None)
}

fn readiness(facts: &Facts<'_>) -> Value {
    let addresses = &facts.addresses;
    let manager = connection_manager("agent", &[("/healthz/ready", "agent")], Vec::new());
    let filters = facts.settings.status_proxy_protocol.then(|| {
        let config = typed(
            "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
            json!({"allow_requests_without_proxy_protocol": true}),
        );
        json!([{"name": "envoy.listener.proxy_protocol", "typed_config": config}])
    });
    let chains = json!([{"filters": [manager]}]);
    let port = facts.metadata().envoy_status_port;
    listener(addresses.wildcard, addresses.additional_wildcard, port, chains, filters)
}

/// A listener that only workloads of the mesh can use.
fn secure(facts: &Facts<'_>, port: u16, prefix: &str, routes: &[(&str, &str)]) -> Value {
    let inspector = typed("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector", json!({}));
    let filters = json!([{"name": "envoy.filters.listener.tls_inspector", "typed_config": inspector}]);
    let context = typed(
        "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        json!({
            "require_client_certificate": true,
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [secret("default")],
                "combined_validation_context": {
                    "default_validation_context": {},
                    "validation_context_sds_secret_config": secret("ROOTCA"),
                },
            },
        }),
    );
    let chains = json!([{
        "filter_chain_match": {"transport_protocol": "tls"},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
        "filters": [connection_manager(prefix, routes, Vec::new())],
    }]);
    listener(facts.addresses.wildcard, None, port, chains, Some(filters))
}

/// Connections of kubelets and scrapers do not count against limits: they must work when nothing else does.
fn listener(host: &str, additional: Option<&str>, port: u16, chains: Value, filters: Option<Value>) -> Value {
    let address =
        |host: &str| json!({"socket_address": {"protocol": "TCP", "address": host, "port_value": port}});
    let mut listener = json!({
        "name": format!("{host}_{port}"),
        "address": address(host),
        "ignore_global_conn_limit": true,
        "bypass_overload_manager": true,
        "filter_chains": chains,
    });
    if let Some(additional) = additional {
        listener["additional_addresses"] = json!([{"address": address(additional)}]);
    }
    if let Some(filters) = filters {
        listener["listener_filters"] = filters;
    }
    listener
}

fn connection_manager(prefix: &str, routes: &[(&str, &str)], mut filters: Vec<Value>) -> Value {
    let routes: Vec<Value> = routes
        .iter()
        .map(|(path, cluster)| json!({"match": {"prefix": path}, "route": {"cluster": cluster}}))
        .collect();
    let router = typed("envoy.extensions.filters.http.router.v3.Router", json!({}));
    filters.push(json!({"name": "envoy.filters.http.router", "typed_config": router}));
    let config = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "codec_type": "AUTO",
            "stat_prefix": prefix,
            "route_config": {
                "virtual_hosts": [{"name": "backend", "domains": ["*"], "routes": routes}],
            },
            "http_filters": filters,
        }),
    );
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": config})
}

fn compressors() -> Vec<Value> {
    let libraries = [("brotli", "Brotli"), ("zstd", "Zstd"), ("gzip", "Gzip")];
    let compressor = |(name, message): (&str, &str)| {
        let library =
            typed(&format!("envoy.extensions.compression.{name}.compressor.v3.{message}"), json!({}));
        let config = typed(
            "envoy.extensions.filters.http.compressor.v3.Compressor",
            json!({
                "compressor_library": {"name": format!("stats_{name}"), "typed_config": library},
                "response_direction_config": {"common_config": {"content_type": METRIC_TYPES}},
            }),
        );
        json!({"name": format!("envoy.filters.http.compressor.{name}"), "typed_config": config})
    };
    libraries.map(compressor).into()
}
