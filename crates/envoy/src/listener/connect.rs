//! HBONE: tunnels of HTTP CONNECT between the workloads of an ambient mesh, opened and ended by proxies.

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::substitution_format_string::Format;
use canopus_proto::envoy::config::core::v3::{
    DataSource, HeaderValue, HeaderValueOption, Http2ProtocolOptions, KeepaliveSettings,
    SubstitutionFormatString, TypedExtensionConfig, data_source::Specifier,
};
use canopus_proto::envoy::config::listener::v3::listener::{InternalListenerConfig, ListenerSpecifier};
use canopus_proto::envoy::config::listener::v3::{Listener, ListenerFilter};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::upgrade_config::ConnectConfig;
use canopus_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, UpgradeConfig};
use canopus_proto::envoy::config::route::v3::route_match::{ConnectMatcher, PathSpecifier};
use canopus_proto::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use canopus_proto::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use canopus_proto::envoy::extensions::filters::common::set_filter_state::v3::filter_state_value::{
    Key, SharedWithUpstream, Value,
};
use canopus_proto::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    RouteSpecifier, SetCurrentClientCertDetails, UpgradeConfig as Upgrade,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use canopus_proto::envoy::extensions::filters::network::set_filter_state::v3::Config as SetConnectionState;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::TunnelingConfig;
use canopus_proto::envoy::extensions::formatter::cel::v3::Cel;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::resource::Resource;
use canopus_proto::Any;
use canopus_proto::wire::Encoded;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_BAGGAGE, AMBIENT_ENABLE_MULTI_NETWORK, PILOT_ENABLE_SENDING_HBONE,
};

use super::draft::{Draft, FilterChain};
use super::inspect;
use super::outbound::exact_balance;
use crate::address;
use crate::audience::{ListenerAudience, Shared};
use crate::authorization;
use crate::cluster::hbone::tunnel_context;
use crate::env::{Class, Env};
use crate::filter::{Filters, http_filter};
use crate::http::filters;
use crate::http::headers::ProxyHeaders;
use crate::network::{self, tcp};
use crate::telemetry::{access_log, peer_metadata};
use crate::tls;
use crate::tunnel::{CONNECT_ORIGINATE, FORWARD_INNER, INNER_ORIGINATE, MAIN_INTERNAL, OUTER_ORIGINATE};

/// The port tunnels come in on.
const PORT: u32 = 15008;
const TERMINATE: &str = "connect_terminate";
const CONNECT: &str = "CONNECT";

/// Where filter state says where a connection was made to.
const LOCAL_ADDRESS: &str = "envoy.filters.listener.original_dst.local_ip";
/// Where it says what the request asked for that opened a tunnel.
pub(super) const AUTHORITY: &str = "io.istio.connect_authority";
/// Where it says what sort of proxy opened a tunnel.
pub(super) const REQUEST_SOURCE: &str = "io.istio.source";
/// Where it says where the inner of two tunnels leads.
const DOUBLE_TARGET: &str = "istio.double_hbone.hbone_target_address";

/// All streams of a tunnel are handled by one worker, so there must not be too many.
const MAX_STREAMS: u32 = 100;
/// Clients that went away without a word are noticed this way.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether sidecars and gateways open tunnels.
pub(super) fn is_originated(ctx: &Ctx<'_>) -> bool {
    settings(ctx).flags.get(PILOT_ENABLE_SENDING_HBONE)
}

/// The internal listener that puts connections into a tunnel.
pub(super) struct Originated;

impl Query for Originated {
    const NAME: &'static str = "connect_originate_listener";
    type Key = Shared<ListenerAudience>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> Self::Value {
        let env = Env::new(ctx, audience);
        let class = if audience.role.kind == NodeKind::Router { Class::Gateway } else { Class::Outbound };
        vec![originate(&env, class)]
    }
}

/// The listener that puts connections into a tunnel to the address they were made to.
pub(super) fn originate(env: &Env<'_>, class: Class) -> Resource {
    let tunnel = TunnelingConfig { hostname: "%DOWNSTREAM_LOCAL_ADDRESS%".into(), ..Default::default() };
    let mut filters = Filters::default();
    peer_metadata::answered_baggage(&mut filters, env);
    tcp::tunnel(&mut filters, env, class, CONNECT_ORIGINATE, telling_baggage(env, tunnel));
    forwarding(env, class, CONNECT_ORIGINATE, vec![inspect::original_destination()], filters)
}

/// The listener by which a gateway between networks passes inner tunnels on.
pub(super) fn forward_inner(env: &Env<'_>) -> Resource {
    let mut filters = Filters::default();
    tcp::forward(&mut filters, env, Class::Inbound, FORWARD_INNER);
    forwarding(env, Class::Inbound, FORWARD_INNER, vec![inspect::original_destination()], filters)
}

