//! Listeners (LDS).

pub(crate) mod address;

use canopus_api::node::NodeKind;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::gateway::{Merged, PortServers};
use canopus_mesh::proxy::{Proxy, ViewOf};
use canopus_proto::envoy::config::core::v3::{Http1ProtocolOptions, TrafficDirection};
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, SetCurrentClientCertDetails,
};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::resource::Resource;

use crate::env::{Class, Env};
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes};
use crate::resources::Resources;

use self::address::socket_address;

const ANY_ADDRESS: &str = "0.0.0.0";

/// How long a client may take to finish its TLS handshake with a gateway.
const GATEWAY_HANDSHAKE_SECONDS: i64 = 15;

/// Every listener of a proxy.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "listeners";
    type Key = Proxy;
    type Value = Resources;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Resources {
        let view = ctx.get::<ViewOf>(proxy);
        if view.kind != NodeKind::Router {
            return Resources::new();
        }
        let env = Env::new(ctx, &view);
        let merged = ctx.get::<Merged>(&view);
        let listeners = merged.ports.iter().filter_map(|servers| gateway_listener(&env, servers));
        listeners
            .map(|listener| Resource::encode(listener.name.as_str(), &listener))
            .collect::<Vec<_>>()
            .into()
    }
}

/// Plain HTTP servers of one port share a listener and a route table.
fn gateway_listener(env: &Env<'_>, servers: &PortServers) -> Option<Listener> {
    if !Protocol::parse(&servers.port.protocol).is_http() {
        return None;
    }
    let port = servers.port.number;
    let name = format!("{ANY_ADDRESS}_{port}");
    let routes = Routes::Named(servers.route_name.clone());
    let manager = Manager::new(Class::Gateway, format!("outbound_{name}"), routes);
    let mut manager = ProxyHeaders::new(env, Class::Gateway).on(manager);
    manager.use_remote_address = true;
    manager.base.http_protocol_options = Some(Http1ProtocolOptions::default());
    manager.base.forward_client_cert_details = ForwardClientCertDetails::SanitizeSet as i32;
    manager.base.set_current_client_cert_details = Some(SetCurrentClientCertDetails {
        subject: Some(true.into()),
        cert: true,
        dns: true,
        uri: true,
        ..Default::default()
    });
    Some(Listener {
        address: Some(socket_address(ANY_ADDRESS, port)),
        filter_chains: vec![FilterChain {
            filters: vec![manager.filter(env)],
            transport_socket_connect_timeout: Some(Duration::from_secs(GATEWAY_HANDSHAKE_SECONDS)),
            ..Default::default()
        }],
        traffic_direction: TrafficDirection::Outbound as i32,
        max_connections_to_accept_per_socket_event: Some(1.into()),
        name,
        ..Default::default()
    })
}
