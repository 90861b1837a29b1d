//! Certificates and keys: from files, or made here.

use std::sync::Arc;

use canopus_identity::revocation::RevocationLists;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::{NamedGroup, ServerConfig, SupportedProtocolVersion, version};
use zeroize::Zeroizing;

use super::{Compliance, MinVersion, Policy};

/// Why a port cannot have TLS.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// What should be PEM is not.
    #[error("{what} cannot be read: {reason}")]
    Pem {
        /// Which of the texts.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key cannot be used, alone or together.
    #[error("the server certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The roots cannot be used to verify clients.
    #[error("the root certificates cannot be used: {0}")]
    Roots(String),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A cipher suite nobody knows.
    #[error("cipher suite {0:?} is not known or not safe")]
    CipherSuite(String),
}

/// What a server proves itself with, and what it verifies others by.
pub struct Material {
    chain: Vec<CertificateDer<'static>>,
    key: Zeroizing<PrivateKeyDer<'static>>,
    roots: Vec<CertificateDer<'static>>,
    revocations: RevocationLists,
}

impl Material {
    /// What these PEM texts say: a chain that starts with the server's certificate, its key, and roots.
    pub fn from_pem(chain: &[u8], key: &[u8], roots: &[u8]) -> Result<Self, MaterialError> {
        let pem = |what, error: rustls::pki_types::pem::Error| MaterialError::Pem {
            what,
            reason: error.to_string(),
        };
        let certificates = |what: &'static str, text: &[u8]| {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
            read.map_err(|error| pem(what, error))
        };
        let chain = certificates("the certificate chain", chain)?;
        if chain.is_empty() {
            let reason = "there is no certificate in it".to_owned();
            return Err(MaterialError::Pem { what: "the certificate chain", reason });
        }
        Ok(Self {
            chain,
            key: canopus_identity::pem::private_key(key)
                .map_err(|error| MaterialError::Pem { what: "the private key", reason: error.to_string() })?,
            roots: certificates("the root certificates", roots)?,
            revocations: RevocationLists::default(),
        })
    }

    /// The same, with lists of clients' certificates that count no longer.
    #[must_use]
    pub fn with_revocations(self, revocations: RevocationLists) -> Self {
        Self { revocations, ..self }
    }

    /// A certificate for these DNS names by an authority made on the spot, which is forgotten at once: until there is an
    /// authority worth the name, connections are private, and nobody can prove who they are.
    pub fn self_made(names: &[String]) -> Result<Self, MaterialError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "cluster.local");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let mut params = CertificateParams::new(names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &authority)?;
        let key = Zeroizing::new(key.serialize_pem());
        Self::from_pem(leaf.pem().as_bytes(), key.as_bytes(), authority.pem().as_bytes())
    }

    /// The server's own certificate.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    pub(super) fn revocations(&self) -> &RevocationLists {
        &self.revocations
    }

    /// A server with this material.
    pub(super) fn server(
        &self,
        policy: &Policy,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, MaterialError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider(policy)?))
            .with_protocol_versions(versions(policy))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(self.chain.clone(), self.key.clone_key())?;
        // A resumed session would count as proved for as long as its ticket lives, whatever became of the certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn versions(policy: &Policy) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match (policy.compliance, policy.min_version) {
        (Compliance::Fips140Dash2, _) => &ALL[1..],
        (Compliance::PostQuantum, _) | (_, MinVersion::Tls13) => &ALL[..1],
        (_, MinVersion::Tls12) => &ALL,
    }
}

/// Whether a standard allows a cipher suite: AES-GCM alone, where any is asked for.
fn is_allowed(compliance: Compliance, name: &str) -> bool {
    compliance == Compliance::None || name.contains("_AES_") && name.contains("_GCM_")
}

/// The key exchanges that a standard allows.
fn restrict_key_exchange(compliance: Compliance, provider: &mut CryptoProvider) {
    let allowed: &[NamedGroup] = match compliance {
        Compliance::None => return,
        Compliance::Fips140Dash2 => &[NamedGroup::secp256r1],
        Compliance::Fips140Dash3 => &[NamedGroup::secp256r1, NamedGroup::secp384r1],
        Compliance::PostQuantum => &[NamedGroup::X25519MLKEM768],
    };
    provider.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
    provider.kx_groups.retain(|group| allowed.contains(&group.name()));
}

