//! The workload's certificate: asked for, renewed in time, handed to whoever watches.
//!
//! ```text
//!  key + CSR ──► CA ──► chain ──┬──► Secrets ──► SDS server, OUTPUT_CERTS
//!        ▲                      │
//!        └── sleep until (1 - ratio ± jitter) of the life is over ◄──┘
//! ```
//!
//! A renewal that fails changes nothing: the old certificate is served until it is replaced. Renewals follow the wall clock,
//! by which certificates expire: a machine that was suspended renews as soon as it wakes. File-mounted certificates
//! ([`files`]) take the place of the CA.

mod authority;
pub mod files;
pub mod revocations;
mod secrets;
pub mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use canopus_identity::Certificate;
use canopus_identity::key::KeyKind;
use tokio::time::sleep;
use tracing::{info, warn};

pub use authority::{AuthorityClient, AuthorityError, Issuer};
pub use secrets::{Identity, Secrets};

use crate::backoff::{Backoff, random};
use stored::IdentityStore;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// A certificate is not renewed more often, whatever its life says.
const LEAST_LIFE: Duration = Duration::from_millis(500);
/// How often the wall clock is looked at: timers stand still while a machine is suspended.
const LOOK: Duration = Duration::from_secs(60);

/// How keys and renewals are made.
#[derive(Clone, Debug)]
pub struct RenewalSettings {
    /// `WORKLOAD_RSA_KEY_SIZE`, or the curve.
    pub key: KeyKind,
    /// `PKCS8_KEY`.
    pub pkcs8: bool,
    /// The identity to ask for, a SPIFFE URI.
    pub identity: String,
    /// `SECRET_TTL`.
    pub lifetime: Duration,
    /// `SECRET_GRACE_PERIOD_RATIO`.
    pub grace_ratio: f64,
    /// `SECRET_GRACE_PERIOD_RATIO_JITTER`.
    pub jitter: f64,
    /// `OUTPUT_CERTS`.
    pub output: Option<PathBuf>,
}

/// The wall clock. Another one can take its place in a simulation.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Asks for a certificate and renews it, for as long as it is polled. The last one of an earlier run is served first.
pub async fn renew(
    authority: impl Issuer,
    settings: RenewalSettings,
    stored: Option<IdentityStore>,
    secrets: Arc<Secrets>,
    clock: Clock,
) {
    let publish = |identity: Identity| {
        if let Some(directory) = &settings.output
            && let Err(error) = write_files(directory, &identity)
        {
            warn!(target: "cache", "OUTPUT_CERTS: {}: {error}", directory.display());
        }
        secrets.set_identity(identity);
    };
    // A restart while the authority is away must not leave the workload without its certificate.
    if let Some(identity) = stored.as_ref().and_then(|stored| stored.load(clock())) {
        publish(identity);
    }
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let wait = match obtain(&authority, &settings, clock()).await {
            Ok((identity, wait)) => {
                backoff.reset();
                info!(target: "cache", "the certificate is there; it will be renewed in {wait:.0?}");
                if let Some(stored) = &stored {
                    stored.save(&identity);
                }
                publish(identity);
                wait
            }
            Err(error) => {
                let wait = backoff.wait();
                warn!(target: "cache", "no certificate: {error}; next try in {wait:.1?}");
                wait
            }
        };
        sleep_until(clock() + wait, &clock).await;
    }
}

/// Sleeps until a time of the wall clock.
async fn sleep_until(end: SystemTime, clock: &Clock) {
    while let Ok(left) = end.duration_since(clock())
        && !left.is_zero()
    {
        sleep(left.min(LOOK)).await;
    }
}

async fn obtain(
    authority: &impl Issuer,
    settings: &RenewalSettings,
    asked: SystemTime,
) -> Result<(Identity, Duration), AuthorityError> {
    let (key, request) = authority::key_and_request(settings.key, settings.pkcs8, &settings.identity)?;
    let chain = authority.sign(&request, settings.lifetime).await?;
    let leaf = Certificate::from_pem(chain.first().map_or("", String::as_str).as_bytes())
        .map_err(|error| AuthorityError::Answer(error.to_string()))?;
    let root = chain.last().cloned().unwrap_or_default();
    let expires = UNIX_EPOCH + Duration::from_secs(leaf.not_after().as_secs());
    let identity = Identity { chain: joined(&chain), key, root, expires };
    Ok((
        identity,
        renewal_wait(asked, expires, settings.grace_ratio, settings.jitter * (2.0 * random() - 1.0)),
    ))
}

/// How long a certificate is used before it is renewed.
fn renewal_wait(now: SystemTime, expires: SystemTime, grace_ratio: f64, jitter: f64) -> Duration {
    let life = expires.duration_since(now).unwrap_or_default();
    let grace = (grace_ratio + jitter).clamp(0.0, 1.0);
    life.mul_f64(1.0 - grace).max(LEAST_LIFE)
}

fn joined(certificates: &[String]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str(certificate.trim_end());
        text.push('\n');
    }
    text
}

/// Writes key, chain and root for applications that read files.
fn write_files(directory: &Path, identity: &Identity) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, text) in [
        ("key.pem", identity.key.as_str()),
        ("cert-chain.pem", &identity.chain),
        ("root-cert.pem", &identity.root),
    ] {
        crate::files::write_private(&directory.join(name), text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_renewed_when_the_grace_period_begins() {
        let now = SystemTime::now();
        let hours = |count: u64| Duration::from_secs(count * 3600);
        let wait = |life, ratio, jitter| renewal_wait(now, now + life, ratio, jitter);
        assert_eq!(wait(hours(24), 0.5, 0.0), hours(12));
        assert_eq!(wait(hours(24), 0.25, 0.25), hours(12));
        assert_eq!(wait(hours(24), 2.0, 0.0), LEAST_LIFE);
        assert_eq!(wait(hours(24), -1.0, 0.0), hours(24));
        assert_eq!(renewal_wait(now, now - hours(1), 0.5, 0.0), LEAST_LIFE);
    }

    #[test]
    fn files_are_private_and_replaced_whole() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let identity = |chain: &str| Identity {
            chain: chain.into(),
            key: zeroize::Zeroizing::new("key".into()),
            root: "root".into(),
            expires: SystemTime::now(),
        };
        let out = directory.path().join("out");
        write_files(&out, &identity("a longer chain")).unwrap();
        write_files(&out, &identity("chain")).unwrap();
        assert_eq!(fs::read_to_string(out.join("cert-chain.pem")).unwrap(), "chain");
        assert_eq!(fs::metadata(out.join("key.pem")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    }
}
