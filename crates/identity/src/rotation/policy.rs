//! How long each part of a rotation takes.

use std::time::Duration;

use crate::authority::CLOCK_SKEW;
use crate::self_signed;

use super::state::Root;

/// How long each part of a rotation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The share of its life, in percent, before the end of which a root is replaced.
    pub grace_percent: u32,
    /// How often a replica reads the store.
    pub check_interval: Duration,
    /// A replica that has not read the store for this long stops signing and handing out bundles.
    pub staleness: Duration,
    /// How long a bundle takes to reach every verifier, at most.
    pub propagation: Duration,
    /// How long verifiers that are known to lack the new root are waited for beyond that.
    pub patience: Duration,
    /// The longest lifetime of a certificate.
    pub longest_leaf: Duration,
}

const HOUR: Duration = Duration::from_secs(3600);

impl Default for Policy {
    fn default() -> Self {
        Self {
            grace_percent: 20,
            check_interval: HOUR,
            staleness: Duration::from_secs(24 * 3600),
            propagation: HOUR,
            patience: Duration::from_secs(24 * 3600),
            longest_leaf: Duration::from_secs(90 * 24 * 3600),
        }
    }
}

impl Policy {
    /// When a root is due for replacement, in seconds since 1970.
    pub(super) fn renewal(&self, root: &Root) -> u64 {
        use rustls_pki_types::UnixTime;
        let time = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self_signed::renewal(time(root.not_before), time(root.not_after), self.grace_percent).as_secs()
    }

    /// How long until nobody can have a bundle of the state before.
    pub fn distribution(&self) -> Duration {
        self.staleness.saturating_add(self.propagation)
    }

    /// How long until nobody can have a certificate of the state before.
    pub fn retirement(&self) -> Duration {
        self.staleness.saturating_add(self.longest_leaf).saturating_add(CLOCK_SKEW)
    }

    /// How long before an issuer's end the next one takes over whatever else holds, in seconds.
    pub(super) fn margin(&self) -> u64 {
        self.check_interval.as_secs().saturating_mul(2)
    }
}
