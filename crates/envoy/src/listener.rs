//! Listeners (LDS).

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::gateway::{BoundServer, Merged};
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::{
    Address, SocketAddress, TrafficDirection, address, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::resource::Resource;

use crate::http;
use crate::resources::Resources;

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
        let merged = ctx.get::<Merged>(&view);
        let listeners =
            merged.ports.iter().filter_map(|(port, servers)| gateway_listener(&view, *port, servers));
        listeners
            .map(|listener| Resource::encode(listener.name.as_str(), &listener))
            .collect::<Vec<_>>()
            .into()
    }
}

/// Plain HTTP servers of one port share a listener and a route table.
fn gateway_listener(view: &View, port: u32, servers: &[BoundServer]) -> Option<Listener> {
    if !servers.first()?.protocol().is_http() {
        return None;
    }
    let name = format!("{ANY_ADDRESS}_{port}");
    let manager =
        http::gateway_connection_manager(view, &format!("outbound_{name}"), &gateway_route_name(port));
    Some(Listener {
        address: Some(socket_address(ANY_ADDRESS, port)),
        filter_chains: vec![FilterChain {
            filters: vec![Filter {
                name: "envoy.filters.network.http_connection_manager".into(),
                config_type: Some(ConfigType::TypedConfig(Any::pack(&manager))),
            }],
            transport_socket_connect_timeout: Some(Duration::from_secs(GATEWAY_HANDSHAKE_SECONDS)),
            ..Default::default()
        }],
        traffic_direction: TrafficDirection::Outbound as i32,
        max_connections_to_accept_per_socket_event: Some(1.into()),
        name,
        ..Default::default()
    })
}

/// The route table of a gateway's plain HTTP port.
pub(crate) fn gateway_route_name(port: u32) -> String {
    format!("http.{port}")
}

fn socket_address(address: &str, port: u32) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: address.into(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}
