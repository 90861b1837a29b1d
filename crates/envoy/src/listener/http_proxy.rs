//! The forward proxy for applications that are told to use one.

use canopus_base::protocol::Protocol;
use canopus_mesh::service::Port;
use canopus_proto::resource::Resource;

use super::chain::{Chain, Content, Http};
use super::outbound::{Binding, Entry, build};
use crate::address;
use crate::env::Env;

/// The port to listen on, if the mesh or the proxy wants a forward proxy.
pub(super) fn port(env: &Env<'_>) -> Option<u32> {
    let of_proxy = env.audience.sockets.http_proxy_port;
    of_proxy.or_else(|| u32::try_from(env.mesh().proxy_http_port).ok()).filter(|port| *port > 0)
}

/// The listener, if the mesh or the proxy wants one.
pub(super) fn listener(env: &Env<'_>) -> Option<Resource> {
    let port = port(env)?;
    let binding = Binding { addresses: address::loopbacks(&env.audience.addressing), to_port: true };
    let http = Http {
        table: "http_proxy".into(),
        protocol: Protocol::HttpProxy,
        service: None,
        forward_proxy: true,
    };
    let port = Port { number: port, name: "".into(), protocol: Protocol::HttpProxy };
    Some(build(env, &Entry::new(binding, port, vec![Chain::new(Content::Http(http))]), &[]))
}
