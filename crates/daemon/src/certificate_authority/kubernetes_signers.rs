//! Signing through the Kubernetes CSR API (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`).
//!
//! Approving a request vouches for the names in it, which is why they are checked first.

use canopus_engine::Engine;
use canopus_identity::authority::{Lifetimes, Order, SignError};
use canopus_identity::external::{ExternalAuthority, Signature, check_chain, check_order};
use canopus_runtime::flags::{CERT_SIGNER_DOMAIN, Flags, K8S_SIGNER};
use canopus_sources::kubernetes::Cluster;
use rustls::pki_types::UnixTime;

use super::signing_requests::{SigningRequest, have_signed};
use crate::trust_anchors::signers;

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
        let wanted = SigningRequest {
            name: "csr-workload-",
            pem: &order.request,
            signer: &signer,
            seconds: order.seconds,
            usages: &["digital signature", "key encipherment", "server auth", "client auth"],
            vouching: "approved by the control plane of the mesh, which authenticated the workload",
        };
        let chain = have_signed(&self.cluster, &wanted).await.map_err(SignError::External)?;
        let roots = signers::signer_roots(&self.engine, &signer).concat();
        check_chain(&request, &order.identities, &chain, roots.as_bytes(), now)
    }
}

impl ExternalAuthority for KubernetesSigners {
    fn sign<'a>(&'a self, order: &'a Order, now: UnixTime) -> Signature<'a> {
        Box::pin(self.answer(order, now))
    }
}
