//! The chain of HTTP filters, in Istio's order.

use std::sync::LazyLock;

use canopus_api::node::NodeKind;
use canopus_proto::Name;
use canopus_proto::envoy::config::common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation};
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use canopus_proto::envoy::extensions::filters::http::cors::v3::Cors;
use canopus_proto::envoy::extensions::filters::http::dynamic_forward_proxy::v3::{
    FilterConfig as DynamicForwardProxy, filter_config::ImplementationSpecifier,
};
use canopus_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use canopus_proto::envoy::extensions::filters::http::grpc_stats::v3::{
    FilterConfig as GrpcStats, filter_config::PerMethodStatSpecifier,
};
use canopus_proto::envoy::extensions::filters::http::grpc_web::v3::GrpcWeb;
use canopus_proto::envoy::extensions::filters::http::header_mutation::v3::{HeaderMutation, Mutations};
use canopus_proto::envoy::extensions::filters::http::router::v3::Router;
use canopus_proto::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use canopus_proto::fields::http_connection_manager;
use canopus_proto::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;
use canopus_proto::istio::envoy::config::filter::http::alpn::v2alpha1::filter_config::{
    AlpnOverride, Protocol as Upstream,
};
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::ExecutionPhase as Phase;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::{PILOT_ENABLE_ALPN_FILTER, PILOT_ENABLE_PERSISTENT_SESSION_FILTER};

use super::shared::Traits;
use crate::audience::ListenerAudience;
use crate::authorization::{self, Stage};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::filter::http_filter;
use crate::telemetry::{metrics, peer_metadata};
use crate::{dns_cache, inference, jwt};

/// A filter that never differs, as a field of the connection manager.
type Fixed = LazyLock<Encoded<HttpConnectionManager>>;

static CORS: Fixed = Fixed::new(|| entry(&http_filter("envoy.filters.http.cors", &Cors::default())));
static FAULT: Fixed = Fixed::new(|| entry(&http_filter("envoy.filters.http.fault", &HttpFault::default())));
static GRPC_STATS: Fixed = Fixed::new(|| entry(&grpc_stats()));
static GRPC_WEB: Fixed =
    Fixed::new(|| entry(&http_filter("envoy.filters.http.grpc_web", &GrpcWeb::default())));
static ISTIO_ALPN: Fixed = Fixed::new(|| entry(&alpn()));
static QUIET_ROUTER: Fixed = Fixed::new(|| entry(&router(true)));
static ROUTER: Fixed = Fixed::new(|| entry(&router(false)));
/// Asks nobody: routes to InferencePools say whom to ask.
static ENDPOINT_PICKER: Fixed = Fixed::new(|| entry(&inference::filter()));
/// Empty: routes of services with sessions say more.
static SESSIONS: Fixed =
    Fixed::new(|| entry(&http_filter("envoy.filters.http.stateful_session", &StatefulSession::default())));

fn entry(filter: &HttpFilter) -> Encoded<HttpConnectionManager> {
    let mut manager = ProtoWriter::default();
    manager.message(http_connection_manager::HTTP_FILTERS, filter);
    manager.finish()
}

/// A chain of filters, encoded as it is put together.
struct Chain<'a>(&'a mut ProtoWriter<HttpConnectionManager>);

impl Chain<'_> {
    fn add(&mut self, filter: &Fixed) {
        self.0.append(&**filter);
    }

    fn extend(&mut self, filters: impl IntoIterator<Item = HttpFilter>) {
        for filter in filters {
            self.0.message(http_connection_manager::HTTP_FILTERS, &filter);
        }
    }
}

/// Adds the filters of a connection manager to its encoded fields.
///
/// What policies add stands between the exchange of peer metadata and the protocol filters, in this order: CUSTOM
/// authorization, extensions of the phase AUTHN, token authentication, extensions of AUTHZ, authorization, extensions of
/// STATS and of no phase, inference. Waypoints have the last of them after the protocol filters.
pub(super) fn write(fields: &mut ProtoWriter<HttpConnectionManager>, env: &Env<'_>, manager: &Traits) {
    let class = manager.class;
    let is_waypoint = env.audience.role.kind == NodeKind::Waypoint;
    let mut filters = Chain(fields);
    if is_waypoint {
        filters.extend(client_identity(env));
    } else if !manager.tunnelled {
        filters.extend(peer_metadata::http(env, class, manager.peer_headers_in_mesh_only));
    }
    let extensions = Placed::http(env, class, manager.port);
    filters.extend(authorization::on_requests(env, Stage::Custom, class, manager.tunnelled));
    filters.extend(extensions.http_filters(&[Phase::Authn]));
    filters.extend(jwt::filter(env, class));
    filters.extend(extensions.http_filters(&[Phase::Authz]));
    filters.extend(authorization::on_requests(env, Stage::Own, class, manager.tunnelled));
    let last = extensions.http_filters(&[Phase::Stats, Phase::Unspecified]);
    if is_waypoint {
        add_protocol_filters(&mut filters, env, manager);
        filters.extend(forward_proxies(env, manager));
        filters.extend(last);
        filters.extend(peer_metadata::waypoint_upstream(env));
        filters.extend(metrics::http(env, class));
    } else {
        filters.extend(last);
        if env.audience.http.asks_endpoint_pickers {
            filters.add(&ENDPOINT_PICKER);
        }
        add_protocol_filters(&mut filters, env, manager);
        filters.extend(metrics::http(env, class));
        if class != Class::Inbound && env.flag(PILOT_ENABLE_PERSISTENT_SESSION_FILTER) {
            filters.add(&SESSIONS);
        }
        filters.extend(forward_proxies(env, manager));
    }
    filters.add(if manager.suppress_debug_headers { &QUIET_ROUTER } else { &ROUTER });
}