/// The listeners that put connections into a tunnel within a tunnel, to what is in another network. Endpoints say in their
/// metadata where the inner one leads; the outer one learns it from the inner one.
pub(crate) fn originate_double(env: &Env<'_>) -> [Resource; 2] {
    let class = Class::Inbound;
    let target = format!("%FILTER_STATE({DOUBLE_TARGET}:PLAIN)%");
    let network = header("x-forwarded-network", &env.audience.network);
    let inner =
        TunnelingConfig { hostname: target.clone(), headers_to_add: vec![network], ..Default::default() };
    let mut filters = Filters::default();
    endpoint_metadata(&mut filters, env);
    peer_metadata::answered_baggage(&mut filters, env);
    tcp::tunnel(&mut filters, env, class, INNER_ORIGINATE, telling_baggage(env, inner));
    let inner = forwarding(env, class, INNER_ORIGINATE, Vec::new(), filters);

    let source = match env.audience.role.kind {
        NodeKind::Router => Some("gateway"),
        NodeKind::Waypoint => Some("waypoint"),
        NodeKind::Sidecar => Some("sidecar"),
        _ => None,
    };
    let outer = TunnelingConfig {
        hostname: target,
        // A gateway between networks has to know whether policies about requests were applied already.
        headers_to_add: source.map(|source| header("x-istio-source", source)).into_iter().collect(),
        ..Default::default()
    };
    let mut filters = Filters::default();
    tcp::tunnel(&mut filters, env, class, OUTER_ORIGINATE, outer);
    let outer = forwarding(env, class, OUTER_ORIGINATE, vec![inspect::original_destination()], filters);
    [inner, outer]
}

/// An internal listener with one chain.
fn forwarding(
    env: &Env<'_>,
    class: Class,
    name: &str,
    listener_filters: Vec<ListenerFilter>,
    filters: Filters,
) -> Resource {
    let mut draft = Draft::new(Listener {
        name: name.into(),
        use_original_dst: Some(false.into()),
        listener_filters,
        access_log: access_log::listener(env, class),
        ..internal()
    });
    draft.add(&FilterChain::default(), &filters);
    draft.encode()
}

/// A tunnel whose ends tell each other about their workloads, where that is asked for.
fn telling_baggage(env: &Env<'_>, mut tunnel: TunnelingConfig) -> TunnelingConfig {
    if env.flag(AMBIENT_ENABLE_BAGGAGE) {
        tunnel.propagate_response_headers = true;
        tunnel.headers_to_add.push(header("baggage", "%FILTER_STATE(io.istio.baggage:PLAIN)%"));
    }
    tunnel
}

fn header(key: &str, value: &str) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.into(), value: value.into(), ..Default::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
        ..Default::default()
    }
}

/// Notes what the metadata of an endpoint in another network says, for the tunnels to it.
fn endpoint_metadata(filters: &mut Filters, env: &Env<'_>) {
    let noted = |key: &str, value: &str, factory: &str| {
        let shared = SharedWithUpstream::Transitive as i32;
        FilterStateValue { shared_with_upstream: shared, ..noted(key, value, factory) }
    };
    let config = SetConnectionState {
        on_new_connection: vec![
            noted(LOCAL_ADDRESS, "%DYNAMIC_METADATA(envoy.filters.listener.original_dst:local)%", ""),
            noted(
                DOUBLE_TARGET,
                "%DYNAMIC_METADATA(istio:double_hbone:hbone_target_address)%",
                network::hashable_string(env.audience),
            ),
        ],
        ..Default::default()
    };
    filters.add("propagate_endpoint_metadata", &config);
}

/// Keeps where a connection was made to, for the tunnel it goes into.
pub(super) fn connection_authority(filters: &mut Filters) {
    let kept = noted(LOCAL_ADDRESS, &format!("%FILTER_STATE({LOCAL_ADDRESS}:PLAIN)%"), "");
    let config = SetConnectionState { on_new_connection: vec![kept], ..Default::default() };
    filters.add("connect_authority", &config);
}

/// Forwards to the original destination, or to `address` if none was recorded.
pub(super) fn destination_or(filters: &mut Filters, address: &str) {
    let cel = TypedExtensionConfig {
        name: "envoy.formatter.cel".into(),
        typed_config: Some(Any::pack(&Cel::default())),
    };
    let expression =
        format!("%CEL('{LOCAL_ADDRESS}' in filter_state ? filter_state['{LOCAL_ADDRESS}']: r'{address}')%");
    let value = SubstitutionFormatString { formatters: vec![cel], ..text(&expression) };
    let chosen = FilterStateValue {
        key: Some(Key::ObjectKey("envoy.network.transport_socket.original_dst_address".into())),
        value: Some(Value::FormatString(value)),
        ..Default::default()
    };
    let config = SetConnectionState { on_new_connection: vec![chosen], ..Default::default() };
    filters.add("set_dst_address", &config);
}

/// A listener that only other listeners lead to.
pub(super) fn internal() -> Listener {
    let specifier = ListenerSpecifier::InternalListener(InternalListenerConfig::default());
    Listener { listener_specifier: Some(specifier), ..Default::default() }
}

