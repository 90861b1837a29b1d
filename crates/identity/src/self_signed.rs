//! A root of the control plane's own: made once, renewed before it expires.

use std::time::Duration;

use rustls_pki_types::UnixTime;

use crate::certificate::Certificate;
use crate::issue::{IssueError, self_sign};
use crate::key::{KeyKind, SigningKey};

/// What a self-signed root is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The organization in its subject: the trust domain.
    pub organization: String,
    /// How long it lives (`CITADEL_SELF_SIGNED_CA_CERT_TTL`).
    pub lifetime: Duration,
    /// Kind and size of the root's key (`CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE`).
    pub key: KeyKind,
    /// The share of its life, in percent, before the end of which it is renewed
    /// (`CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE`).
    pub grace_percent: u32,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            organization: "cluster.local".to_owned(),
            lifetime: Duration::from_secs(10 * 365 * 24 * 3600),
            key: KeyKind::Rsa(2048),
            grace_percent: 20,
        }
    }
}

impl Profile {
    /// Makes a root with a new key.
    pub fn create(&self, now: UnixTime) -> Result<(Certificate, SigningKey), IssueError> {
        let key = SigningKey::generate(self.key)?;
        Ok((self_sign(&self.organization, &key, now, self.lifetime)?, key))
    }

    /// Makes a new certificate for the key of a root.
    ///
    /// Parity: the organization stays what it was, so the new certificate and the old one verify the same leaves.
    pub fn renew(
        &self,
        old: &Certificate,
        key: &SigningKey,
        now: UnixTime,
    ) -> Result<Certificate, IssueError> {
        let organization = old.organization().filter(|name| !name.is_empty());
        self_sign(&organization.unwrap_or_else(|| self.organization.clone()), key, now, self.lifetime)
    }

    /// When a root is due for renewal.
    pub fn renewal(&self, root: &Certificate) -> UnixTime {
        renewal(root.not_before(), root.not_after(), self.grace_percent)
    }
}

/// When a certificate is due for renewal: when only this share of its life, in percent, is left.
pub fn renewal(not_before: UnixTime, not_after: UnixTime, grace_percent: u32) -> UnixTime {
    let life = not_after.as_secs().saturating_sub(not_before.as_secs());
    let grace = u128::from(life) * u128::from(grace_percent.min(100)) / 100;
    let grace = u64::try_from(grace).unwrap_or(life);
    UnixTime::since_unix_epoch(Duration::from_secs(not_after.as_secs().saturating_sub(grace)))
}
