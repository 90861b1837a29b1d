//! What gRPC libraries that speak xDS get: API listeners by host and port, and only what such clients understand.
//!
//! They ask for everything by name: a listener `host:port`, then the route table, clusters and endpoints it leads to.
//! Servers ask for a listener by the address they listen on.

mod cluster;
mod inbound;
mod outbound;
mod route;
mod tls;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::service::{Service, addresses_for};
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource};
use canopus_proto::envoy::config::listener::v3::AdditionalAddress;
use canopus_proto::resource::Resource;

use crate::audience::TableAudience;
use crate::endpoint::address;
use canopus_mesh::audience::Addressing;

/// What the names of servers' listeners begin with; an address follows.
pub const SERVER_LISTENER_PREFIX: &str = "xds.istio.io/grpc/lds/inbound/";

/// The listeners a client means by a name: `host:port`, a host with all its ports, or a server's address.
pub struct Listeners;

impl Query for Listeners {
    const NAME: &'static str = "proxyless_listeners";
    type Key = (Proxy, String);
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (proxy, name): &Self::Key) -> Vec<Resource> {
        let listeners = match name.strip_prefix(SERVER_LISTENER_PREFIX) {
            Some(address) => inbound::listener(ctx, proxy, name, address).into_iter().collect(),
            None => outbound::listeners(ctx, proxy, name),
        };
        listeners.iter().map(|listener| Resource::encode(listener.name.as_str(), listener)).collect()
    }
}

/// A cluster by its name; `None` if it is none of a service the client sees.
pub struct Clusters;

impl Query for Clusters {
    const NAME: &'static str = "proxyless_clusters";
    type Key = (TableAudience, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, name): &Self::Key) -> Option<Resource> {
        cluster::cluster(ctx, &audience.routes.caller, name)
            .map(|cluster| Resource::encode(name.as_str(), &cluster))
    }
}

/// A route table by its name, which is that of a cluster; `None` for other names.
pub struct Routes;

impl Query for Routes {
    const NAME: &'static str = "proxyless_routes";
    type Key = (TableAudience, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, name): &Self::Key) -> Option<Resource> {
        route::table(ctx, &audience.routes, name).map(|table| Resource::new(name.as_str(), table.encode()))
    }
}

/// The addresses of a service besides its first, in a mesh of two IP families.
fn further_addresses(
    ctx: &Ctx<'_>,
    service: &Service,
    addressing: &Addressing,
    port: u32,
) -> Vec<AdditionalAddress> {
    let further = addresses_for(ctx, service, addressing).into_iter().skip(1);
    let with_port =
        |text: String| AdditionalAddress { address: Some(address(&text, port)), ..Default::default() };
    further.map(with_port).collect()
}

/// "Ask me, on this stream." Clients refuse what else Envoys are told here.
fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}