/// The listener at which tunnels end; what comes out of them goes to the main internal listener.
pub(super) fn terminate(env: &Env<'_>) -> Resource {
    let addresses = address::wildcards(&env.audience.addressing);
    let context = DownstreamTlsContext {
        common_tls_context: Some(tunnel_context(&env.settings, &env.audience.certificates)),
        require_client_certificate: Some(true.into()),
        ..Default::default()
    };
    let mut draft = Draft::new(Listener {
        name: TERMINATE.into(),
        address: Some(address::bind(&addresses[0], PORT)),
        additional_addresses: address::additional(&addresses[1..], PORT),
        // There are few tunnels, and each is long-lived and carries much.
        connection_balance_config: Some(exact_balance()),
        access_log: access_log::listener(env, Class::Inbound),
        ..Default::default()
    });
    let mut filters = Filters::default();
    filters.add("envoy.filters.network.http_connection_manager", &manager(env));
    let socket = Some(Encoded::new(&tls::socket("tls", &context)));
    draft.add(&FilterChain { name: "default", socket, ..Default::default() }, &filters);
    draft.encode()
}

fn manager(env: &Env<'_>) -> HttpConnectionManager {
    let headers = ProxyHeaders::new(env, Class::Inbound);
    HttpConnectionManager {
        stat_prefix: TERMINATE.into(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes())),
        forward_client_cert_details: headers.forwarded_client_cert as i32,
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            subject: Some(true.into()),
            uri: true,
            dns: true,
            ..Default::default()
        }),
        server_name: headers.server_name,
        server_header_transformation: headers.server_transformation as i32,
        generate_request_id: headers.generate_request_id.map(Into::into),
        use_remote_address: Some(false.into()),
        access_log: access_log::tunnel_end(env, Class::Inbound),
        stream_idle_timeout: Some(Duration::from_secs(0)),
        upgrade_configs: vec![Upgrade { upgrade_type: CONNECT.into(), ..Default::default() }],
        http2_protocol_options: Some(Http2ProtocolOptions {
            allow_connect: true,
            max_concurrent_streams: Some(MAX_STREAMS.into()),
            connection_keepalive: Some(KeepaliveSettings {
                interval: Some(KEEPALIVE_INTERVAL),
                timeout: Some(KEEPALIVE_TIMEOUT),
                ..Default::default()
            }),
            ..Default::default()
        }),
        http_filters: authorization::on_tunnels(env)
            .into_iter()
            .chain(peer_metadata::tunnelled(env))
            .chain([connect_authority(env)])
            .chain(request_source(env))
            .chain([filters::router(headers.suppress_debug)])
            .collect(),
        ..Default::default()
    }
}

fn routes() -> RouteConfiguration {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(MAIN_INTERNAL.into())),
        upgrade_configs: vec![UpgradeConfig {
            upgrade_type: CONNECT.into(),
            connect_config: Some(ConnectConfig::default()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let route = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::ConnectMatcher(ConnectMatcher {})),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    };
    RouteConfiguration {
        name: "default".into(),
        virtual_hosts: vec![VirtualHost {
            name: "default".into(),
            domains: vec!["*".into()],
            routes: vec![route],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Notes where a tunnel leads and between whom, for the connections that come out of it.
fn connect_authority(env: &Env<'_>) -> HttpFilter {
    let hashable = network::hashable_string(env.audience);
    let config = SetFilterState {
        on_request_headers: vec![
            noted(LOCAL_ADDRESS, "%REQ(:AUTHORITY)%", ""),
            noted(AUTHORITY, "%REQ(:AUTHORITY)%", hashable),
            noted("envoy.filters.listener.original_dst.remote_ip", "%DOWNSTREAM_REMOTE_ADDRESS%", ""),
            noted("io.istio.peer_principal", "%DOWNSTREAM_PEER_URI_SAN%", hashable),
            noted("io.istio.local_principal", "%DOWNSTREAM_LOCAL_URI_SAN%", hashable),
        ],
        ..Default::default()
    };
    http_filter("connect_authority", &config)
}

/// Notes what sort of proxy opened a tunnel; for gateways between networks.
fn request_source(env: &Env<'_>) -> Option<HttpFilter> {
    let wanted = env.flag(AMBIENT_ENABLE_MULTI_NETWORK) && env.audience.role.is_east_west_gateway;
    let source = noted(REQUEST_SOURCE, "%REQ(x-istio-source)%", network::hashable_string(env.audience));
    let config = SetFilterState { on_request_headers: vec![source], ..Default::default() };
    wanted.then(|| http_filter("request_source", &config))
}

/// A text in filter state, for what is next on the way of a connection.
fn noted(key: &str, value: &str, factory: &str) -> FilterStateValue {
    FilterStateValue {
        key: Some(Key::ObjectKey(key.into())),
        value: Some(Value::FormatString(text(value))),
        factory_key: factory.into(),
        shared_with_upstream: SharedWithUpstream::Once as i32,
        ..Default::default()
    }
}

fn text(format: &str) -> SubstitutionFormatString {
    let source = DataSource { specifier: Some(Specifier::InlineString(format.into())), ..Default::default() };
    SubstitutionFormatString { format: Some(Format::TextFormatSource(source)), ..Default::default() }
}
