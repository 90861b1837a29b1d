//! Tracing providers: where spans are sent.

use canopus_api::node::NodeKind;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::http_uri::HttpUpstreamType;
use canopus_proto::envoy::config::core::v3::{
    GrpcService, HeaderValue, HeaderValueOption, HttpService, HttpUri,
};
use canopus_proto::envoy::config::trace::v3::tracing::{Http as Tracer, http::ConfigType};
use canopus_proto::envoy::config::trace::v3::zipkin_config::{CollectorEndpointVersion, TraceContextOption};
use canopus_proto::envoy::config::trace::v3::{DatadogConfig, SkyWalkingConfig, ZipkinConfig};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::http_header::HeaderValue as WrittenValue;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::zipkin_tracing_provider::TraceContextOption as WrittenContext;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    HttpHeader, Provider, ZipkinTracingProvider,
};
use canopus_proto::{Any, Message, Name};

use super::open_telemetry;
use crate::env::Env;
use crate::provider::{Upstream, upstream};

const ZIPKIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How spans are reported.
pub(super) struct Reporting {
    pub(super) tracer: Tracer,
    /// Whether what goes upstream is a span of its own.
    pub(super) spawns_spans: bool,
    /// How long tags may be; 0 if the provider does not say.
    pub(super) max_tag_length: u32,
    /// Whether the provider chooses what is sampled.
    pub(super) samples: bool,
}

/// How spans are reported to a provider; `None` if it takes none, its service is not known, or the proxy lacks its tracer.
pub(super) fn reporting(env: &Env<'_>, provider: &ExtensionProvider) -> Option<Reporting> {
    let spawns_spans = env.audience.role.kind == NodeKind::Router;
    let find = |service: &str, port| upstream(env.ctx, service, port);
    Some(match provider.provider.as_ref()? {
        Provider::Zipkin(zipkin) => Reporting {
            tracer: tracer(
                env,
                "envoy.tracers.zipkin",
                &zipkin_config(env, zipkin, &find(&zipkin.service, zipkin.port)?),
            )?,
            spawns_spans,
            max_tag_length: zipkin.max_tag_length,
            samples: false,
        },
        Provider::Datadog(datadog) => {
            let server = find(&datadog.service, datadog.port)?;
            let config = DatadogConfig {
                collector_cluster: server.cluster,
                service_name: service_name(env),
                collector_hostname: server.host.to_string(),
                ..Default::default()
            };
            Reporting {
                tracer: tracer(env, "envoy.tracers.datadog", &config)?,
                spawns_spans,
                max_tag_length: datadog.max_tag_length,
                samples: false,
            }
        }
        Provider::Skywalking(skywalking) => {
            let server = find(&skywalking.service, skywalking.port)?;
            let config = SkyWalkingConfig { grpc_service: Some(grpc(&server)), ..Default::default() };
            Reporting {
                tracer: tracer(env, "envoy.tracers.skywalking", &config)?,
                spawns_spans: true,
                max_tag_length: 0,
                samples: false,
            }
        }
        Provider::Opentelemetry(provider) => {
            let config = open_telemetry::config(env, provider, &find(&provider.service, provider.port)?)?;
            Reporting {
                tracer: tracer(env, "envoy.tracers.opentelemetry", &config)?,
                spawns_spans,
                max_tag_length: provider.max_tag_length,
                samples: provider.sampling.is_some(),
            }
        }
        _ => return None,
    })
}

/// The name under which most providers know the workload.
pub(super) fn service_name(env: &Env<'_>) -> String {
    env.audience.spans.service_cluster.as_deref().unwrap_or_default().to_owned()
}

/// A tracer; `None` if the proxy was built without it and would refuse the listener.
fn tracer<M: Message + Name>(env: &Env<'_>, name: &str, config: &M) -> Option<Tracer> {
    let config_type = Some(ConfigType::TypedConfig(Any::pack(config)));
    env.audience.build.has(&M::full_name()).then(|| Tracer { name: name.into(), config_type })
}

fn zipkin_config(env: &Env<'_>, provider: &ZipkinTracingProvider, server: &Upstream) -> ZipkinConfig {
    let path = if provider.path.is_empty() { "/api/v2/spans" } else { &provider.path };
    let mut config = ZipkinConfig {
        collector_endpoint_version: CollectorEndpointVersion::HttpJson as i32,
        trace_id_128bit: !provider.enable_64bit_trace_id,
        shared_span_context: Some(false.into()),
        ..Default::default()
    };
    if env.audience.gates.zipkin_service {
        let uri = format!("http://{}{path}", server.host);
        let timeout = provider.timeout.or(Some(ZIPKIN_TIMEOUT));
        config.collector_service = Some(http(uri, &server.cluster, timeout, &provider.headers));
    } else {
        config.collector_cluster.clone_from(&server.cluster);
        config.collector_endpoint = path.to_owned();
        config.collector_hostname = server.host.to_string();
    }
    if env.audience.gates.zipkin_context_option
        && provider.trace_context_option() == WrittenContext::UseB3WithW3cPropagation
    {
        config.trace_context_option = TraceContextOption::UseB3WithW3cPropagation as i32;
    }
    config
}

/// A server that is called by gRPC.
pub(super) fn grpc(server: &Upstream) -> GrpcService {
    let target = EnvoyGrpc {
        cluster_name: server.cluster.clone(),
        authority: server.host.to_string(),
        ..Default::default()
    };
    GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)), ..Default::default() }
}

/// A server that is called by HTTP.
pub(super) fn http(
    uri: String,
    cluster: &str,
    timeout: Option<Duration>,
    headers: &[HttpHeader],
) -> HttpService {
    let added = headers.iter().map(|written| HeaderValueOption {
        header: Some(header(written)),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
        ..Default::default()
    });
    HttpService {
        http_uri: Some(HttpUri {
            uri,
            timeout,
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster.to_owned())),
        }),
        request_headers_to_add: added.collect(),
        ..Default::default()
    }
}

/// A header. Values that stand in the environment of the control plane are not ours to give away: they are left empty.
pub(super) fn header(written: &HttpHeader) -> HeaderValue {
    let value = match &written.header_value {
        Some(WrittenValue::Value(value)) => value.clone(),
        Some(WrittenValue::EnvName(_)) | None => String::new(),
    };
    HeaderValue { key: written.name.clone(), value, ..Default::default() }
}
