//! How TLS ends at a gateway.

use canopus_api::gateway_protocol as server_kind;
use canopus_mesh::gateway::BoundServer;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as Mode;
use canopus_runtime::flags::PILOT_DISABLE_MX_ALPN;

use super::listener::Transport;
use crate::env::Env;
use crate::tls;

const HTTP: &[&str] = &["h2", "http/1.1"];
const HTTP3: &[&str] = &["h3"];
/// TCP from workloads of the mesh.
const MESH_TCP: &[&str] = &["istio-peer-exchange", "h2", "http/1.1"];

/// The context of a server at which TLS ends; `None` if it does not.
pub(super) fn context(
    env: &Env<'_>,
    server: &BoundServer,
    transport: Transport,
) -> Option<DownstreamTlsContext> {
    let settings = server.tls().filter(|_| !server_kind::is_passthrough(&server.server))?;
    let offered = offered(env, server, transport);
    Some(tls::terminating(env, settings, offered, transport == Transport::Tcp))
}

fn offered(env: &Env<'_>, server: &BoundServer, transport: Transport) -> &'static [&'static str] {
    let from_mesh = server.tls().is_some_and(|settings| settings.mode() == Mode::IstioMutual);
    match transport {
        Transport::Quic => HTTP3,
        Transport::Tcp
            if from_mesh
                && server_kind::terminates_tcp(&server.server)
                && !env.flag(PILOT_DISABLE_MX_ALPN) =>
        {
            MESH_TCP
        }
        Transport::Tcp => HTTP,
    }
}
