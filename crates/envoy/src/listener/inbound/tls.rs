//! How TLS of mesh clients ends at a sidecar.

use std::cell::OnceCell;
use std::sync::Arc;

use canopus_mesh::peer_authentication::{PeerPolicy, WorkloadPolicy};
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{CommonTlsContext, DownstreamTlsContext};
use canopus_proto::fields::{common_tls_context, downstream_tls_context};
use canopus_proto::google::protobuf::BoolValue;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as MeshProtocol;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::{PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE};

use crate::env::Env;
use crate::tls::{self, ClientChecks, OwnCertificate};

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
    common: OnceCell<Encoded<CommonTlsContext>>,
    http_socket: OnceCell<Encoded<TransportSocket>>,
    tcp_socket: OnceCell<Encoded<TransportSocket>>,
}

impl<'a> Mutual<'a> {
    pub(super) fn new(env: &'a Env<'a>) -> Self {
        let peers = env.audience.peers.clone().unwrap_or_default();
        Self {
            env,
            policy: env.ctx.get::<WorkloadPolicy>(&(env.audience.caller.namespace.clone(), peers)),
            common: OnceCell::new(),
            http_socket: OnceCell::new(),
            tcp_socket: OnceCell::new(),
        }
    }

    /// The socket of chains for requests, or of those for streams of bytes.
    pub(super) fn socket(&self, http: bool) -> Encoded<TransportSocket> {
        let made = if http { &self.http_socket } else { &self.tcp_socket };
        made.get_or_init(|| self.offering(self.offered(http))).clone()
    }

    fn offered(&self, http: bool) -> &'static [&'static str] {
        let exchanges =
            self.env.flag(PILOT_ENABLE_METADATA_EXCHANGE) && !self.env.flag(PILOT_DISABLE_MX_ALPN);
        if !http && exchanges { TCP } else { HTTP }
    }

    fn offering(&self, protocols: &[&str]) -> Encoded<TransportSocket> {
        let common = self.common.get_or_init(|| Encoded::new(&common_context(self.env)));
        let mut socket = ProtoWriter::with_capacity(common.len() + USUAL_REST);
        let write = |context: &mut ProtoWriter<DownstreamTlsContext>| {
            context.nested(downstream_tls_context::COMMON_TLS_CONTEXT, |fields| {
                fields.append(common);
                protocols.iter().for_each(|name| fields.string(common_tls_context::ALPN_PROTOCOLS, name));
            });
            let required = BoolValue::from(true);
            context.message(downstream_tls_context::REQUIRE_CLIENT_CERTIFICATE, &required);
        };
        tls::write_socket(&mut socket, tls::SOCKET, write);
        socket.finish()
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
pub(super) fn sidecar_socket(env: &Env<'_>, settings: &ServerTlsSettings) -> Encoded<TransportSocket> {
    Encoded::new(&tls::socket(tls::SOCKET, &tls::terminating(env, settings, HTTP, true)))
}
