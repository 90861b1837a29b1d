//! A certificate for the TLS ports from a signer of the cluster (`PILOT_CERT_PROVIDER=k8s.io/…`).

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_engine::Engine;
use canopus_identity::certificate::Certificate;
use canopus_identity::csr;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::self_signed::renewal;
use canopus_sources::kubernetes::Cluster;
use rcgen::CertificateParams;
use rustls::pki_types::UnixTime;

use super::super::tls::Material;
use crate::certificate_authority::signing_requests::{SigningRequest, have_signed};
use crate::trust_anchors::signers;

/// The root of the cluster, where pods have it.
const CLUSTER_ROOT: &str = "./var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The share of its life, in percent, before the end of which a certificate is replaced.
const GRACE_PERCENT: u32 = 20;

/// Signs the certificate of the server's ports.
#[derive(Clone)]
pub(crate) struct PortSigner {
    pub(crate) cluster: Cluster,
    /// The full name of the signer.
    pub(crate) signer: String,
    pub(crate) engine: Engine,
    /// How long certificates are to live. Parity: as long as a self-signed root.
    pub(crate) lifetime: Duration,
}

/// What a signer gave.
pub(super) struct Signed {
    pub(super) material: Material,
    /// What verifies it, as PEM.
    pub(super) roots: String,
    /// When another one is wanted.
    pub(super) renewal: UnixTime,
}

impl PortSigner {
    /// A certificate for these names, with a new key.
    pub(super) async fn obtain(&self, names: &[String]) -> Result<Signed> {
        let signer = &self.signer;
        let key = SigningKey::generate(KeyKind::Rsa(2048))?;
        let request = csr::write(&CertificateParams::new(names)?, &key)?;
        let wanted = SigningRequest {
            name: "csr-istiod-",
            pem: &request,
            signer,
            seconds: i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX),
            usages: &["digital signature", "key encipherment", "server auth"],
            vouching: "approved by the control plane of the mesh, for its own TLS ports",
        };
        let chain = have_signed(&self.cluster, &wanted).await.map_err(anyhow::Error::msg);
        let chain = chain.with_context(|| format!("signer {signer}"))?;
        let certificates = Certificate::all_from_pem(&chain).with_context(|| format!("signer {signer}"))?;
        let leaf = certificates.first().with_context(|| format!("signer {signer}: no certificate"))?;
        ensure!(leaf.public_key() == key.public_key(), "signer {signer}: the certificate is for another key");
        let has = |name: &String| leaf.dns_names().contains(name);
        ensure!(
            names.iter().all(has),
            "signer {signer}: the certificate lacks names: it has {:?}",
            leaf.dns_names()
        );
        let roots = self.roots(&certificates)?;
        let key = key.to_pem()?;
        Ok(Signed {
            material: Material::from_pem(&chain, key.as_bytes(), roots.as_bytes())?,
            roots,
            renewal: renewal(leaf.not_before(), leaf.not_after(), GRACE_PERCENT),
        })
    }

    /// The roots of the signer: those that are configured, or the cluster's own, or one in its answer.
    fn roots(&self, chain: &[Certificate]) -> Result<String> {
        let configured = signers::signer_roots(&self.engine, &self.signer).concat();
        if !configured.is_empty() {
            return Ok(configured);
        }
        if let Ok(text) = fs::read_to_string(CLUSTER_ROOT) {
            return Ok(text);
        }
        let own = chain.iter().skip(1).filter(|certificate| certificate.is_self_issued());
        let roots = own.map(Certificate::to_pem).collect::<Result<String, _>>()?;
        ensure!(
            !roots.is_empty(),
            "signer {}: no root is known; mount it, or list it in caCertificates with certSigners",
            self.signer
        );
        Ok(roots)
    }
}

/// How long a refused request waits for the next.
pub(super) const RETRY: Duration = Duration::from_secs(60);
