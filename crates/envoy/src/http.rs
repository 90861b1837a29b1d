//! The HTTP connection manager: what every HTTP listener has in common, whoever opens it.

pub(crate) mod filters;
pub(crate) mod headers;
pub(crate) mod settings;

use canopus_base::protocol::Protocol;
use canopus_mesh::service::Service;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::http1_protocol_options::{
    HeaderKeyFormat, header_key_format::HeaderFormat,
};
use canopus_proto::envoy::config::core::v3::{
    CidrRange, Http1ProtocolOptions, Http3ProtocolOptions, HttpProtocolOptions, TypedExtensionConfig,
};
use canopus_proto::envoy::config::listener::v3::{Filter, filter::ConfigType};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier, UpgradeConfig,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds, RequestIdExtension,
};
use canopus_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use canopus_proto::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::proxy_path_normalization::NormalizationType;
use canopus_runtime::flags::{ENABLE_100_CONTINUE_HEADERS, ENABLE_HCM_INTERNAL_NETWORKS, PILOT_HTTP10};

use crate::env::{Class, Env};
use crate::listener::address;
use crate::telemetry::{access_log, metrics, tracing};
use crate::{durations, names};

/// A connection manager to be built.
pub(crate) struct Manager<'a> {
    /// The side of the connection it is on.
    pub(crate) class: Class,
    /// What is particular to its listener; the rest is filled in.
    pub(crate) base: HttpConnectionManager,
    /// The prefix of its statistics, not yet ending in a semicolon.
    pub(crate) stat_prefix: String,
    /// Where its routes come from.
    pub(crate) routes: Routes,
    /// What is spoken on the port.
    pub(crate) protocol: Protocol,
    /// Whether the address of the peer is that of the client.
    pub(crate) use_remote_address: bool,
    /// Whether responses do not carry Envoy's own headers.
    pub(crate) suppress_debug_headers: bool,
    /// Whether the headers that tell about the workload go to mesh services only.
    pub(crate) peer_headers_in_mesh_only: bool,
    /// Whether it serves HTTP/3.
    pub(crate) http3: bool,
    /// Whether connections came through an HBONE tunnel, whose ends know each other already.
    pub(crate) tunnelled: bool,
    /// The service it was made for, if for one.
    pub(crate) service: Option<&'a Service>,
    /// The port that extensions know it by: the workload's own where requests come in, else the one clients connect to.
    pub(crate) port: u32,
}

/// Where a connection manager gets its routes from.
pub(crate) enum Routes {
    /// A route table of this name, asked for on the same stream.
    Named(String),
    /// Those given here.
    Inline(Box<RouteConfiguration>),
}

impl Manager<'_> {
    /// A connection manager with nothing particular about it.
    pub(crate) fn new(class: Class, stat_prefix: String, routes: Routes) -> Self {
        Self {
            class,
            base: HttpConnectionManager::default(),
            stat_prefix,
            routes,
            protocol: Protocol::Http,
            use_remote_address: false,
            suppress_debug_headers: false,
            peer_headers_in_mesh_only: false,
            http3: false,
            tunnelled: false,
            service: None,
            port: 0,
        }
    }

    /// The network filter that runs it.
    pub(crate) fn filter(self, env: &Env<'_>) -> Filter {
        Filter {
            name: "envoy.filters.network.http_connection_manager".into(),
            config_type: Some(ConfigType::TypedConfig(Any::pack(&self.build(env)))),
        }
    }

    /// The whole configuration.
    pub(crate) fn build(mut self, env: &Env<'_>) -> HttpConnectionManager {
        let mut manager = std::mem::take(&mut self.base);
        manager.codec_type = CodecType::Auto as i32;
        if self.http3 {
            manager.codec_type = CodecType::Http3 as i32;
            manager.http3_protocol_options = Some(Http3ProtocolOptions::default());
        }
        manager.stat_prefix = names::stat_name(&self.stat_prefix);
        manager.use_remote_address = Some(self.use_remote_address.into());
        manager.upgrade_configs =
            vec![UpgradeConfig { upgrade_type: "websocket".into(), ..Default::default() }];
        manager.stream_idle_timeout = Some(Duration::from_secs(0));
        manager.proxy_100_continue = env.flag(ENABLE_100_CONTINUE_HEADERS);
        headers::apply(env, &mut manager);
        preserve_header_case(env, &mut manager);
        normalise_paths(env, &mut manager);
        if let Some(timeout) = durations::go(&env.view.metadata.idle_timeout) {
            let options = HttpProtocolOptions { idle_timeout: Some(timeout), ..Default::default() };
            manager.common_http_protocol_options = Some(options);
        }
        settings::apply(env, &mut manager);
        if env.flag(ENABLE_HCM_INTERNAL_NETWORKS) || self.use_remote_address {
            manager.internal_address_config = internal_addresses(env);
        }
        manager.access_log = access_log::http(env, self.class);
        manager.access_log.extend(metrics::stock::requests(env, self.class));
        let traced = tracing::tracing(env, self.class);
        manager.request_id_extension = Some(request_id_extension(traced.samples_by_request_id));
        manager.tracing = traced.tracing;
        manager.http_filters = filters::pipeline(env, &self);
        manager.route_specifier = Some(self.routes.into_specifier());
        manager
    }
}

impl Routes {
    fn into_specifier(self) -> RouteSpecifier {
        match self {
            Self::Named(name) => {
                RouteSpecifier::Rds(Rds { config_source: Some(names::ads()), route_config_name: name })
            }
            Self::Inline(routes) => RouteSpecifier::RouteConfig(*routes),
        }
    }
}

/// HTTP/1 options of a proxy whose clients may speak HTTP/1.0; `None` if they may not.
pub(crate) fn http10_options(env: &Env<'_>) -> Option<Http1ProtocolOptions> {
    accepts_http10(env).then(|| Http1ProtocolOptions { accept_http_10: true, ..Default::default() })
}

/// Whether the proxy takes HTTP/1.0 requests.
pub(crate) fn accepts_http10(env: &Env<'_>) -> bool {
    env.flag(PILOT_HTTP10) || env.view.metadata.http10 == "1"
}

fn preserve_header_case(env: &Env<'_>, manager: &mut HttpConnectionManager) {
    let headers = env.proxy_config.proxy_headers.as_ref();
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
    let config = UuidRequestIdConfig {
        use_request_id_for_trace_sampling: Some(samples_traces.into()),
        ..Default::default()
    };
    RequestIdExtension { typed_config: Some(Any::pack(&config)) }
}
