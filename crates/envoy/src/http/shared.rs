//! What connection managers of an audience have in common: everything but the names of their statistics and their routes.

use std::sync::LazyLock;

use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_proto::envoy::config::core::v3::http1_protocol_options::{
    HeaderKeyFormat, header_key_format::HeaderFormat,
};
use canopus_proto::envoy::config::core::v3::{
    CidrRange, Http1ProtocolOptions, Http2ProtocolOptions, Http3ProtocolOptions, HttpProtocolOptions,
    TypedExtensionConfig,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    InternalAddressConfig, PathWithEscapedSlashesAction, UpgradeConfig,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, RequestIdExtension,
};
use canopus_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use canopus_proto::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::proxy_path_normalization::NormalizationType;
use canopus_proto::fields::http_connection_manager;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_proto::Any;
use canopus_runtime::flags::{ENABLE_100_CONTINUE_HEADERS, ENABLE_HCM_INTERNAL_NETWORKS};

use super::{Manager, Particulars, filters, headers, settings};
use crate::address;
use crate::audience::{ListenerAudience, Shared};
use crate::env::{Class, Env};
use crate::telemetry::{access_log, metrics, tracing};
use crate::{dns_cache, durations};

/// Room for a usual connection manager.
const USUAL_SIZE: usize = 4096;

/// What decides the common part of a connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traits {
    audience: Shared<ListenerAudience>,
    /// The service whose policies apply, where those of the proxy do not.
    service: Option<ServiceKey>,
    pub(super) class: Class,
    pub(super) grpc_web: bool,
    use_remote_address: bool,
    pub(super) suppress_debug_headers: bool,
    pub(super) peer_headers_in_mesh_only: bool,
    http3: bool,
    pub(super) tunnelled: bool,
    /// The host that the names in requests are looked up below.
    pub(super) resolved_below: Option<Box<str>>,
    /// The port that extensions know it by; 0 where there are none.
    pub(super) port: u32,
    /// What is particular to its listener.
    particulars: Particulars,
}

impl Traits {
    pub(super) fn new(env: &Env<'_>, manager: &Manager<'_>) -> Self {
        let service = env.service.map(Service::key);
        let extensible = !env.extensions().is_empty();
        let kind = env.audience.role.kind;
        let resolved = manager.service.filter(|service| dns_cache::is_for(kind, manager.class, service));
        Self {
            audience: env.audience.clone(),
            service,
            class: manager.class,
            grpc_web: manager.protocol == Protocol::GrpcWeb,
            use_remote_address: manager.use_remote_address,
            suppress_debug_headers: manager.suppress_debug_headers,
            peer_headers_in_mesh_only: manager.peer_headers_in_mesh_only,
            http3: manager.http3,
            tunnelled: manager.tunnelled,
            resolved_below: resolved.map(|service| (&*service.host).into()),
            port: if extensible { manager.port } else { 0 },
            particulars: manager.particulars.clone(),
        }
    }
}

/// The common part of the managers with these traits, encoded.
pub(super) struct SharedPart;

impl Query for SharedPart {
    const NAME: &'static str = "shared_connection_manager";
    type Key = Traits;
    type Value = Encoded<HttpConnectionManager>;

    fn run(ctx: &Ctx<'_>, traits: &Traits) -> Encoded<HttpConnectionManager> {
        let service = traits.service.as_ref().and_then(|key| service::service(ctx, key));
        let env = Env::with_service(ctx, &traits.audience, service.as_deref());
        let mut fields = ProtoWriter::with_capacity(USUAL_SIZE);
        let traced = tracing::tracing(&env, traits.class);
        let mut manager = build(&env, traits);
        manager.request_id_extension = Some(request_id_extension(traced.samples_by_request_id));
        fields.append_message(&*manager);
        if let Some(tracing) = &traced.tracing {
            fields.encoded(http_connection_manager::TRACING, tracing);
        }
        filters::write(&mut fields, &env, traits);
        fields.finish()
    }
}

