//! The workload's certificate on disk, for a restart while the authority is away.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

use super::Identity;

const FILE: &str = "identity.json";
/// A larger file is none of ours.
const MAX_BYTES: u64 = 1 << 20;
/// A certificate that ends sooner is of no use to anybody.
const LEAST_LIFE: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Stored {
    spiffe: String,
    chain: String,
    key: Zeroizing<String>,
    root: String,
    expires: u64,
}

/// Keeps the certificate of one identity.
#[derive(Clone, Debug)]
pub struct IdentityStore {
    path: PathBuf,
    spiffe: String,
}

impl IdentityStore {
    /// Keeps the certificate of this SPIFFE identity in a directory.
    pub fn new(directory: &Path, spiffe: &str) -> Self {
        Self { path: directory.join(FILE), spiffe: spiffe.to_owned() }
    }

    /// Writes it down. What cannot be written is reported, and traffic goes on.
    pub fn save(&self, identity: &Identity) {
        if let Err(error) = self.write(identity) {
            warn!(target: "cache", "{}: {error}; the certificate is not kept for an outage", self.path.display());
        }
    }

    fn write(&self, identity: &Identity) -> io::Result<()> {
        let stored = Stored {
            spiffe: self.spiffe.clone(),
            chain: identity.chain.clone(),
            key: identity.key.clone(),
            root: identity.root.clone(),
            expires: identity.expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        let json = Zeroizing::new(serde_json::to_vec(&stored)?);
        let mut bytes = Zeroizing::new(format!("{:016x}\n", xxh3_64(&json)).into_bytes());
        bytes.extend_from_slice(&json);
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        crate::files::write_private(&self.path, &bytes)
    }

    /// The certificate, if there is one of this identity that is still valid at this time.
    pub fn load(&self, now: SystemTime) -> Option<Identity> {
        let size = fs::metadata(&self.path).ok()?.len();
        if size > MAX_BYTES {
            return None;
        }
        let bytes = Zeroizing::new(fs::read(&self.path).ok()?);
        let (checksum, json) = bytes.split_at_checked(17)?;
        if checksum != format!("{:016x}\n", xxh3_64(json)).as_bytes() {
            warn!(target: "cache", "{}: the checksum is wrong; the stored certificate is not used", self.path.display());
            return None;
        }
        let stored: Stored = serde_json::from_slice(json).ok()?;
        let expires = UNIX_EPOCH.checked_add(Duration::from_secs(stored.expires))?;
        if stored.spiffe != self.spiffe || expires < now + LEAST_LIFE {
            return None;
        }
        info!(target: "cache", "the stored certificate of {} is used until the authority answers", self.spiffe);
        Some(Identity { chain: stored.chain, key: stored.key, root: stored.root, expires })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(life: i64) -> Identity {
        let seconds = Duration::from_secs(life.unsigned_abs());
        let now = SystemTime::now();
        Identity {
            chain: "chain".into(),
            key: Zeroizing::new("key".into()),
            root: "root".into(),
            expires: if life > 0 { now + seconds } else { now - seconds },
        }
    }

    #[test]
    fn certificate_is_used_again_by_its_identity_while_it_is_valid() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let store = IdentityStore::new(directory.path(), "spiffe://td/ns/a/sa/b");
        assert!(store.load(SystemTime::now()).is_none());
        store.save(&identity(60));
        assert_eq!(store.load(SystemTime::now()).unwrap().chain, "chain");
        let file = directory.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(
            IdentityStore::new(directory.path(), "spiffe://td/ns/a/sa/other")
                .load(SystemTime::now())
                .is_none()
        );
        let mut bytes = fs::read(&file).unwrap();
        bytes[30] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(store.load(SystemTime::now()).is_none(), "a changed file");
        store.save(&identity(-60));
        assert!(store.load(SystemTime::now()).is_none(), "an expired certificate");
    }
}
