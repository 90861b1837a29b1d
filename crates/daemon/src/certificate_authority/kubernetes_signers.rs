//! Signing through the Kubernetes CSR API (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`).
//!
//! A request becomes a CertificateSigningRequest for a signer, is approved in the control plane's name, and is removed once
//! the signer has answered. Approving vouches for the names in the request, which is why they are checked first.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::Engine;
use canopus_identity::authority::{Lifetimes, Order, SignError};
use canopus_identity::external::{ExternalAuthority, Signature, check_chain, check_order};
use canopus_runtime::flags::{CERT_SIGNER_DOMAIN, Flags, K8S_SIGNER};
use canopus_sources::kubernetes::{ApiError, Cluster};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::trust_anchors::signers;

/// How long a signer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first pause between two looks at a request; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Hands requests on to signers of a cluster.
pub(super) struct KubernetesSigners {
    cluster: Cluster,
    engine: Engine,
    lifetimes: Lifetimes,
    /// The signer of requests that name none.
    default: String,
    /// What the names of other signers begin with.
    domain: String,
}

impl KubernetesSigners {
    pub(super) fn new(cluster: Cluster, engine: Engine, flags: &Flags) -> Self {
        Self {
            cluster,
            engine,
            lifetimes: super::lifetimes(flags),
            default: flags.get(K8S_SIGNER).to_owned(),
            domain: flags.get(CERT_SIGNER_DOMAIN).to_owned(),
        }
    }

    /// The full name of the signer of an order.
    fn signer(&self, order: &Order) -> Result<String, SignError> {
        match (self.domain.as_str(), order.signer.as_str()) {
            (_, "") if self.default.is_empty() => {
                Err(SignError::External("the request names no signer, and K8S_SIGNER is not set".to_owned()))
            }
            (_, "") => Ok(self.default.clone()),
            ("", signer) => {
                let signer = signer.escape_debug();
                Err(SignError::External(format!("certSignerDomain is required for signer {signer}")))
            }
            (domain, signer) => Ok(format!("{domain}/{signer}")),
        }
    }

    async fn answer(&self, order: &Order, now: UnixTime) -> Result<Vec<String>, SignError> {
        let request = check_order(order, self.lifetimes)?;
        let signer = self.signer(order)?;
        let chain = self.have_signed(order, &signer).await.map_err(SignError::External)?;
        let roots = signers::of_signer(&self.engine, &signer).concat();
        check_chain(&request, &order.identities, &chain, roots.as_bytes(), now)
    }

    /// Has a request signed; the chain as the signer wrote it.
    async fn have_signed(&self, order: &Order, signer: &str) -> Result<Vec<u8>, String> {
        let key = |name: &str| ObjectKey::new(Kind::CertificateSigningRequest, "", name);
        let created = self.cluster.create_object(&key(""), &resource(order, signer)).await;
        let created = created.map_err(|error| format!("failed to create CSR: {error}"))?;
        let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        debug!(name, signer, "a certificate is requested of a signer of the cluster");
        let signed = match self.approve(&key(&name), created).await {
            Ok(()) => self.wait(&key(&name)).await,
            Err(error) => Err(format!("failed to approve CSR request: {error}")),
        };
        if let Err(error) = self.cluster.delete_object(&key(&name)).await {
            warn!(name, %error, "a CertificateSigningRequest could not be removed");
        }
        signed
    }

    async fn approve(&self, key: &ObjectKey, mut created: Value) -> Result<(), ApiError> {
        let message = "approved by the control plane of the mesh, which authenticated the workload";
        created["status"]["conditions"] = json!([
            {"type": "Approved", "status": "True", "reason": "MeshWorkload", "message": message},
        ]);
        self.cluster.replace_object(key, "approval", &created, false).await.map(drop)
    }

    /// Waits for the certificate.
    async fn wait(&self, key: &ObjectKey) -> Result<Vec<u8>, String> {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let read = self.cluster.read_object(key).await.map_err(|error| error.to_string())?;
            let status = read.ok_or_else(|| format!("CSR {} was removed before it was signed", key.name))?;
            let status = &status["status"];
            if let Some(encoded) = status["certificate"].as_str().filter(|text| !text.is_empty()) {
                return BASE64_STANDARD.decode(encoded).map_err(|_| "decoding certificate failed".to_owned());
            }
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ended = conditions.iter().find(|one| one["type"] == "Denied" || one["type"] == "Failed");
            if let Some(ended) = ended {
                let (kind, message) = (&ended["type"], ended["message"].as_str().unwrap_or_default());
                return Err(format!("CSR {}: {kind}: {message}", key.name));
            }
            if start.elapsed() >= PATIENCE {
                return Err(format!("timeout when watching CSR {}", key.name));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The object that asks a signer for a certificate.
fn resource(order: &Order, signer: &str) -> Value {
    let mut resource = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-workload-"},
        "spec": {
            "request": BASE64_STANDARD.encode(&order.request),
            "signerName": signer,
            "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        },
    });
    if order.seconds > 0 {
        resource["spec"]["expirationSeconds"] = json!(order.seconds);
    }
    resource
}

impl ExternalAuthority for KubernetesSigners {
    fn sign<'a>(&'a self, order: &'a Order, now: UnixTime) -> Signature<'a> {
        Box::pin(self.answer(order, now))
    }
}
