//! What an authority signs with and hands out: a signing certificate and its key, the chain above it, the roots, a CRL.
//!
//! A bundle exists only if it works. [`Bundle::new`] issues a certificate under it and verifies that against the roots with
//! the verifier that TLS uses, so a wrong key, a missing intermediate, an exceeded path length or an expired root is an error
//! here and never a failed handshake later.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use zeroize::Zeroizing;

use crate::certificate::{Certificate, CertificateError};
use crate::issue::{IssueError, Leaf, Signer};
use crate::key::{KeyError, SigningKey};
use crate::pem::PemError;
use crate::revocation::RevocationLists;

/// The PEM texts a bundle is made of.
#[derive(Clone, Default)]
pub struct Parts {
    /// The signing certificate; what follows it in the text is ignored.
    pub certificate: Vec<u8>,
    /// Private key of the certificate.
    pub key: Zeroizing<Vec<u8>>,
    /// The certificates between leaves and roots, the signing one first; empty where that is a root itself.
    pub chain: Vec<u8>,
    /// The roots that are handed out.
    pub roots: Vec<u8>,
    /// Revocation lists; empty if there are none.
    pub crl: Vec<u8>,
}

/// Why parts do not make a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A certificate cannot be read.
    #[error("{part}: {error}")]
    Certificate {
        /// Which part it is in.
        part: &'static str,
        /// What is wrong.
        error: CertificateError,
    },
    /// The bundle has no roots.
    #[error(
        "root certificates: there is no certificate in it; add the root that the signing certificate leads to"
    )]
    NoRoots,
    /// The key cannot be used.
    #[error("private key: {0}")]
    Key(#[from] KeyError),
    /// The signing certificate cannot sign.
    #[error("signing certificate: {0}")]
    Issue(#[from] IssueError),
    /// A certificate is not valid now.
    #[error(
        "{part}: {subject:?} is valid from {from} to {to} (seconds since 1970), and it is {now}; renew it"
    )]
    Time {
        /// Which part it is in.
        part: &'static str,
        /// Subject of the certificate.
        subject: String,
        /// When it becomes valid.
        from: u64,
        /// When it expires.
        to: u64,
        /// When that was found.
        now: u64,
    },
    /// What is issued would not verify.
    #[error(
        "cannot verify the cert with the provided root chain and cert pool with error: {0}; the chain must lead from the \
         signing certificate to one of the roots"
    )]
    Chain(String),
    /// A revocation list cannot be used.
    #[error("revocation list: {0}")]
    Crl(String),
}

impl From<PemError> for BundleError {
    fn from(error: PemError) -> Self {
        Self::Chain(error.to_string())
    }
}

/// A working set of signing certificate, key, chain and roots.
#[derive(Debug)]
pub struct Bundle {
    signer: Arc<Signer>,
    chain: Vec<Certificate>,
    chain_pem: Vec<String>,
    roots: Vec<Certificate>,
    roots_pem: String,
    revocations: RevocationLists,
    crl_pem: Option<String>,
}

impl Bundle {
    /// Reads the parts and checks that certificates issued under them verify at this time.
    pub fn new(parts: &Parts, now: UnixTime) -> Result<Self, BundleError> {
        let read = |part, text: &[u8]| {
            Certificate::all_from_pem(text).map_err(|error| BundleError::Certificate { part, error })
        };
        let certificate = Certificate::from_pem(&parts.certificate)
            .map_err(|error| BundleError::Certificate { part: "signing certificate", error })?;
        let signer = Signer::new(certificate, SigningKey::from_pem(&parts.key)?)?;
        let (chain, roots) =
            (read("certificate chain", &parts.chain)?, read("root certificates", &parts.roots)?);
        if roots.is_empty() {
            return Err(BundleError::NoRoots);
        }
        let revocations = read_lists(&parts.crl)?;
        let bundle = Self {
            chain_pem: chain.iter().map(Certificate::to_pem).collect::<Result<_, _>>()?,
            roots_pem: roots.iter().map(Certificate::to_pem).collect::<Result<_, _>>()?,
            crl_pem: pem_of(&revocations, &parts.crl),
            revocations,
            signer: Arc::new(signer),
            chain,
            roots,
        };
        bundle.check(now)?;
        Ok(bundle)
    }

