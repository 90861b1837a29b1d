//! The HTTP connection manager and its chain of filters.

use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::core::v3::Http1ProtocolOptions;
use canopus_proto::envoy::extensions::filters::http::cors::v3::Cors;
use canopus_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use canopus_proto::envoy::extensions::filters::http::grpc_stats::v3::{
    FilterConfig as GrpcStats, filter_config::PerMethodStatSpecifier,
};
use canopus_proto::envoy::extensions::filters::http::router::v3::Router;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, PathWithEscapedSlashesAction, RouteSpecifier, SetCurrentClientCertDetails, UpgradeConfig,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, RequestIdExtension, http_filter::ConfigType,
};
use canopus_proto::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;
use canopus_proto::istio::envoy::config::filter::http::alpn::v2alpha1::filter_config::{AlpnOverride, Protocol};
use canopus_proto::{Any, Message, Name};

use crate::names;
use crate::telemetry;

/// The connection manager of a gateway's HTTP listener.
pub(crate) fn gateway_connection_manager(
    view: &View,
    stat_prefix: &str,
    route_name: &str,
) -> HttpConnectionManager {
    HttpConnectionManager {
        stat_prefix: names::stat_name(stat_prefix),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(names::ads()),
            route_config_name: route_name.into(),
        })),
        http_filters: filters(view),
        http_protocol_options: Some(Http1ProtocolOptions::default()),
        server_name: "istio-envoy".into(),
        use_remote_address: Some(true.into()),
        forward_client_cert_details: ForwardClientCertDetails::SanitizeSet as i32,
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            subject: Some(true.into()),
            cert: true,
            dns: true,
            uri: true,
            ..Default::default()
        }),
        proxy_100_continue: true,
        normalize_path: Some(true.into()),
        path_with_escaped_slashes_action: PathWithEscapedSlashesAction::KeepUnchanged as i32,
        stream_idle_timeout: Some(Duration::from_secs(0)),
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".into(), ..Default::default() }],
        request_id_extension: Some(RequestIdExtension {
            typed_config: Some(Any::pack(&UuidRequestIdConfig {
                use_request_id_for_trace_sampling: Some(true.into()),
                ..Default::default()
            })),
        }),
        tracing: Some(telemetry::tracing(view)),
        ..Default::default()
    }
}

/// The filters of an outbound or gateway connection manager, in Istio's order.
fn filters(view: &View) -> Vec<HttpFilter> {
    let mut filters = Vec::new();
    filters.extend(telemetry::http_metadata_exchange(view));
    filters.push(filter(
        "envoy.filters.http.grpc_stats",
        &GrpcStats {
            emit_filter_state: true,
            per_method_stat_specifier: Some(PerMethodStatSpecifier::StatsForAllMethods(false.into())),
            ..Default::default()
        },
    ));
    filters.extend(alpn(view));
    filters.push(filter("envoy.filters.http.fault", &HttpFault::default()));
    filters.push(filter("envoy.filters.http.cors", &Cors::default()));
    filters.push(filter("envoy.filters.http.router", &Router::default()));
    filters
}

/// A filter under its well-known name.
fn filter<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    HttpFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(Any::pack(config))),
        ..Default::default()
    }
}

/// Offers Istio's ALPN names to the upstream, so that a mesh peer recognises the caller. Istio's own proxy only.
fn alpn(view: &View) -> Option<HttpFilter> {
    if !view.has_extension(&Alpn::full_name()) {
        return None;
    }
    let overriding = |protocol: Protocol, names: [&str; 3]| AlpnOverride {
        upstream_protocol: protocol as i32,
        alpn_override: names.map(str::to_owned).to_vec(),
    };
    let config = Alpn {
        alpn_override: vec![
            overriding(Protocol::Http10, ["istio-http/1.0", "istio", "http/1.0"]),
            overriding(Protocol::Http11, ["istio-http/1.1", "istio", "http/1.1"]),
            overriding(Protocol::Http2, ["istio-h2", "istio", "h2"]),
        ],
    };
    Some(filter("istio.alpn", &config))
}
