//! Spans for OpenTelemetry.

use canopus_proto::envoy::config::core::v3::{HttpService, TypedExtensionConfig};
use canopus_proto::envoy::config::trace::v3::OpenTelemetryConfig;
use canopus_proto::envoy::extensions::tracers::opentelemetry::resource_detectors::v3::{
    DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig,
};
use canopus_proto::envoy::extensions::tracers::opentelemetry::samplers::v3::DynatraceSamplerConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::open_telemetry_tracing_provider::{
    DynatraceSampler, Sampling,
};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    HttpService as WrittenService, OpenTelemetryTracingProvider, ServiceAttributeEnrichment,
};
use canopus_proto::{Any, Message, Name};

use super::provider::service_name;
use super::provider::{grpc, header, http};
use crate::env::Env;
use crate::provider::{Upstream, upstream};

/// Where Dynatrace answers how many spans it wants.
const SAMPLING_PATH: &str = "api/v2/samplingConfiguration";

/// How spans are sent; `None` if a sampler cannot be asked.
pub(super) fn config(
    env: &Env<'_>,
    provider: &OpenTelemetryTracingProvider,
    server: &Upstream,
) -> Option<OpenTelemetryConfig> {
    let conventional =
        provider.service_attribute_enrichment() == ServiceAttributeEnrichment::OtelSemanticConventions;
    let service_name = match &env.audience.spans.conventional_name {
        Some(name) if conventional => name.to_string(),
        _ => service_name(env),
    };
    let mut config = OpenTelemetryConfig { service_name, ..Default::default() };
    match &provider.http {
        Some(written) => config.http_service = Some(http_service(written, server, &written.path)),
        None => {
            let written = provider.grpc.clone().unwrap_or_default();
            let mut service = grpc(server);
            service.timeout = written.timeout;
            service.initial_metadata = written.initial_metadata.iter().map(header).collect();
            config.grpc_service = Some(service);
        }
    }
    let detectors = provider.resource_detectors.as_ref();
    if conventional || detectors.is_some_and(|detectors| detectors.environment.is_some()) {
        let name = "envoy.tracers.opentelemetry.resource_detectors.environment";
        config.resource_detectors.push(extension(name, &EnvironmentResourceDetectorConfig {}));
    }
    if detectors.is_some_and(|detectors| detectors.dynatrace.is_some()) {
        let name = "envoy.tracers.opentelemetry.resource_detectors.dynatrace";
        let detector = extension(name, &DynatraceResourceDetectorConfig {});
        // What nobody asked for comes last.
        let asked = detectors.is_some_and(|detectors| detectors.environment.is_some());
        let place = if asked { config.resource_detectors.len() } else { 0 };
        config.resource_detectors.insert(place, detector);
    }
    if let Some(Sampling::DynatraceSampler(sampler)) = &provider.sampling {
        config.sampler = Some(dynatrace(env, provider, sampler, server)?);
    }
    Some(config)
}

/// The sampler of Dynatrace, which asks the exporter's server unless it has one of its own.
fn dynatrace(
    env: &Env<'_>,
    provider: &OpenTelemetryTracingProvider,
    sampler: &DynatraceSampler,
    server: &Upstream,
) -> Option<TypedExtensionConfig> {
    let service = match &sampler.http_service {
        None => http_service(provider.http.as_ref()?, server, SAMPLING_PATH),
        Some(api) => {
            let server = upstream(env.ctx, &api.service, api.port)?;
            let written = api.http.clone().unwrap_or_default();
            http_service(&written, &server, &written.path)
        }
    };
    let config = DynatraceSamplerConfig {
        tenant: sampler.tenant.clone(),
        cluster_id: sampler.cluster_id,
        http_service: Some(service),
        root_spans_per_minute: sampler.root_spans_per_minute,
    };
    Some(extension("envoy.tracers.opentelemetry.samplers.dynatrace", &config))
}

fn http_service(written: &WrittenService, server: &Upstream, path: &str) -> HttpService {
    http(joined(&server.host, path), &server.cluster, written.timeout, &written.headers)
}

/// A path below a host, without empty parts, `.` and `..`.
fn joined(host: &str, path: &str) -> String {
    let mut parts = vec![host];
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let slash = if path.ends_with('/') { "/" } else { "" };
    format!("{}{slash}", parts.join("/"))
}

fn extension<M: Message + Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.into(), typed_config: Some(Any::pack(config)) }
}