/// The cryptography to use. Parity: names of cipher suites choose among those of TLS 1.2; TLS 1.3 always has all of its own.
fn provider(policy: &Policy) -> Result<CryptoProvider, MaterialError> {
    let mut provider = aws_lc_rs::default_provider();
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    provider.cipher_suites.retain(|suite| is_allowed(policy.compliance, &name(suite)));
    restrict_key_exchange(policy.compliance, &mut provider);
    if policy.cipher_suites.is_empty() {
        return Ok(provider);
    }
    for wanted in &policy.cipher_suites {
        if !provider.cipher_suites.iter().any(|suite| name(suite) == plain(wanted)) {
            return Err(MaterialError::CipherSuite(wanted.clone()));
        }
    }
    provider.cipher_suites.retain(|suite| {
        suite.tls13().is_some() || policy.cipher_suites.iter().any(|wanted| name(suite) == plain(wanted))
    });
    Ok(provider)
}

/// Go knows two suites by an old name as well.
fn plain(name: &str) -> String {
    match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
            format!("{name}_SHA256")
        }
        name if name.starts_with("TLS_AES") || name.starts_with("TLS_CHACHA20") => {
            name.replace("TLS_", "TLS13_")
        }
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_material_can_be_served_with_any_policy() {
        let material = Material::self_made(&["istiod.istio-system.svc".into()]).unwrap();
        material.server(&Policy::default(), None).unwrap();
        let cipher_suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
        material
            .server(&Policy { min_version: MinVersion::Tls13, cipher_suites, ..Policy::default() }, None)
            .unwrap();
    }

    #[test]
    fn standards_restrict_suites_and_key_exchange() {
        let material = Material::self_made(&["localhost".into()]).unwrap();
        let offered = |compliance| {
            let config = material.server(&Policy { compliance, ..Policy::default() }, None).unwrap();
            let provider = config.crypto_provider();
            let suites: Vec<_> =
                provider.cipher_suites.iter().map(|one| format!("{:?}", one.suite())).collect();
            let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
            assert!(
                compliance == Compliance::None || suites.iter().all(|suite| suite.contains("GCM")),
                "{suites:?}"
            );
            groups
        };
        assert_eq!(offered(Compliance::Fips140Dash2), [NamedGroup::secp256r1]);
        assert_eq!(offered(Compliance::Fips140Dash3), [NamedGroup::secp256r1, NamedGroup::secp384r1]);
        assert_eq!(offered(Compliance::PostQuantum), [NamedGroup::X25519MLKEM768]);
        assert!(offered(Compliance::None).len() > 2);
        let versions = |compliance| versions(&Policy { compliance, ..Policy::default() }).to_vec();
        assert_eq!(versions(Compliance::Fips140Dash2), [&version::TLS12]);
        assert_eq!(versions(Compliance::PostQuantum), [&version::TLS13]);
        assert_eq!(versions(Compliance::Fips140Dash3).len(), 2);
    }

    #[test]
    fn sessions_are_not_resumed() {
        let material = Material::self_made(&["localhost".into()]).unwrap();
        let config = material.server(&Policy::default(), None).unwrap();
        assert_eq!(config.send_tls13_tickets, 0);
        assert!(!config.session_storage.can_cache());
        assert!(!config.ticketer.enabled());
    }

    #[test]
    fn cipher_suite_nobody_knows_is_an_error() {
        let policy = Policy { cipher_suites: vec!["TLS_NULL".into()], ..Policy::default() };
        let material = Material::self_made(&["localhost".into()]).unwrap();
        let error = material.server(&policy, None).unwrap_err();
        assert_eq!(error.to_string(), r#"cipher suite "TLS_NULL" is not known or not safe"#);
    }

    #[test]
    fn what_is_no_certificate_is_an_error() {
        let error = Material::from_pem(b"nonsense", b"", b"").err().unwrap();
        assert_eq!(error.to_string(), "the certificate chain cannot be read: there is no certificate in it");
    }
}
