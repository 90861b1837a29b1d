//! The clusters Envoy has before it knows any: itself, the agent, and collectors of traces, metrics and logs.

use canopus_proto::istio::mesh::v1alpha1::RemoteService;
use canopus_proto::istio::mesh::v1alpha1::tracing::Tracer;
use canopus_proto::istio::networking::v1alpha3::connection_pool_settings::tcp_settings::TcpKeepalive;
use serde_json::{Map, Value, json};

use super::tls::transport_socket;
use super::{BootstrapError, FILE_CREDENTIAL_SOCKET, Facts, typed};

pub(super) fn all(facts: &Facts<'_>) -> Result<Vec<Value>, BootstrapError> {
    let config = facts.config();
    let local = |port: Value| {
        let address = json!({"protocol": "TCP", "address": facts.addresses.localhost, "port_value": port});
        json!({"socket_address": address})
    };
    let mut clusters = vec![
        fixed("prometheus_stats", "0.250s", local(config.proxy_admin_port.into())),
        fixed("agent", "0.250s", local(config.status_port.into())),
        over_socket(
            "sds-grpc",
            &format!(
                "./var/run/secrets/workload-spiffe-uds/{}",
                facts.metadata().workload_identity_socket_file
            ),
        ),
    ];
    if facts.node.raw.contains_key("file-credential") {
        clusters.push(over_socket("sds-files-grpc", FILE_CREDENTIAL_SOCKET));
    }
    clusters.push(xds(&config.config_path));
    clusters.extend(tracer(facts)?);
    clusters.extend(metrics_service(facts)?);
    if let Some(service) =
        config.envoy_access_log_service.as_ref().filter(|service| !service.address.is_empty())
    {
        clusters.push(remote(facts, "envoy_accesslog_service", "envoyAccessLogService.address", service)?);
    }
    if facts.metadata().enable_self_discovery.0 {
        clusters.push(local_cluster());
    }
    Ok(clusters)
}

/// The address at which metrics are pushed, if they are: `(field, address)`.
#[allow(deprecated, reason = "old configurations have the address in a field of its own")]
pub(super) fn metrics_service_address<'a>(facts: &Facts<'a>) -> Option<(&'static str, &'a str)> {
    let config = facts.config();
    match &config.envoy_metrics_service {
        Some(service) if !service.address.is_empty() => {
            Some(("envoyMetricsService.address", &service.address))
        }
        _ if !config.envoy_metrics_service_address.is_empty() => {
            Some(("envoyMetricsServiceAddress", &config.envoy_metrics_service_address))
        }
        _ => None,
    }
}

fn metrics_service(facts: &Facts<'_>) -> Result<Option<Value>, BootstrapError> {
    let Some((field, address)) = metrics_service_address(facts) else { return Ok(None) };
    let plain = RemoteService { address: address.to_owned(), ..Default::default() };
    let service = facts.config().envoy_metrics_service.as_ref();
    let service = service.filter(|service| !service.address.is_empty()).unwrap_or(&plain);
    remote(facts, "envoy_metrics_service", field, service).map(Some)
}