/// Adds the filters that every manager has, whatever policies there are.
fn add_protocol_filters(filters: &mut Chain<'_>, env: &Env<'_>, manager: &Traits) {
    // Parity: services that share a port share a manager, so the port's first service decides.
    if manager.grpc_web {
        filters.add(&GRPC_WEB);
    }
    filters.add(&GRPC_STATS);
    if manager.class != Class::Inbound && offers_mesh_alpn(env) {
        filters.add(&ISTIO_ALPN);
    }
    filters.add(&FAULT);
    filters.add(&CORS);
}

/// Whether a waypoint tells the servers who the client is, as the header of client certificates would.
pub(crate) fn tells_client_identity(env: &Env<'_>) -> bool {
    env.audience.http.tells_client_identity
}

/// Tells the server who the client is. The client's certificate was seen where the tunnel ended; what a request says about
/// it is not to be trusted and is replaced.
fn client_identity(env: &Env<'_>) -> Option<HttpFilter> {
    let who =
        "By=%FILTER_STATE(io.istio.local_principal:PLAIN)%;URI=%FILTER_STATE(io.istio.peer_principal:PLAIN)%";
    let header = HeaderValueOption {
        header: Some(HeaderValue {
            key: "x-forwarded-client-cert".into(),
            value: who.into(),
            ..Default::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
        ..Default::default()
    };
    let mutation = Mutation { action: Some(header_mutation::Action::Append(header)) };
    let mutations = Mutations { request_mutations: vec![mutation], ..Default::default() };
    let config = HeaderMutation { mutations: Some(mutations), ..Default::default() };
    tells_client_identity(env).then(|| http_filter("istio.waypoint.xfcc_client_identity", &config))
}

/// Notes the status of gRPC calls for telemetry.
pub(crate) fn grpc_stats() -> HttpFilter {
    let config = GrpcStats {
        emit_filter_state: true,
        per_method_stat_specifier: Some(PerMethodStatSpecifier::StatsForAllMethods(false.into())),
        ..Default::default()
    };
    http_filter("envoy.filters.http.grpc_stats", &config)
}

/// Sends requests on; last of all filters.
pub(crate) fn router(suppress_envoy_headers: bool) -> HttpFilter {
    http_filter("envoy.filters.http.router", &Router { suppress_envoy_headers, ..Default::default() })
}

/// Whether a proxy offers Istio's ALPN names: Istio's own does.
fn offers_mesh_alpn(env: &Env<'_>) -> bool {
    env.flag(PILOT_ENABLE_ALPN_FILTER) && env.audience.build.has(&Alpn::full_name())
}

/// Offers Istio's ALPN names to the upstream, so that a mesh peer recognises the caller.
fn alpn() -> HttpFilter {
    let overriding = |protocol: Upstream, names: [&str; 3]| AlpnOverride {
        upstream_protocol: protocol as i32,
        alpn_override: names.map(str::to_owned).to_vec(),
    };
    let config = Alpn {
        alpn_override: vec![
            overriding(Upstream::Http10, ["istio-http/1.0", "istio", "http/1.0"]),
            overriding(Upstream::Http11, ["istio-http/1.1", "istio", "http/1.1"]),
            overriding(Upstream::Http2, ["istio-h2", "istio", "h2"]),
        ],
    };
    http_filter("istio.alpn", &config)
}

/// Filters that resolve the host of a request themselves.
fn forward_proxies(env: &Env<'_>, manager: &Traits) -> Vec<HttpFilter> {
    let mut caches = Vec::new();
    if let Some(host) = &manager.resolved_below {
        caches.push(dns_cache::host_cache(&env.settings.flags, &env.audience.addressing, host));
    }
    let is_sidecar = env.audience.role.kind == NodeKind::Sidecar && manager.class == Class::Outbound;
    if is_sidecar && dns_cache::resolves_unknown_hosts(NodeKind::Sidecar, &env.audience.outbound_policy) {
        let ListenerAudience { addressing, resolver, .. } = &**env.audience;
        caches.push(dns_cache::unknown_hosts_cache(&env.settings.flags, addressing, resolver));
    }
    caches.into_iter().map(dynamic_forward_proxy).collect()
}

fn dynamic_forward_proxy(cache: DnsCacheConfig) -> HttpFilter {
    let config = DynamicForwardProxy {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache)),
        ..Default::default()
    };
    http_filter("envoy.filters.http.dynamic_forward_proxy", &config)
}
