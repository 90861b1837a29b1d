//! HBONE: tunnels of HTTP CONNECT between the workloads of an ambient mesh, opened and ended by proxies.

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::core::v3::substitution_format_string::Format;
use canopus_proto::envoy::config::core::v3::{
    DataSource, Http2ProtocolOptions, KeepaliveSettings, SubstitutionFormatString, data_source::Specifier,
};
use canopus_proto::envoy::config::listener::v3::listener::{InternalListenerConfig, ListenerSpecifier};
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
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
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::PILOT_ENABLE_SENDING_HBONE;

use super::outbound::exact_balance;
use super::{address, inspect};
use crate::cluster::hbone::{CONNECT_ORIGINATE, MAIN_INTERNAL, tunnel_context};
use crate::env::{Class, Env};
use crate::http::filters;
use crate::http::headers::ProxyHeaders;
use crate::network::{self, tcp};
use crate::telemetry::{access_log, peer_metadata};
use crate::tls;

/// The port tunnels come in on.
const PORT: u32 = 15008;
const TERMINATE: &str = "connect_terminate";
const CONNECT: &str = "CONNECT";

/// All streams of a tunnel are handled by one worker, so there must not be too many.
const MAX_STREAMS: u32 = 100;
/// Clients that went away without a word are noticed this way.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The internal listener that puts connections into a tunnel; none if proxies do not open any.
pub(super) struct Originated;

impl Query for Originated {
    const NAME: &'static str = "connect_originate_listener";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let env = Env::new(ctx, view);
        let wanted = env.flag(PILOT_ENABLE_SENDING_HBONE);
        wanted.then(|| Resource::encode(CONNECT_ORIGINATE, &originate(&env))).into_iter().collect()
    }
}

fn originate(env: &Env<'_>) -> Listener {
    let class = if env.view.kind == NodeKind::Router { Class::Gateway } else { Class::Outbound };
    Listener {
        name: CONNECT_ORIGINATE.into(),
        use_original_dst: Some(false.into()),
        listener_filters: vec![inspect::original_destination()],
        filter_chains: vec![FilterChain {
            filters: vec![tcp::tunnel(env, class, CONNECT_ORIGINATE)],
            ..Default::default()
        }],
        access_log: access_log::listener(env, class),
        ..internal()
    }
}

/// A listener that only other listeners lead to.
pub(super) fn internal() -> Listener {
    let specifier = ListenerSpecifier::InternalListener(InternalListenerConfig::default());
    Listener { listener_specifier: Some(specifier), ..Default::default() }
}

/// The listener at which tunnels end; what comes out of them goes to the main internal listener.
pub(super) fn terminate(env: &Env<'_>) -> Listener {
    let addresses = address::wildcards(env.view);
    let context = DownstreamTlsContext {
        common_tls_context: Some(tunnel_context(&env.settings, &env.view.metadata)),
        require_client_certificate: Some(true.into()),
        ..Default::default()
    };
    Listener {
        name: TERMINATE.into(),
        address: Some(address::bind(&addresses[0], PORT)),
        additional_addresses: address::additional(&addresses[1..], PORT),
        filter_chains: vec![FilterChain {
            name: "default".into(),
            transport_socket: Some(tls::socket("tls", &context)),
            filters: vec![manager(env)],
            ..Default::default()
        }],
        // There are few tunnels, and each is long-lived and carries much.
        connection_balance_config: Some(exact_balance()),
        access_log: access_log::listener(env, Class::Inbound),
        ..Default::default()
    }
}

fn manager(env: &Env<'_>) -> Filter {
    let headers = ProxyHeaders::new(env, Class::Inbound);
    let manager = HttpConnectionManager {
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
        generate_request_id: headers.generate_request_id,
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
        http_filters: peer_metadata::tunnelled(env)
            .into_iter()
            .chain([connect_authority(env), filters::router(headers.suppress_debug)])
            .collect(),
        ..Default::default()
    };
    network::filter("envoy.filters.network.http_connection_manager", &manager)
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
    let hashable = network::hashable_string(env.view);
    let noted = |key: &str, value: &str, factory: &str| FilterStateValue {
        key: Some(Key::ObjectKey(key.into())),
        value: Some(Value::FormatString(text(value))),
        factory_key: factory.into(),
        shared_with_upstream: SharedWithUpstream::Once as i32,
        ..Default::default()
    };
    let config = SetFilterState {
        on_request_headers: vec![
            noted("envoy.filters.listener.original_dst.local_ip", "%REQ(:AUTHORITY)%", ""),
            noted("io.istio.connect_authority", "%REQ(:AUTHORITY)%", hashable),
            noted("envoy.filters.listener.original_dst.remote_ip", "%DOWNSTREAM_REMOTE_ADDRESS%", ""),
            noted("io.istio.peer_principal", "%DOWNSTREAM_PEER_URI_SAN%", hashable),
            noted("io.istio.local_principal", "%DOWNSTREAM_LOCAL_URI_SAN%", hashable),
        ],
        ..Default::default()
    };
    filters::filter("connect_authority", &config)
}

fn text(format: &str) -> SubstitutionFormatString {
    let source = DataSource { specifier: Some(Specifier::InlineString(format.into())), ..Default::default() };
    SubstitutionFormatString { format: Some(Format::TextFormatSource(source)), ..Default::default() }
}
