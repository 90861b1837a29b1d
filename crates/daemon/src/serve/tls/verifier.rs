//! Verification of client certificates.

use std::sync::Arc;

use canopus_base::spiffe::Identity;
use canopus_controllers::trust::DistributedRoots;
use canopus_engine::Engine;
use canopus_identity::bundle::issuing;
use canopus_identity::certificate::Certificate;
use canopus_identity::revocation::RevocationLists;
use canopus_mesh::world::Settings;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use tracing::{debug, warn};
use webpki::EndEntityCert;

use super::MaterialError;
use crate::trust_anchors::listed_roots;

/// Verifies the chain of a certificate as usual, and that it names one identity of a trusted domain.
#[derive(Debug)]
pub(super) struct SpiffeVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    revocations: RevocationLists,
    trust: Trust,
}

/// The trust domains of the mesh, as it is configured at the time.
struct Trust(Engine);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

/// Why a certificate does not count though its chain does.
#[derive(Debug, thiserror::Error)]
enum Unacceptable {
    #[error("the certificate names {0} identities, where one is expected")]
    Count(usize),
    #[error("{0} is not the identity of a workload")]
    Format(String),
    #[error("trust domain {0} is not trusted")]
    Domain(Box<str>),
}

impl SpiffeVerifier {
    pub(super) fn new(
        roots: &[CertificateDer<'static>],
        revocations: RevocationLists,
        engine: Engine,
    ) -> Result<Self, MaterialError> {
        Ok(Self { chain: chain_verifier(roots)?, revocations, trust: Trust(engine) })
    }

    /// Whether a list names a certificate of the chain. Parity: no, istiod hands lists out and does not look at them; whoever
    /// lost a certificate could renew it here for ever.
    fn is_revoked(&self, certificate: &CertificateDer<'_>) -> bool {
        let read = || Certificate::from_der(certificate.clone().into_owned());
        !self.revocations.is_empty() && read().is_ok_and(|read| self.revocations.contain(&read))
    }
}

/// Verifies chains that lead to one of these roots.
fn chain_verifier(roots: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, MaterialError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone()).map_err(|error| MaterialError::Roots(error.to_string()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| MaterialError::Roots(error.to_string()))
}

impl Trust {
    /// Verifies with the roots beside the authority's own that count for the domain of a certificate, if there are any. For the
    /// mesh's own domain they stand beside the authority's roots; for others they stand alone, so that a root of one domain
    /// cannot speak for another.
    fn listed(&self, certificate: &CertificateDer<'_>) -> Result<Option<Arc<dyn ClientCertVerifier>>, Error> {
        let named = identities(certificate);
        let identity = named.first().and_then(|uri| uri.parse::<Identity>().ok());
        let Some(domain) = identity.map(|identity| identity.trust_domain) else { return Ok(None) };
        let listed = listed_roots(&self.0, &domain);
        if listed.is_empty() {
            return Ok(None);
        }
        let settings = self.0.read::<Settings>(&()).unwrap_or_default();
        let own = if settings.trust_domain() == &*domain {
            let roots = self.0.read::<DistributedRoots>(&());
            roots.map(|roots| roots.roots.to_string()).unwrap_or_default()
        } else {
            String::new()
        };
        let text = [listed.concat(), own].concat();
        let roots: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).flatten().collect();
        let built = chain_verifier(&roots).map_err(|error| Error::General(error.to_string()))?;
        Ok(Some(built))
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Unacceptable> {
        let named = identities(certificate);
        let [uri] = named.as_slice() else { return Err(Unacceptable::Count(named.len())) };
        // What ends a text somewhere, or cannot be seen, makes one name look like another.
        let parsed = uri.parse::<Identity>().ok().filter(|_| uri.bytes().all(|byte| byte.is_ascii_graphic()));
        let identity = parsed.ok_or_else(|| Unacceptable::Format(uri.escape_debug().to_string()))?;
        let trusted = self.0.read::<Settings>(&()).is_some_and(|settings| {
            let aliases = settings.mesh.trust_domain_aliases.iter().map(String::as_str);
            aliases.chain([settings.trust_domain()]).any(|domain| domain == &*identity.trust_domain)
        });
        if trusted { Ok(()) } else { Err(Unacceptable::Domain(identity.trust_domain)) }
    }
}

/// The URIs a certificate names.
pub(super) fn identities(certificate: &CertificateDer<'_>) -> Vec<String> {
    let read = EndEntityCert::try_from(certificate);
    read.map(|certificate| certificate.valid_uri_names().map(str::to_owned).collect()).unwrap_or_default()
}

impl ClientCertVerifier for SpiffeVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Names no authorities: which ones count follows the mesh configuration, and a client that picks its certificate by the
    /// hints would withhold one of an authority that is listed later.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let above = issuing(intermediates);
        let verified = match self.trust.listed(end_entity)? {
            Some(listed) => listed.verify_client_cert(end_entity, &above, now)?,
            None => self.chain.verify_client_cert(end_entity, &above, now)?,
        };
        if let Some(revoked) = [end_entity].into_iter().chain(intermediates).find(|one| self.is_revoked(one))
        {
            warn!(identities = ?identities(end_entity), is_own = revoked == end_entity, "a client certificate is revoked");
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        if let Err(reason) = self.trust.check(end_entity) {
            debug!(%reason, "a client certificate does not count");
            // Parity: the one error of the library that is told to the client as a bad certificate.
            return Err(Error::InvalidCertificate(CertificateError::NotValidForName));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
