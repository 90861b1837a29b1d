//! The server's side of TLS: which certificate it shows and what it asks of its clients.

use canopus_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SdsSecretConfig,
};
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::{TlSmode as Mode, TlsCertificate};

use super::{
    CA_SUFFIX, Credentials, ROOTS_SECRET, WORKLOAD_SECRET, checking_names, exact, file_secret,
    identity_prefix, key_pair_name, prefix, roots_name, validation,
};
use crate::audience::Certificates;

/// What a server shows that has files, or nothing but its workload's certificate.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnCertificate<'a> {
    /// Files to use instead of those the proxy was told of.
    pub(crate) certificates: &'a [TlsCertificate],
    /// What clients are asked; nothing if `None`.
    pub(crate) clients: Option<ClientChecks<'a>>,
}

/// What is asked of a client's certificate.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClientChecks<'a> {
    /// Names of which it must have one.
    pub(crate) subject_alt_names: &'a [String],
    /// Trust domains of which it must be.
    pub(crate) trust_domains: &'a [String],
    /// File of revoked certificates.
    pub(crate) revoked: &'a str,
    /// Whether it need not be from a known authority.
    pub(crate) accept_untrusted: bool,
}

impl ClientChecks<'_> {
    fn defaults(&self) -> CertificateValidationContext {
        let mut names = exact(self.subject_alt_names);
        names.extend(prefix(self.trust_domains.iter().map(|domain| identity_prefix(domain))));
        CertificateValidationContext {
            crl: revoked_in(self.revoked),
            trust_chain_verification: trust(self.accept_untrusted) as i32,
            ..checking_names(names)
        }
    }
}

/// A file of revoked certificates.
pub(crate) fn revoked_in(file: &str) -> Option<DataSource> {
    let source =
        || DataSource { specifier: Some(Specifier::Filename(file.to_owned())), ..Default::default() };
    (!file.is_empty()).then(source)
}

fn trust(accept_untrusted: bool) -> TrustChainVerification {
    if accept_untrusted {
        TrustChainVerification::AcceptUntrusted
    } else {
        TrustChainVerification::VerifyTrustChain
    }
}

/// Completes the context of a server that shows files, or else its workload's certificate.
pub(crate) fn with_own_certificate(
    context: &mut CommonTlsContext,
    files: &Certificates,
    options: &OwnCertificate<'_>,
) {
    let own_server = files.file_socket;
    let secret = |file: Option<String>, fallback: &str| match file {
        Some(file) => file_secret(&file, own_server),
        None => file_secret(fallback, false),
    };
    let key_pair = |certificate: &str, key: &str| secret(key_pair_name(certificate, key), WORKLOAD_SECRET);
    context.tls_certificate_sds_secret_configs = if options.certificates.is_empty() {
        vec![key_pair(&files.server.certificate, &files.server.key)]
    } else {
        let files = options.certificates.iter();
        files.map(|file| key_pair(&file.server_certificate, &file.private_key)).collect()
    };
    if let Some(checks) = &options.clients {
        let roots = secret(roots_name(&files.server.roots), ROOTS_SECRET);
        context.validation_context_type = Some(validation(checks.defaults(), Some(roots)));
    }
}

/// Completes the context of a server that shows named credentials.
pub(crate) fn with_credentials(
    context: &mut CommonTlsContext,
    settings: &ServerTlsSettings,
    credentials: &Credentials,
) {
    let names = match settings.credential_names.as_slice() {
        [] => std::slice::from_ref(&settings.credential_name),
        names => names,
    };
    let secret = |name: &String| -> Option<SdsSecretConfig> { credentials.secret(name) };
    context.tls_certificate_sds_secret_configs = names.iter().filter_map(secret).collect();
    context.validation_context_type = match settings.mode() {
        Mode::Mutual | Mode::OptionalMutual => {
            let authority = match settings.ca_cert_credential_name.as_str() {
                // All certificates share one authority: that of the first.
                "" => format!("{}{CA_SUFFIX}", names[0]),
                name => name.to_owned(),
            };
            let untrusted = settings.insecure_skip_verify.as_ref().is_some_and(|skip| skip.value);
            let defaults = CertificateValidationContext {
                verify_certificate_spki: settings.verify_certificate_spki.clone(),
                verify_certificate_hash: settings.verify_certificate_hash.clone(),
                trust_chain_verification: trust(untrusted) as i32,
                ..checking_names(exact(&settings.subject_alt_names))
            };
            Some(validation(defaults, credentials.secret(&authority)))
        }
        _ if !settings.subject_alt_names.is_empty() => {
            Some(ValidationContextType::ValidationContext(checking_names(exact(&settings.subject_alt_names))))
        }
        _ => return,
    };
}