    /// The same with other revocation lists, which everything else stays in force beside.
    pub fn with_revocations(&self, crl: &[u8]) -> Result<Self, BundleError> {
        let revocations = read_lists(crl)?;
        let bundle = Self {
            signer: Arc::clone(&self.signer),
            chain: self.chain.clone(),
            chain_pem: self.chain_pem.clone(),
            roots: self.roots.clone(),
            roots_pem: self.roots_pem.clone(),
            crl_pem: pem_of(&revocations, crl),
            revocations,
        };
        bundle.check_revocations()?;
        Ok(bundle)
    }

    /// The signing certificate and key.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The certificates between leaves and roots.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The same as PEM, one text each.
    pub fn chain_pem(&self) -> &[String] {
        &self.chain_pem
    }

    /// The roots.
    pub fn roots(&self) -> &[Certificate] {
        &self.roots
    }

    /// The roots as one PEM text.
    pub fn roots_pem(&self) -> &str {
        &self.roots_pem
    }

    /// The revocation lists.
    pub fn revocations(&self) -> &RevocationLists {
        &self.revocations
    }

    /// The same as one PEM text, if there are any.
    pub fn crl_pem(&self) -> Option<&str> {
        self.crl_pem.as_deref()
    }

    /// Whether the roots of one bundle are among those of the other: roots were added, or taken away, but not exchanged.
    pub fn roots_overlap(&self, other: &Self) -> bool {
        let set = |bundle: &'_ Self| -> BTreeSet<String> {
            bundle.roots.iter().map(Certificate::fingerprint).collect()
        };
        let (ours, theirs) = (set(self), set(other));
        ours.is_subset(&theirs) || theirs.is_subset(&ours)
    }

    /// Whether both sign and hand out the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.signer.certificate() == other.signer.certificate()
            && (&self.chain_pem, &self.roots_pem, &self.crl_pem)
                == (&other.chain_pem, &other.roots_pem, &other.crl_pem)
    }

    fn check(&self, now: UnixTime) -> Result<(), BundleError> {
        let timely = |part, certificate: &Certificate| {
            if certificate.is_valid_at(now) {
                return Ok(());
            }
            Err(BundleError::Time {
                part,
                subject: certificate.subject_text(),
                from: certificate.not_before().as_secs(),
                to: certificate.not_after().as_secs(),
                now: now.as_secs(),
            })
        };
        timely("signing certificate", self.signer.certificate())?;
        if let Some(first) = self.chain.first() {
            timely("certificate chain", first)?;
        }
        let probe = self.signer.issue(&Leaf {
            public_key: self.signer.key().public_key(),
            names: &[],
            has_common_name: false,
            not_before: now,
            not_after: UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_secs() + 60)),
        })?;
        // Trust anchors have no time to the verifier, but a root that has expired helps nobody.
        let roots = self.roots.iter().filter(|root| root.is_valid_at(now)).map(Certificate::der);
        let signing = [self.signer.certificate().der().clone()];
        let chain = self.chain.iter().map(|certificate| certificate.der().clone());
        let intermediates: Vec<_> = chain.chain(signing).collect();
        verify(&probe, &intermediates, roots, now).map_err(|error| BundleError::Chain(error.to_string()))?;
        self.check_revocations()
    }

    /// Envoy refuses every certificate of a chain for which some authority has a list and another has none, or has one that
    /// it may not sign. So all have one, or none has.
    fn check_revocations(&self) -> Result<(), BundleError> {
        if self.revocations.is_empty() {
            return Ok(());
        }
        let refused = |reason: String| Err(BundleError::Crl(reason));
        let names = |certificates: &[&Certificate]| -> Vec<String> {
            certificates.iter().map(|certificate| certificate.subject_text()).collect()
        };
        let between: Vec<&Certificate> = self.chain.iter().chain([self.signer.certificate()]).collect();
        let issues_one = |root: &&Certificate| between.iter().any(|one| one.is_signed_by(root));
        let mut authorities: Vec<&Certificate> = Vec::new();
        for authority in between.iter().copied().chain(self.roots.iter().filter(issues_one)) {
            if !authorities.contains(&authority) {
                authorities.push(authority);
            }
        }
        let has_list =
            |authority: &Certificate| self.revocations.iter().any(|list| list.is_signed_by(authority));
        let missing: Vec<&Certificate> =
            authorities.iter().copied().filter(|authority| !has_list(authority)).collect();
        if !missing.is_empty() {
            let names = names(&missing);
            return refused(format!(
                "missing CRL signed by certificates: {names:?}; add one for each, or for none"
            ));
        }
        if let Some(unable) = authorities.iter().find(|authority| !authority.may_revoke()) {
            let subject = unable.subject_text();
            return refused(format!(
                "{subject:?} may not sign revocation lists: its key usage lacks cRLSign, and proxies would refuse every \
                 certificate under it; plug in a certificate that may, or no lists"
            ));
        }
        let revoked: Vec<&Certificate> =
            authorities.into_iter().filter(|authority| self.revocations.contain(authority)).collect();
        if revoked.is_empty() {
            return Ok(());
        }
        let names = names(&revoked);
        refused(format!("the authority's own certificates are revoked: {names:?}; plug in others"))
    }
}

