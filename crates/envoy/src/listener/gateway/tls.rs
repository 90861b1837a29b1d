//! How TLS ends at a gateway.

use std::cell::RefCell;

use canopus_api::gateway_protocol as server_kind;
use canopus_base::FastMap;
use canopus_mesh::gateway::BoundServer;
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as Mode;
use canopus_proto::wire::Encoded;
use canopus_runtime::flags::PILOT_DISABLE_MX_ALPN;

use super::listener::Transport;
use crate::env::Env;
use crate::tls;

const HTTP: &[&str] = &["h2", "http/1.1"];
const HTTP3: &[&str] = &["h3"];
/// TCP from workloads of the mesh.
const MESH_TCP: &[&str] = &["istio-peer-exchange", "h2", "http/1.1"];

/// How TLS ends at a server.
#[derive(Clone)]
pub(super) struct Termination {
    /// The socket that does it, encoded.
    pub(super) socket: Encoded<TransportSocket>,
    /// Whether clients are offered protocols.
    pub(super) offers: bool,
}

/// What decides how TLS ends: the encoded settings, the transport, and the protocols clients are offered.
type Terms = (Vec<u8>, Transport, &'static [&'static str]);

/// The terminations made so far: servers with equal settings share one.
#[derive(Default)]
pub(super) struct Terminations {
    made: RefCell<FastMap<Terms, Termination>>,
}

impl Terminations {
    /// How TLS ends at a server; `None` if it does not.
    pub(super) fn find_or_make(
        &self,
        env: &Env<'_>,
        server: &BoundServer,
        transport: Transport,
    ) -> Option<Termination> {
        let settings = server.tls().filter(|_| !server_kind::is_passthrough(&server.server))?;
        let offered = offered(env, server, transport);
        let mut made = self.made.borrow_mut();
        let known = made.entry((settings.encode_to_vec(), transport, offered));
        Some(known.or_insert_with(|| terminate(env, settings, offered, transport)).clone())
    }
}

fn terminate(
    env: &Env<'_>,
    settings: &ServerTlsSettings,
    offered: &[&str],
    transport: Transport,
) -> Termination {
    let context = tls::terminating(env, settings, offered, transport == Transport::Tcp);
    let common = context.common_tls_context.as_ref();
    let offers = common.is_some_and(|common| !common.alpn_protocols.is_empty());
    let socket = match transport {
        Transport::Tcp => tls::socket(tls::SOCKET, &context),
        Transport::Quic => {
            let quic =
                QuicDownstreamTransport { downstream_tls_context: Some(context), ..Default::default() };
            tls::socket("envoy.transport_sockets.quic", &quic)
        }
    };
    Termination { socket: Encoded::new(&socket), offers }
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
