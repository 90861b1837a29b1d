//! How TLS ends at a gateway.

use canopus_api::gateway_protocol as server_kind;
use canopus_api::node::NodeMetadata;
use canopus_api::validate::tls::is_cipher_suite;
use canopus_mesh::gateway::BoundServer;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, TlsParameters,
};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as MeshProtocol;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::{
    TlSmode as Mode, TlsProtocol as ServerProtocol,
};
use canopus_runtime::flags::PILOT_DISABLE_MX_ALPN;

use super::listener::Transport;
use crate::env::Env;
use crate::tls::{self, ClientChecks, Credentials, OwnCertificate};

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
    let mode = settings.mode();
    let mut common = CommonTlsContext {
        alpn_protocols: tls::alpn::list(offered(env, server, transport)),
        ..Default::default()
    };
    // Envoy cannot ask for client certificates over QUIC.
    let requires = transport == Transport::Tcp && matches!(mode, Mode::Mutual | Mode::IstioMutual);
    let checks = requires || mode == Mode::OptionalMutual;
    let named = !settings.credential_names.is_empty() || !settings.credential_name.is_empty();
    if mode == Mode::IstioMutual {
        own_certificate(&mut common, &env.view.metadata, settings, &[], checks);
    } else if named {
        tls::with_credentials(&mut common, settings, &Credentials::of_server(env.ctx, env.view));
    } else {
        let metadata = NodeMetadata {
            tls_server_cert_chain: settings.server_certificate.clone(),
            tls_server_key: settings.private_key.clone(),
            tls_server_root_cert: settings.ca_certificates.clone(),
            raw: env.view.metadata.raw.clone(),
            ..Default::default()
        };
        own_certificate(&mut common, &metadata, settings, &settings.tls_certificates, checks);
    }
    if matches!(mode, Mode::Simple | Mode::Mutual | Mode::OptionalMutual) {
        common.tls_params = parameters(env.mesh().tls_defaults.as_ref(), settings);
    }
    tls::enforce_compliance(&env.settings.flags, &mut common);
    Some(DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(requires.into()),
        ..Default::default()
    })
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

fn own_certificate(
    common: &mut CommonTlsContext,
    metadata: &NodeMetadata,
    settings: &ServerTlsSettings,
    certificates: &[canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlsCertificate],
    checks: bool,
) {
    let clients = checks.then(|| ClientChecks {
        subject_alt_names: &settings.subject_alt_names,
        revoked: &settings.ca_crl,
        accept_untrusted: settings.insecure_skip_verify.is_some_and(|skip| skip.value),
        ..Default::default()
    });
    tls::with_own_certificate(common, metadata, &OwnCertificate { certificates, clients });
}

/// What the server says about versions, ciphers and curves, else what the mesh does; `None` if neither says anything.
fn parameters(defaults: Option<&TlsConfig>, settings: &ServerTlsSettings) -> Option<TlsParameters> {
    let mut parameters = TlsParameters::default();
    if let Some(defaults) = defaults {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
        if defaults.min_protocol_version() != MeshProtocol::TlsAuto {
            parameters.set_tls_minimum_protocol_version(mesh_minimum(defaults.min_protocol_version()));
        }
    }
    if settings.min_protocol_version() != ServerProtocol::TlsAuto {
        parameters.set_tls_minimum_protocol_version(protocol(settings.min_protocol_version()));
    }
    if settings.max_protocol_version() != ServerProtocol::TlsAuto {
        parameters.set_tls_maximum_protocol_version(protocol(settings.max_protocol_version()));
    }
    if !settings.ecdh_curves.is_empty() {
        parameters.ecdh_curves.clone_from(&settings.ecdh_curves);
    }
    let ciphers = known_ciphers(&settings.cipher_suites);
    if !ciphers.is_empty() {
        parameters.cipher_suites = ciphers;
    }
    (parameters != TlsParameters::default()).then_some(parameters)
}

/// Envoy refuses the whole listener for a cipher suite it does not know.
fn known_ciphers(suites: &[String]) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for suite in suites.iter().filter(|suite| is_cipher_suite(suite)) {
        if !known.contains(suite) {
            known.push(suite.clone());
        }
    }
    known
}

fn mesh_minimum(version: MeshProtocol) -> TlsProtocol {
    match version {
        MeshProtocol::Tlsv13 => TlsProtocol::TlSv13,
        _ => TlsProtocol::TlSv12,
    }
}

fn protocol(version: ServerProtocol) -> TlsProtocol {
    match version {
        ServerProtocol::TlsAuto => TlsProtocol::TlsAuto,
        ServerProtocol::Tlsv10 => TlsProtocol::TlSv10,
        ServerProtocol::Tlsv11 => TlsProtocol::TlSv11,
        ServerProtocol::Tlsv12 => TlsProtocol::TlSv12,
        ServerProtocol::Tlsv13 => TlsProtocol::TlSv13,
    }
}