fn read_lists(crl: &[u8]) -> Result<RevocationLists, BundleError> {
    RevocationLists::from_pem(crl).map_err(|error| BundleError::Crl(error.to_string()))
}

/// The text of lists; none if there are none, since a file that was emptied withdraws them.
fn pem_of(revocations: &RevocationLists, crl: &[u8]) -> Option<String> {
    (!revocations.is_empty()).then(|| String::from_utf8_lossy(crl).into_owned())
}

/// Verifies a client or server certificate against roots.
///
/// The library takes roots at their word; Envoy does not. A root whose path length the intermediates exceed is therefore no
/// root for this chain.
pub fn verify<'a>(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: impl Iterator<Item = &'a CertificateDer<'static>>,
    now: UnixTime,
) -> Result<(), webpki::Error> {
    let intermediates = issuing(intermediates);
    // Chains may repeat a certificate, which makes them no longer.
    let distinct: BTreeSet<&[u8]> =
        intermediates.iter().filter(|one| is_intermediate(one)).map(AsRef::as_ref).collect();
    let between = distinct.len();
    let allows = |root: &&CertificateDer<'static>| {
        let length = Certificate::from_der((*root).clone()).ok().and_then(|root| root.path_length());
        length.is_none_or(|length| between <= usize::from(length))
    };
    let anchors: Vec<_> =
        roots.filter(allows).filter_map(|root| anchor_from_trusted_cert(root).ok()).collect();
    let leaf = EndEntityCert::try_from(leaf)?;
    let usage = KeyUsage::client_auth();
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &intermediates, now, usage, None, None)?;
    Ok(())
}

/// The certificates of a chain that may sign others. The library asks their basic constraints alone and not the usage of their
/// keys, as OpenSSL and Go do.
pub fn issuing<'a>(chain: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    let may_sign = |one: &&CertificateDer<'a>| {
        Certificate::from_der((*one).clone().into_owned()).is_ok_and(|read| read.is_authority())
    };
    chain.iter().filter(may_sign).cloned().collect()
}

/// Whether a certificate counts towards the length of a path: those that name themselves as their issuer do not.
fn is_intermediate(certificate: &CertificateDer<'_>) -> bool {
    Certificate::from_der(certificate.clone().into_owned()).is_ok_and(|one| !one.is_self_issued())
}
