//! How TLS of mesh clients ends at a sidecar.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use canopus_mesh::peer_authentication::{PeerPolicy, WorkloadPolicy};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{CommonTlsContext, DownstreamTlsContext};
use canopus_proto::google::protobuf::BoolValue;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as MeshProtocol;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::{Message, Name};
use canopus_runtime::flags::{PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE};

use crate::env::Env;
use crate::pieces::Pieces;
use crate::tls::{self, ClientChecks, OwnCertificate};

/// The fields of the context of a server, and of what it has in common with that of a client.
mod field {
    pub(super) const COMMON: u32 = 1;
    pub(super) const REQUIRE_CLIENT_CERTIFICATE: u32 = 2;
    pub(super) const ALPN_PROTOCOLS: u32 = 4;
}

/// Room for what is in a socket besides what all have in common.
const USUAL_REST: usize = 192;

/// What sidecars accept unless the mesh says otherwise.
const CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

const HTTP: &[&str] = &["h2", "http/1.1"];
const TCP: &[&str] = &["istio-peer-exchange", "h2", "http/1.1"];

/// What a workload does about mutual TLS, and the sockets at which that of mesh clients ends.
pub(super) struct Mutual<'a> {
    env: &'a Env<'a>,
    pub(super) policy: Arc<PeerPolicy>,
    /// What the sockets have in common.
    common: OnceCell<Vec<u8>>,
    of_requests: OnceCell<Bytes>,
    of_connections: OnceCell<Bytes>,
}

impl<'a> Mutual<'a> {
    pub(super) fn new(env: &'a Env<'a>) -> Self {
        let peers = env.audience.peers.clone().unwrap_or_default();
        Self {
            env,
            policy: env.ctx.get::<WorkloadPolicy>(&(env.audience.caller.namespace.clone(), peers)),
            common: OnceCell::new(),
            of_requests: OnceCell::new(),
            of_connections: OnceCell::new(),
        }
    }

    /// The socket of chains for requests, or of those for streams of bytes.
    pub(super) fn socket(&self, http: bool) -> Bytes {
        let made = if http { &self.of_requests } else { &self.of_connections };
        made.get_or_init(|| self.offering(self.offered(http))).clone()
    }

    fn offered(&self, http: bool) -> &'static [&'static str] {
        let exchanges =
            self.env.flag(PILOT_ENABLE_METADATA_EXCHANGE) && !self.env.flag(PILOT_DISABLE_MX_ALPN);
        if !http && exchanges { TCP } else { HTTP }
    }

    fn offering(&self, protocols: &[&str]) -> Bytes {
        let common = self.common.get_or_init(|| common_context(self.env).encode_to_vec());
        let mut socket = Pieces::with_capacity(common.len() + USUAL_REST);
        tls::write_socket(&mut socket, tls::SOCKET, &DownstreamTlsContext::type_url(), |context| {
            context.nested(field::COMMON, |fields| {
                fields.append(common);
                protocols.iter().for_each(|name| fields.body(field::ALPN_PROTOCOLS, name.as_bytes()));
            });
            context.message(field::REQUIRE_CLIENT_CERTIFICATE, &BoolValue::from(true));
        });
        socket.into_vec().into()
    }
}

/// All of the context but the protocols that are offered.
fn common_context(env: &Env<'_>) -> CommonTlsContext {
    let of_mesh = env.mesh().mesh_m_tls.as_ref();
    let minimum = match of_mesh.map(TlsConfig::min_protocol_version) {
        Some(MeshProtocol::Tlsv13) => TlsProtocol::TlSv13,
        _ => TlsProtocol::TlSv12,
    };
    let ciphers = of_mesh.map(|tls| tls.cipher_suites.clone()).filter(|ciphers| !ciphers.is_empty());
    let mut parameters = tls::versions(minimum, TlsProtocol::TlSv13);
    parameters.cipher_suites = ciphers.unwrap_or_else(|| CIPHERS.map(str::to_owned).to_vec());
    let mut common = CommonTlsContext { tls_params: Some(parameters), ..Default::default() };
    let trust_domains = tls::trust_domains(&env.settings);
    let clients = ClientChecks { trust_domains: &trust_domains, ..Default::default() };
    let options = OwnCertificate { clients: Some(clients), ..Default::default() };
    tls::with_own_certificate(&mut common, &env.audience.certificates, &options);
    tls::enforce_compliance(&env.settings.flags, &mut common);
    common
}

/// The socket at which TLS of any clients ends, because a Sidecar says so.
pub(super) fn of_sidecar(env: &Env<'_>, settings: &ServerTlsSettings) -> Bytes {
    tls::socket(tls::SOCKET, &tls::terminating(env, settings, HTTP, true)).encode_to_vec().into()
}
