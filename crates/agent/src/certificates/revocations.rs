//! The mesh's revocation lists: a file that the control plane hands out in a ConfigMap.
//!
//! The lists go to Envoy with the roots, and Envoy refuses peers whose certificates they name. They come, change and go while
//! the agent runs. A text that Envoy could not use is not passed on; what was there before stays in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use canopus_identity::revocation::RevocationLists;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::files::DirectoryWatch;
use super::secrets::Secrets;
use crate::upstream::read;

/// Where the ConfigMap is mounted. Parity: the place is not configurable.
pub const FILE: &str = "./var/run/secrets/istio/crl/ca-crl.pem";

/// How often it is looked at whatever the watch tells: a directory that is not there yet cannot be watched.
const LOOK: Duration = Duration::from_secs(15);

/// Follows the file.
#[derive(Clone)]
pub struct RevocationFile {
    path: PathBuf,
    secrets: Arc<Secrets>,
    known: Result<Option<String>, String>,
}

impl RevocationFile {
    /// Reads the file before anything is served: a proxy that restarts must not trust what is revoked for a moment.
    pub fn open(path: PathBuf, secrets: Arc<Secrets>) -> Self {
        let mut file = Self { path, secrets, known: Ok(None) };
        file.look();
        file
    }

    /// Passes on what changes, for as long as it is polled.
    pub async fn follow(mut self, quiet: Duration) {
        loop {
            let directory = self.path.parent().filter(|directory| directory.is_dir());
            let watch = directory.map(|directory| DirectoryWatch::new([directory]));
            // Something may have changed before the watch.
            self.look();
            match watch {
                Some(Ok(watch)) => drop(timeout(LOOK, watch.settled(quiet)).await),
                _ => sleep(LOOK).await,
            }
        }
    }

    fn look(&mut self) {
        let now = load(&self.path);
        if now == self.known {
            return;
        }
        let path = self.path.display();
        match &now {
            Ok(Some(_)) => info!(target: "cache", "{path}: peers are held to these revocation lists"),
            Ok(None) => info!(target: "cache", "{path}: there are no revocation lists any more"),
            Err(error) => warn!(target: "cache", "{path}: {error}; the revocation lists stay as they were"),
        }
        if let Ok(lists) = &now {
            self.secrets.set_revocations(lists.clone());
        }
        self.known = now;
    }
}

/// The lists in the file; none if there is no file, or nothing in it.
fn load(path: &Path) -> Result<Option<String>, String> {
    let text = match read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| "expected PEM".to_owned())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let lists = RevocationLists::from_pem(text.as_bytes()).map_err(|error| error.to_string())?;
    // A text without lists is one that was cut off: whoever withdraws them empties the file.
    if lists.is_empty() { Err("there is no revocation list in it".to_owned()) } else { Ok(Some(text)) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa,
        KeyIdMethod, KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
    };
    use tokio::sync::watch::Receiver;

    use super::*;

    fn list() -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2126, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&issuer).unwrap().pem().unwrap()
    }

    async fn next(revisions: &mut Receiver<u64>) {
        timeout(Duration::from_secs(10), revisions.changed()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn lists_come_change_and_go_while_the_agent_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca-crl.pem");
        let secrets = Arc::new(Secrets::default());
        let mut revisions = secrets.revisions();
        let file = RevocationFile::open(path.clone(), Arc::clone(&secrets));
        let following = tokio::spawn(file.follow(Duration::from_millis(20)));
        sleep(Duration::from_millis(200)).await;
        let (first, second) = (list(), list());
        fs::write(&path, &first).unwrap();
        next(&mut revisions).await;
        assert_eq!(secrets.revocations().as_deref(), Some(first.as_str()));
        // What Envoy could not use changes nothing.
        for broken in ["garbage".to_owned(), first.replacen("\nMI", "\nMA", 1)] {
            fs::write(&path, broken).unwrap();
            sleep(Duration::from_millis(200)).await;
            assert_eq!(secrets.revocations().as_deref(), Some(first.as_str()));
        }
        let both = first + &second;
        fs::write(&path, &both).unwrap();
        next(&mut revisions).await;
        assert_eq!(secrets.revocations(), Some(both));
        fs::write(&path, "").unwrap();
        next(&mut revisions).await;
        assert_eq!(secrets.revocations(), None);
        following.abort();
    }
}
