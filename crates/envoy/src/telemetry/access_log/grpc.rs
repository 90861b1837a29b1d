//! Access logs that are sent to a log service.

use canopus_proto::envoy::config::accesslog::v3::AccessLog;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::{ApiVersion, GrpcService};
use canopus_proto::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use canopus_proto::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use canopus_proto::google::protobuf::{Struct, Value, value::Kind};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyHttpGrpcV3LogProvider, EnvoyOpenTelemetryLogProvider, EnvoyTcpGrpcV3LogProvider,
};
use canopus_proto::opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value};

use super::{file, log};
use crate::env::Env;
use crate::provider::{self, Upstream};

const HTTP: &str = "envoy.access_loggers.http_grpc";
const TCP: &str = "envoy.tcp_grpc_access_log";
const OPEN_TELEMETRY: &str = "envoy.access_loggers.open_telemetry";

const HTTP_LOG: &str = "http_envoy_accesslog";
const TCP_LOG: &str = "tcp_envoy_accesslog";
const LISTENER_LOG: &str = "listener_envoy_accesslog";
const OPEN_TELEMETRY_LOG: &str = "otel_envoy_accesslog";

/// What the metadata exchange noted about both ends.
const PEERS: [&str; 2] = ["upstream_peer", "downstream_peer"];

/// The same, with the names that older proxies use.
const PEERS_OF_ALL_VERSIONS: [&str; 6] = [
    "upstream_peer",
    "downstream_peer",
    "wasm.upstream_peer",
    "wasm.upstream_peer_id",
    "wasm.downstream_peer",
    "wasm.downstream_peer_id",
];

/// HTTP requests, to the log service of the bootstrap.
pub(super) fn http_of_bootstrap() -> AccessLog {
    let common_config = Some(bootstrap_config(HTTP_LOG));
    log(HTTP, &HttpGrpcAccessLogConfig { common_config, ..Default::default() })
}

/// Connections, to the log service of the bootstrap.
pub(super) fn tcp_of_bootstrap() -> AccessLog {
    log(TCP, &TcpGrpcAccessLogConfig { common_config: Some(bootstrap_config(TCP_LOG)) })
}

/// Connections that nothing took, to the log service of the bootstrap.
pub(super) fn listener_of_bootstrap() -> AccessLog {
    log(TCP, &TcpGrpcAccessLogConfig { common_config: Some(bootstrap_config(LISTENER_LOG)) })
}

fn bootstrap_config(name: &str) -> CommonGrpcAccessLogConfig {
    let upstream = Upstream { cluster: "envoy_accesslog_service".into(), host: "".into() };
    common(name, &upstream, PEERS_OF_ALL_VERSIONS.map(str::to_owned).to_vec())
}

/// HTTP requests, to a provider; `None` if its service is not known.
pub(super) fn http(env: &Env<'_>, provider: &EnvoyHttpGrpcV3LogProvider) -> Option<AccessLog> {
    let upstream = provider::upstream(env.ctx, &provider.service, provider.port)?;
    let state = state_to_log(&provider.filter_state_objects_to_log);
    let config = HttpGrpcAccessLogConfig {
        common_config: Some(common(or(&provider.log_name, HTTP_LOG), &upstream, state)),
        additional_request_headers_to_log: provider.additional_request_headers_to_log.clone(),
        additional_response_headers_to_log: provider.additional_response_headers_to_log.clone(),
        additional_response_trailers_to_log: provider.additional_response_trailers_to_log.clone(),
    };
    Some(log(HTTP, &config))
}

/// Connections, to a provider; `None` if its service is not known.
pub(super) fn tcp(env: &Env<'_>, provider: &EnvoyTcpGrpcV3LogProvider) -> Option<AccessLog> {
    let upstream = provider::upstream(env.ctx, &provider.service, provider.port)?;
    let state = state_to_log(&provider.filter_state_objects_to_log);
    let common_config = Some(common(or(&provider.log_name, TCP_LOG), &upstream, state));
    Some(log(TCP, &TcpGrpcAccessLogConfig { common_config }))
}

/// Requests or connections, to a provider that takes OpenTelemetry; `None` if its service is not known.
#[expect(deprecated, reason = "proxies before Envoy 1.37 know no other field")]
pub(super) fn open_telemetry(env: &Env<'_>, provider: &EnvoyOpenTelemetryLogProvider) -> Option<AccessLog> {
    let upstream = provider::upstream(env.ctx, &provider.service, provider.port)?;
    let format = provider.log_format.clone().unwrap_or_default();
    let body = if format.text.is_empty() { file::TEXT.to_owned() } else { format.text };
    let labels = format.labels.unwrap_or_default();
    let mut texts = file::texts(&labels);
    texts.push(&body);
    let formatters = file::formatters(&texts);
    let state = PEERS_OF_ALL_VERSIONS.map(str::to_owned).to_vec();
    let config = OpenTelemetryAccessLogConfig {
        common_config: Some(common(or(&provider.log_name, OPEN_TELEMETRY_LOG), &upstream, state)),
        disable_builtin_labels: true,
        attributes: (!labels.fields.is_empty()).then(|| attributes(&labels)),
        formatters,
        body: Some(text(body)),
        ..Default::default()
    };
    Some(log(OPEN_TELEMETRY, &config))
}

fn common(name: &str, upstream: &Upstream, state: Vec<String>) -> CommonGrpcAccessLogConfig {
    let target = EnvoyGrpc {
        cluster_name: upstream.cluster.clone(),
        authority: upstream.host.to_string(),
        ..Default::default()
    };
    CommonGrpcAccessLogConfig {
        log_name: name.into(),
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
            ..Default::default()
        }),
        transport_api_version: ApiVersion::V3 as i32,
        filter_state_objects_to_log: state,
        ..Default::default()
    }
}

fn state_to_log(written: &[String]) -> Vec<String> {
    if written.is_empty() { PEERS.map(str::to_owned).to_vec() } else { written.to_vec() }
}

fn or<'a>(written: &'a str, default: &'a str) -> &'a str {
    if written.is_empty() { default } else { written }
}

fn attributes(labels: &Struct) -> KeyValueList {
    let text_of = |value: &Value| match &value.kind {
        Some(Kind::StringValue(text)) => text.clone(),
        _ => String::new(),
    };
    let values = labels.fields.iter();
    let values = values.map(|(key, value)| KeyValue {
        key: key.clone(),
        value: Some(text(text_of(value))),
        ..Default::default()
    });
    KeyValueList { values: values.collect() }
}

fn text(value: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(value)) }
}
