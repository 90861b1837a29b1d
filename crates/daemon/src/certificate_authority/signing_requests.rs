//! CertificateSigningRequests: made for a signer, approved in the control plane's name, and removed once the signer has
//! answered.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_api::{Kind, ObjectKey};
use canopus_sources::kubernetes::{ApiError, Cluster};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

/// How long a signer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first pause between two looks at a request; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What a signer is asked for.
pub(crate) struct SigningRequest<'a> {
    /// What its name begins with.
    pub(crate) name: &'a str,
    /// The certificate signing request, as PEM.
    pub(crate) pem: &'a str,
    /// The full name of the signer.
    pub(crate) signer: &'a str,
    /// How long the certificate is to live; zero and less for as long as the signer likes.
    pub(crate) seconds: i64,
    /// What the key is for.
    pub(crate) usages: &'a [&'a str],
    /// Why it is approved.
    pub(crate) vouching: &'a str,
}

/// Has the cluster's signer sign a request; returns the chain as the signer wrote it.
pub(crate) async fn have_signed(cluster: &Cluster, wanted: &SigningRequest<'_>) -> Result<Vec<u8>, String> {
    let created = cluster.create_object(&key(""), &resource(wanted)).await;
    let created = created.map_err(|error| format!("failed to create CSR: {error}"))?;
    let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    debug!(name, signer = wanted.signer, "a certificate is requested of a signer of the cluster");
    let signed = match approve(cluster, &key(&name), created, wanted.vouching).await {
        Ok(()) => wait(cluster, &key(&name)).await,
        Err(error) => Err(format!("failed to approve CSR request: {error}")),
    };
    if let Err(error) = cluster.delete_object(&key(&name)).await {
        warn!(name, %error, "a CertificateSigningRequest could not be removed");
    }
    signed
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::CertificateSigningRequest, "", name)
}

async fn approve(
    cluster: &Cluster,
    key: &ObjectKey,
    mut created: Value,
    message: &str,
) -> Result<(), ApiError> {
    created["status"]["conditions"] = json!([
        {"type": "Approved", "status": "True", "reason": "MeshWorkload", "message": message},
    ]);
    cluster.replace_object(key, "approval", &created, false).await.map(drop)
}

/// Waits for the certificate.
async fn wait(cluster: &Cluster, key: &ObjectKey) -> Result<Vec<u8>, String> {
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let read = cluster.read_object(key).await.map_err(|error| error.to_string())?;
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

/// The object that asks a signer for a certificate.
fn resource(wanted: &SigningRequest<'_>) -> Value {
    let mut resource = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": wanted.name},
        "spec": {
            "request": BASE64_STANDARD.encode(wanted.pem),
            "signerName": wanted.signer,
            "usages": wanted.usages,
        },
    });
    if wanted.seconds > 0 {
        resource["spec"]["expirationSeconds"] = json!(wanted.seconds);
    }
    resource
}