fn assignment(name: &str, address: Value) -> Value {
    json!({"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]})
}

/// A cluster of one endpoint, with the given fields beside the usual ones.
fn cluster(name: &str, kind: &str, timeout: &str, address: Value, more: Value) -> Value {
    let mut cluster = json!({
        "name": name,
        // The semicolon ends the name for the regular expression that tags statistics with it.
        "alt_stat_name": format!("{name};"),
        "type": kind,
        "connect_timeout": timeout,
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": assignment(name, address),
    });
    if let (Value::Object(cluster), Value::Object(more)) = (&mut cluster, more) {
        cluster.extend(more);
    }
    cluster
}

fn fixed(name: &str, timeout: &str, address: Value) -> Value {
    cluster(name, "STATIC", timeout, address, json!({}))
}

fn http2() -> Value {
    const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({OPTIONS: typed(OPTIONS, json!({"explicit_http_config": {"http2_protocol_options": {}}}))})
}

fn over_socket(name: &str, path: &str) -> Value {
    let more = json!({"typed_extension_protocol_options": http2()});
    cluster(name, "STATIC", "1s", json!({"pipe": {"path": path}}), more)
}

fn xds(config_path: &str) -> Value {
    let unlimited = |priority: &str| {
        json!({
            "priority": priority,
            "max_connections": 100_000,
            "max_pending_requests": 100_000,
            "max_requests": 100_000,
        })
    };
    let more = json!({
        "circuit_breakers": {"thresholds": [unlimited("DEFAULT"), unlimited("HIGH")]},
        "upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 300}},
        "max_requests_per_connection": 1,
        "typed_extension_protocol_options": http2(),
    });
    cluster("xds-grpc", "STATIC", "1s", json!({"pipe": {"path": format!("{config_path}/XDS")}}), more)
}

fn tracer(facts: &Facts<'_>) -> Result<Option<Value>, BootstrapError> {
    let (name, field, address) = match facts.tracer() {
        Some(Tracer::Zipkin(zipkin)) => ("zipkin", "tracing.zipkin.address", &zipkin.address),
        Some(Tracer::Lightstep(lightstep)) => ("lightstep", "tracing.lightstep.address", &lightstep.address),
        Some(Tracer::Datadog(datadog)) => ("datadog_agent", "tracing.datadog.address", &datadog.address),
        Some(Tracer::Stackdriver(_)) if !facts.metadata().platform_metadata.contains_key("gcp_project") => {
            return Err(BootstrapError::NoProject);
        }
        _ => return Ok(None),
    };
    if address.is_empty() {
        return Ok(None);
    }
    let mut more = by_name(facts);
    if name == "zipkin" {
        more.insert("dns_refresh_rate".into(), "30s".into());
    }
    if name == "lightstep" {
        more.insert("typed_extension_protocol_options".into(), http2());
    }
    let tls = facts.config().tracing.as_ref().and_then(|tracing| tracing.tls_settings.as_ref());
    let socket = tls.and_then(|tls| transport_socket(tls, "tracer", facts.metadata(), name == "lightstep"));
    if let Some(socket) = socket {
        more.insert("transport_socket".into(), socket);
    }
    let address = json!({"socket_address": facts.socket_address(field, address)?});
    Ok(Some(cluster(name, "STRICT_DNS", "1s", address, Value::Object(more))))
}

fn by_name(facts: &Facts<'_>) -> Map<String, Value> {
    Map::from_iter([
        ("respect_dns_ttl".to_owned(), true.into()),
        ("dns_lookup_family".to_owned(), facts.addresses.lookup_family.into()),
    ])
}

fn remote(
    facts: &Facts<'_>,
    name: &str,
    field: &'static str,
    service: &RemoteService,
) -> Result<Value, BootstrapError> {
    let mut more = by_name(facts);
    more.insert("typed_extension_protocol_options".into(), http2());
    let tls = service.tls_settings.as_ref();
    if let Some(socket) = tls.and_then(|tls| transport_socket(tls, name, facts.metadata(), true)) {
        more.insert("transport_socket".into(), socket);
    }
    if let Some(keepalive) = &service.tcp_keepalive {
        more.insert("upstream_connection_options".into(), json!({"tcp_keepalive": probing(keepalive)}));
    }
    let address = json!({"socket_address": facts.socket_address(field, &service.address)?});
    Ok(cluster(name, "STRICT_DNS", "1s", address, Value::Object(more)))
}

fn probing(keepalive: &TcpKeepalive) -> Value {
    let seconds = |duration: &Option<canopus_proto::google::protobuf::Duration>| {
        duration.as_ref().map(|duration| duration.seconds).filter(|seconds| *seconds > 0)
    };
    let probes = Some(i64::from(keepalive.probes)).filter(|probes| *probes > 0);
    let fields = [
        ("keepalive_probes", probes),
        ("keepalive_time", seconds(&keepalive.time)),
        ("keepalive_interval", seconds(&keepalive.interval)),
    ];
    let given = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
    Value::Object(given.collect())
}

/// The proxy's own peers, by which Envoy knows how much traffic to keep in its zone.
fn local_cluster() -> Value {
    let policy = typed(
        "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
        json!({"locality_lb_config": {"zone_aware_lb_config": {"min_cluster_size": "1"}}}),
    );
    let name = "envoy.load_balancing_policies.least_request";
    json!({
        "name": "local_cluster",
        "alt_stat_name": "local_cluster;",
        "type": "EDS",
        "connect_timeout": "1s",
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": name, "typed_config": policy}}],
        },
        "eds_cluster_config": {
            "eds_config": {"ads": {}, "resource_api_version": "V3"},
            "service_name": "local_cluster",
        },
    })
}
