//! How TLS of mesh clients ends at a sidecar.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::peer_authentication::{PeerPolicy, WorkloadPolicy};
use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{CommonTlsContext, DownstreamTlsContext};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as MeshProtocol;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_runtime::flags::{PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE};

use crate::env::Env;
use crate::tls::{self, ClientChecks, OwnCertificate};

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

/// What the workload does about mutual TLS.
pub(super) fn policy(env: &Env<'_>) -> Arc<PeerPolicy> {
    env.ctx.get::<WorkloadPolicy>(&(env.view.namespace.clone(), env.view.labels.clone()))
}

/// The socket at which mutual TLS of mesh clients ends.
pub(super) fn mutual(env: &Env<'_>, http: bool) -> TransportSocket {
    env.ctx.get::<MutualSocket>(&(env.view.clone(), http)).as_ref().clone()
}

/// [`mutual`] of a view, for chains of requests or of connections.
struct MutualSocket;

impl Query for MutualSocket {
    const NAME: &'static str = "mutual_tls_socket";
    type Key = (View, bool);
    type Value = TransportSocket;

    fn run(ctx: &Ctx<'_>, (view, http): &Self::Key) -> TransportSocket {
        mutual_socket(&Env::new(ctx, view), *http)
    }
}

fn mutual_socket(env: &Env<'_>, http: bool) -> TransportSocket {
    let exchanges = env.flag(PILOT_ENABLE_METADATA_EXCHANGE) && !env.flag(PILOT_DISABLE_MX_ALPN);
    let offered = if !http && exchanges { TCP } else { HTTP };
    let of_mesh = env.mesh().mesh_m_tls.as_ref();
    let minimum = match of_mesh.map(TlsConfig::min_protocol_version) {
        Some(MeshProtocol::Tlsv13) => TlsProtocol::TlSv13,
        _ => TlsProtocol::TlSv12,
    };
    let ciphers = of_mesh.map(|tls| tls.cipher_suites.clone()).filter(|ciphers| !ciphers.is_empty());
    let mut parameters = tls::versions(minimum, TlsProtocol::TlSv13);
    parameters.cipher_suites = ciphers.unwrap_or_else(|| CIPHERS.map(str::to_owned).to_vec());
    let mut common = CommonTlsContext {
        alpn_protocols: tls::alpn::list(offered),
        tls_params: Some(parameters),
        ..Default::default()
    };
    let trust_domains = tls::trust_domains(&env.settings);
    let clients = ClientChecks { trust_domains: &trust_domains, ..Default::default() };
    let options = OwnCertificate { clients: Some(clients), ..Default::default() };
    tls::with_own_certificate(&mut common, &env.view.metadata, &options);
    tls::enforce_compliance(&env.settings.flags, &mut common);
    let context = DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(true.into()),
        ..Default::default()
    };
    tls::socket(tls::SOCKET, &context)
}

/// The socket at which TLS of any clients ends, because a Sidecar says so.
pub(super) fn of_sidecar(env: &Env<'_>, settings: &ServerTlsSettings) -> TransportSocket {
    tls::socket(tls::SOCKET, &tls::terminating(env, settings, HTTP, true))
}
