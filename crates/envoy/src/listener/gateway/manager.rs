//! The HTTP connection managers of gateways.

use canopus_base::protocol::Protocol;
use canopus_mesh::gateway::{BoundServer, PortServers};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::ForwardClientCertDetails;
use canopus_proto::istio::mesh::v1alpha1::ForwardClientCertDetails as Wanted;

use super::listener::Transport;
use crate::env::{Class, Env};
use crate::http::headers::{CertDetails, ProxyHeaders, forwarded_client_cert};
use crate::http::{self, Http1, Manager, Particulars, Routes};

/// The manager of all plain HTTP servers of a port.
pub(super) fn plain<'a>(
    env: &Env<'_>,
    servers: &PortServers,
    protocol: Protocol,
    listener: &str,
) -> Manager<'a> {
    let mut manager = base(env, &servers.route_name, listener);
    manager.protocol = protocol;
    manager.port = servers.port.number;
    manager
}

/// The manager of one HTTPS server.
pub(super) fn terminating<'a>(
    env: &Env<'_>,
    server: &BoundServer,
    (transport, port): (Transport, u32),
    listener: &str,
) -> Manager<'a> {
    let mut manager = base(env, &server.route_name, listener);
    manager.port = port;
    manager.protocol = server.protocol();
    manager.http3 = transport == Transport::Quic;
    if !server.server.name.is_empty() {
        // Parity: a prefix that the user chose has no delimiter after it.
        manager.stat_prefix.clone_from(&server.server.name);
    }
    manager
}

fn base<'a>(env: &Env<'_>, routes: &str, listener: &str) -> Manager<'a> {
    let stat_prefix = format!("outbound_{listener}");
    let mut manager = Manager::new(Class::Gateway, &stat_prefix, Routes::Named(routes.to_owned()));
    manager.use_remote_address = true;
    manager.particulars.http1 =
        Some(Http1 { accepts_http10: http::accepts_http10(env), ..Default::default() });
    trust_clients(env, &mut manager.particulars);
    ProxyHeaders::new(env, Class::Gateway).on(manager)
}

/// How much of what a client says about itself and its proxies is believed and passed on.
fn trust_clients(env: &Env<'_>, manager: &mut Particulars) {
    let topology = env.audience.config.gateway_topology.unwrap_or_default();
    manager.trusted_hops = topology.num_trusted_proxies;
    let forwarded = match topology.forward_client_cert_details() {
        Wanted::Undefined => ForwardClientCertDetails::SanitizeSet,
        wanted => forwarded_client_cert(wanted),
    };
    manager.forwarded_client_cert = forwarded as i32;
    let sets =
        matches!(forwarded, ForwardClientCertDetails::AppendForward | ForwardClientCertDetails::SanitizeSet);
    manager.client_cert_details =
        sets.then_some(CertDetails { subject: true, uri: true, dns: true, cert: true, chain: false });
}
