//! Secrets with certificates for the DNS names that the mesh configuration lists (`certificates:`).
//!
//! A Secret is issued when it is missing, when its names, the roots or the signer are others than they should be, and when
//! its last fifth has begun. Keys are random, so an issued Secret is kept until the watch shows it: planning again gives
//! the same write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_api::kube::Secret;
use canopus_api::{Kind, Object, ObjectKey};
use canopus_engine::{QueryError, Snapshot};
use canopus_identity::authority::{Authority, server_certificate};
use canopus_identity::bundle::Bundle;
use canopus_identity::certificate::Certificate;
use canopus_identity::self_signed::renewal;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls_pki_types::UnixTime;
use serde_json::json;
use tracing::warn;

use crate::controller::{Change, Controller, Ownership, Plan, Write};

/// The type of these Secrets, by which they are told from those of others.
const TYPE: &str = "istio.io/dns-key-and-cert";

const CERT_CHAIN: &str = "cert-chain.pem";
const KEY: &str = "key.pem";
const ROOT_CERT: &str = "root-cert.pem";

/// How long a certificate lives.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

/// The share of its life, in percent, before the end of which a certificate is replaced.
const GRACE_PERCENT: u32 = 20;

/// How often certificates are looked at though nothing changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// Keeps the Secrets of `certificates:` in the mesh configuration.
pub struct DnsCertificateController {
    authority: Arc<Authority>,
    /// What was issued and has not been seen in the world yet, by the name of the Secret.
    issued: Mutex<BTreeMap<String, Issued>>,
}

struct Issued {
    names: Vec<String>,
    signer: String,
    write: Arc<Write>,
}

impl DnsCertificateController {
    /// Issues under an authority.
    pub fn new(authority: Arc<Authority>) -> Self {
        Self { authority, issued: Mutex::default() }
    }

    /// The write that a Secret needs.
    fn pending(&self, world: &Snapshot, wanted: &Wanted<'_>, now: UnixTime) -> Option<Arc<Write>> {
        let origin = Origin::new(wanted.settings.cluster.clone(), wanted.key());
        let stored = world.read::<Objects>(&origin);
        let secret = stored.as_deref().and_then(Object::get::<Secret>);
        if let Some(secret) = secret {
            if *secret.spec.r#type != *TYPE {
                warn!(
                    secret = %origin.key, found = %secret.spec.r#type,
                    "`certificates` of the mesh configuration names a Secret of another type; it is left alone: choose another name"
                );
                return None;
            }
            if wanted.is_met_by(secret, now) {
                self.issued.lock().remove(wanted.secret);
                return None;
            }
        }
        self.issue(wanted, now)
    }

    fn issue(&self, wanted: &Wanted<'_>, now: UnixTime) -> Option<Arc<Write>> {
        let signer = wanted.bundle.signer().certificate().fingerprint();
        let mut issued = self.issued.lock();
        let known = issued.get(wanted.secret);
        if let Some(known) = known.filter(|known| known.names == wanted.names && known.signer == signer) {
            return Some(Arc::clone(&known.write));
        }
        let made = match server_certificate(wanted.bundle, wanted.names, LIFETIME, now) {
            Ok(made) => made,
            Err(error) => {
                warn!(secret = wanted.secret, %error, "no certificate can be issued for the names of the mesh configuration");
                return None;
            }
        };
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let fields = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": wanted.secret, "namespace": &*wanted.settings.system_namespace},
            "type": TYPE,
            "data": {CERT_CHAIN: encode(&made.chain), KEY: encode(&made.key), ROOT_CERT: encode(&made.roots)},
        });
        let change = Change::Apply { fields, ownership: Ownership::Take };
        let write = Arc::new(Write { target: wanted.key(), change });
        let names = wanted.names.to_vec();
        issued.insert(wanted.secret.to_owned(), Issued { names, signer, write: Arc::clone(&write) });
        Some(write)
    }
}

impl Controller for DnsCertificateController {
    fn name(&self) -> &'static str {
        "dns-certificates"
    }

    fn plan(&self, world: &Snapshot, now: Timestamp) -> Result<Plan, QueryError> {
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        let Some(bundle) = self.authority.bundle() else { return Ok(Plan::default()) };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let mut listed = BTreeSet::new();
        let mut writes = Vec::new();
        // Istio gave the field up together with the controller that read it; meshes that have it still want their Secrets.
        #[expect(deprecated, reason = "it is the field that this controller is for")]
        let certificates = &settings.mesh.certificates;
        for certificate in certificates {
            let (secret, names) = (certificate.secret_name.as_str(), certificate.dns_names.as_slice());
            // Of several entries with one name the first counts.
            if secret.is_empty() || names.is_empty() || !listed.insert(secret) {
                continue;
            }
            let wanted = Wanted { settings: &settings, bundle: &bundle, secret, names };
            writes.extend(self.pending(world, &wanted, now));
        }
        self.issued.lock().retain(|name, _| listed.contains(name.as_str()));
        let again_in = (!listed.is_empty()).then_some(CHECK_INTERVAL);
        Ok(Plan { writes, again_in, ..Plan::default() })
    }
}

/// A Secret that the mesh configuration asks for.
struct Wanted<'a> {
    settings: &'a MeshSettings,
    bundle: &'a Bundle,
    secret: &'a str,
    names: &'a [String],
}

impl Wanted<'_> {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(Kind::Secret, &self.settings.system_namespace, self.secret)
    }

    fn is_met_by(&self, secret: &Secret, now: UnixTime) -> bool {
        let text = |key| secret.spec.get(key).map(AsRef::as_ref).unwrap_or_default();
        let Ok(certificate) = Certificate::from_pem(text(CERT_CHAIN)) else { return false };
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        let signer = self.bundle.signer().certificate();
        set(certificate.dns_names()) == set(self.names)
            && text(ROOT_CERT) == self.bundle.roots_pem().as_bytes()
            && certificate.issuer_text() == signer.subject_text()
            && certificate.authority_key_id() == signer.key_id()
            && !text(KEY).is_empty()
            && now < renewal(certificate.not_before(), certificate.not_after(), GRACE_PERCENT)
    }
}

#[cfg(test)]
mod tests;
