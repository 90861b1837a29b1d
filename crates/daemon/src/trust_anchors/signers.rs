//! Roots of authorities elsewhere that sign for this control plane (`EXTERNAL_CA`).
//!
//! They come from a mounted file and from entries of `caCertificates` that list a signer. Workloads present certificates
//! under them to the TLS port like any others, so they vouch for the mesh's own trust domain.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use canopus_engine::{Batch, Engine, Input};
use canopus_identity::certificate::Certificate;
use canopus_identity::pem::LARGEST_FILE;
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::CertificateData as Listed;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::certificate_data::CertificateData;
use canopus_runtime::flags::EXTERNAL_CA;
use tokio::time::sleep;
use tracing::{info, warn};

/// Where the roots of signers are mounted.
const FILE: &str = "./etc/external-ca-cert/root-cert.pem";

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// The roots that are mounted, in PEM.
pub(crate) struct MountedSignerRoots;

impl Input for MountedSignerRoots {
    const NAME: &'static str = "mounted_signer_roots";
    type Key = ();
    type Value = Vec<String>;
    type Index = ();
}

/// The roots that are mounted.
pub(crate) fn mounted(engine: &Engine) -> Vec<String> {
    engine.read::<MountedSignerRoots>(&()).map(|roots| roots.to_vec()).unwrap_or_default()
}

/// The roots of one signer: those that are mounted, or else those of the entries that list it.
pub(crate) fn signer_roots(engine: &Engine, signer: &str) -> Vec<String> {
    let mounted = mounted(engine);
    if !mounted.is_empty() {
        return mounted;
    }
    let settings = engine.read::<Settings>(&()).unwrap_or_default();
    let lists = |listed: &&Listed| listed.cert_signers.iter().any(|name| name == signer);
    settings.mesh.ca_certificates.iter().filter(lists).flat_map(roots).collect()
}

/// The roots of all signers; none where the process's own authority signs.
pub(super) fn all_signer_roots(settings: &MeshSettings, mounted: Option<Arc<Vec<String>>>) -> Vec<String> {
    if settings.flags.get(EXTERNAL_CA).is_empty() {
        return Vec::new();
    }
    let listed = settings.mesh.ca_certificates.iter().filter(|listed| !listed.cert_signers.is_empty());
    let mounted = mounted.map(|roots| roots.to_vec()).unwrap_or_default();
    mounted.into_iter().chain(listed.flat_map(roots)).collect()
}

fn roots(listed: &Listed) -> Vec<String> {
    match &listed.certificate_data {
        Some(CertificateData::Pem(pem)) => super::split(pem).collect(),
        _ => Vec::new(),
    }
}

/// Follows the mounted file, for ever. What cannot be read changes nothing.
pub(crate) async fn follow(store: impl Fn(Batch)) {
    let mut known = None;
    loop {
        let now = read();
        if known.as_ref() != Some(&now) {
            match &now {
                Ok(roots) => {
                    info!(file = FILE, roots = roots.len(), "the roots of signers were read");
                    let mut batch = Batch::new();
                    batch.set::<MountedSignerRoots>((), roots.clone());
                    store(batch);
                }
                // Signers may be configured in the mesh configuration instead.
                Err(error) if error.is_empty() => {}
                Err(error) => warn!(file = FILE, error, "the roots of signers stay as they were"),
            }
            known = Some(now);
        }
        sleep(PERIOD).await;
    }
}

/// The roots in the file, or what is wrong with it; nothing is if there is none.
fn read() -> Result<Vec<String>, String> {
    let Ok(text) = fs::read(FILE) else { return Err(String::new()) };
    if text.len() > LARGEST_FILE {
        return Err(format!("it is larger than {LARGEST_FILE} bytes"));
    }
    let certificates = Certificate::all_from_pem(&text).map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    certificates.iter().map(|root| root.to_pem().map_err(|error| error.to_string())).collect()
}