/// All of it but tracing and the filters.
fn build(env: &Env<'_>, traits: &Traits) -> Box<HttpConnectionManager> {
    let mut manager = particular(&traits.particulars);
    manager.http3_protocol_options = traits.http3.then(Http3ProtocolOptions::default);
    manager.use_remote_address = Some(traits.use_remote_address.into());
    manager.upgrade_configs = vec![UpgradeConfig { upgrade_type: "websocket".into(), ..Default::default() }];
    manager.stream_idle_timeout = Some(Duration::from_secs(0));
    manager.proxy_100_continue = env.flag(ENABLE_100_CONTINUE_HEADERS);
    headers::apply(env, &mut manager);
    preserve_header_case(env, &mut manager);
    normalise_paths(env, &mut manager);
    if let Some(timeout) = durations::go(&env.audience.http.idle_timeout) {
        let options = HttpProtocolOptions { idle_timeout: Some(timeout), ..Default::default() };
        manager.common_http_protocol_options = Some(options);
    }
    settings::apply(env, &mut manager);
    if env.flag(ENABLE_HCM_INTERNAL_NETWORKS) || traits.use_remote_address {
        manager.internal_address_config = internal_addresses(env);
    }
    manager.access_log = access_log::http(env, traits.class);
    manager.access_log.extend(metrics::stock::requests(env, traits.class));
    manager
}

/// What is particular to a listener, and nothing else.
fn particular(wanted: &Particulars) -> Box<HttpConnectionManager> {
    let http1 = wanted.http1.map(|http1| Http1ProtocolOptions {
        accept_http_10: http1.accepts_http10,
        allow_absolute_url: http1.allows_absolute_urls.then(|| true.into()),
        ..Default::default()
    });
    Box::new(HttpConnectionManager {
        http_protocol_options: http1,
        http2_protocol_options: wanted.http2.then(Http2ProtocolOptions::default),
        server_name: wanted.server_name.clone(),
        server_header_transformation: wanted.server_transformation,
        generate_request_id: wanted.generate_request_id.map(Into::into),
        forward_client_cert_details: wanted.forwarded_client_cert,
        set_current_client_cert_details: wanted.client_cert_details.map(Into::into),
        xff_num_trusted_hops: wanted.trusted_hops,
        ..Default::default()
    })
}

fn preserve_header_case(env: &Env<'_>, manager: &mut HttpConnectionManager) {
    let headers = env.audience.config.proxy_headers.as_ref();
    let wanted = headers.and_then(|headers| headers.preserve_http1_header_case);
    if !wanted.is_some_and(|wanted| wanted.value) {
        return;
    }
    let formatter = TypedExtensionConfig {
        name: "preserve_case".into(),
        typed_config: Some(Any::pack(&PreserveCaseFormatterConfig::default())),
    };
    manager.http_protocol_options.get_or_insert_default().header_key_format =
        Some(HeaderKeyFormat { header_format: Some(HeaderFormat::StatefulFormatter(formatter)) });
}

fn normalise_paths(env: &Env<'_>, manager: &mut HttpConnectionManager) {
    let said = env.mesh().path_normalization.unwrap_or_default();
    let wanted = said.normalization();
    let merges = matches!(wanted, NormalizationType::MergeSlashes | NormalizationType::DecodeAndMergeSlashes);
    let slashes = match wanted {
        NormalizationType::DecodeAndMergeSlashes => PathWithEscapedSlashesAction::UnescapeAndForward,
        _ => PathWithEscapedSlashesAction::KeepUnchanged,
    };
    manager.normalize_path = Some((wanted != NormalizationType::None).into());
    manager.merge_slashes = merges;
    manager.path_with_escaped_slashes_action = slashes as i32;
}

/// The CIDRs of the mesh's networks, whose peers are trusted to send Envoy's own headers.
fn internal_addresses(env: &Env<'_>) -> Option<InternalAddressConfig> {
    let networks = env.settings.networks.networks.values();
    let mut prefixes: Vec<_> =
        networks.flat_map(|network| &network.endpoints).filter_map(address::network_prefix).collect();
    prefixes.sort_by_key(|prefix| (prefix.addr(), prefix.prefix_len()));
    let cidr_ranges: Vec<CidrRange> = prefixes.into_iter().map(address::cidr).collect();
    (!cidr_ranges.is_empty()).then(|| InternalAddressConfig { cidr_ranges, ..Default::default() })
}

fn request_id_extension(samples_traces: bool) -> RequestIdExtension {
    static EITHER: LazyLock<[RequestIdExtension; 2]> = LazyLock::new(|| {
        [false, true].map(|samples| {
            let samples = Some(samples.into());
            let config =
                UuidRequestIdConfig { use_request_id_for_trace_sampling: samples, ..Default::default() };
            RequestIdExtension { typed_config: Some(Any::pack(&config)) }
        })
    });
    EITHER[usize::from(samples_traces)].clone()
}
