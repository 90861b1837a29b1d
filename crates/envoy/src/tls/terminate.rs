//! TLS that ends at a proxy because a Gateway or a Sidecar says so.

use canopus_api::validate::tls::is_cipher_suite;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, TlsParameters,
};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::TlsConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::tls_config::TlsProtocol as MeshProtocol;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::{
    TlSmode as Mode, TlsCertificate, TlsProtocol as ServerProtocol,
};

use super::{
    ClientChecks, Credentials, OwnCertificate, alpn, enforce_compliance, with_credentials,
    with_own_certificate,
};
use crate::audience::{CertificateFiles, Certificates};
use crate::env::Env;

/// The context of a server with these settings that offers these protocols.
///
/// `can_ask` tells whether it can ask clients for a certificate, which Envoy cannot over QUIC.
pub(crate) fn context(
    env: &Env<'_>,
    settings: &ServerTlsSettings,
    offered: &[&str],
    can_ask: bool,
) -> DownstreamTlsContext {
    let mode = settings.mode();
    let mut common = CommonTlsContext { alpn_protocols: alpn::list(offered), ..Default::default() };
    let requires = can_ask && matches!(mode, Mode::Mutual | Mode::IstioMutual);
    let checks = requires || mode == Mode::OptionalMutual;
    let named = !settings.credential_names.is_empty() || !settings.credential_name.is_empty();
    if mode == Mode::IstioMutual {
        own_certificate(&mut common, &env.audience.certificates, settings, &[], checks);
    } else if named {
        with_credentials(
            &mut common,
            settings,
            &Credentials::for_server(env.ctx, env.audience.certificates.credential_socket),
        );
    } else {
        let files = Certificates {
            server: CertificateFiles {
                certificate: settings.server_certificate.clone(),
                key: settings.private_key.clone(),
                roots: settings.ca_certificates.clone(),
            },
            file_socket: env.audience.certificates.file_socket,
            ..Default::default()
        };
        own_certificate(&mut common, &files, settings, &settings.tls_certificates, checks);
    }
    if matches!(mode, Mode::Simple | Mode::Mutual | Mode::OptionalMutual) {
        common.tls_params = parameters(env.mesh().tls_defaults.as_ref(), settings);
    }
    enforce_compliance(&env.settings.flags, &mut common);
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(requires.into()),
        ..Default::default()
    }
}

fn own_certificate(
    common: &mut CommonTlsContext,
    files: &Certificates,
    settings: &ServerTlsSettings,
    certificates: &[TlsCertificate],
    checks: bool,
) {
    let clients = checks.then(|| ClientChecks {
        subject_alt_names: &settings.subject_alt_names,
        revoked: &settings.ca_crl,
        accept_untrusted: settings.insecure_skip_verify.is_some_and(|skip| skip.value),
        ..Default::default()
    });
    with_own_certificate(common, files, &OwnCertificate { certificates, clients });
}

/// What the server says about versions, ciphers and curves, else what the mesh does; `None` if neither says anything.
fn parameters(defaults: Option<&TlsConfig>, settings: &ServerTlsSettings) -> Option<TlsParameters> {
    let mut parameters = TlsParameters::default();
    if let Some(defaults) = defaults {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
        match defaults.min_protocol_version() {
            MeshProtocol::TlsAuto => {}
            MeshProtocol::Tlsv13 => parameters.set_tls_minimum_protocol_version(TlsProtocol::TlSv13),
            _ => parameters.set_tls_minimum_protocol_version(TlsProtocol::TlSv12),
        }
    }
    if settings.min_protocol_version() != ServerProtocol::TlsAuto {
        parameters.set_tls_minimum_protocol_version(version(settings.min_protocol_version()));
    }
    if settings.max_protocol_version() != ServerProtocol::TlsAuto {
        parameters.set_tls_maximum_protocol_version(version(settings.max_protocol_version()));
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

fn version(version: ServerProtocol) -> TlsProtocol {
    match version {
        ServerProtocol::TlsAuto => TlsProtocol::TlsAuto,
        ServerProtocol::Tlsv10 => TlsProtocol::TlSv10,
        ServerProtocol::Tlsv11 => TlsProtocol::TlSv11,
        ServerProtocol::Tlsv12 => TlsProtocol::TlSv12,
        ServerProtocol::Tlsv13 => TlsProtocol::TlSv13,
    }
}
