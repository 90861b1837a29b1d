//! Which workloads got certificates of this process, and until when these last.
//!
//! A rotation waits for holders of certificates from before it ([`IssuedCertificates::older_than`]); the forecast lists them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::certificate::Certificate;

/// How many identities are remembered; when there are more, those whose certificates expire first are forgotten.
const MOST: usize = 100_000;

/// How many more there may be for a while, so that not every certificate beyond the bound is the cause of a search.
const SLACK: usize = 10_000;

/// A certificate that was issued, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issuance {
    /// When it became valid.
    pub from: u64,
    /// When it expires.
    pub expires: u64,
}

/// The latest certificate of each identity.
#[derive(Debug, Default)]
pub struct IssuedCertificates(Mutex<BTreeMap<String, Issuance>>);

impl IssuedCertificates {
    /// Takes note of a chain that was issued.
    pub fn note(&self, identities: &[String], chain: &[String]) {
        let Some(leaf) = chain.first().and_then(|leaf| Certificate::from_pem(leaf.as_bytes()).ok()) else {
            return;
        };
        let issuance = Issuance { from: leaf.not_before().as_secs(), expires: leaf.not_after().as_secs() };
        let mut issued = self.0.lock();
        for identity in identities {
            issued.insert(identity.clone(), issuance);
        }
        if issued.len() > MOST + SLACK {
            forget_first(&mut issued);
        }
    }

    /// How many certificates are valid that became so before a time. Their holders have the roots of then.
    pub fn older_than(&self, time: u64, now: u64) -> usize {
        let is_older = |issuance: &&Issuance| issuance.from < time && issuance.expires > now;
        self.0.lock().values().filter(is_older).count()
    }

    /// All of them, by identity. A workload whose certificate ended more than `forgotten` before `now` is gone.
    pub fn all(&self, now: u64, forgotten: Duration) -> Vec<(String, Issuance)> {
        let mut issued = self.0.lock();
        issued.retain(|_, issuance| issuance.expires.saturating_add(forgotten.as_secs()) > now);
        issued.iter().map(|(identity, issuance)| (identity.clone(), *issuance)).collect()
    }
}

/// Forgets those that expire first, down to [`MOST`].
fn forget_first(issued: &mut BTreeMap<String, Issuance>) {
    let surplus = issued.len().saturating_sub(MOST);
    let mut ends: Vec<u64> = issued.values().map(|issuance| issuance.expires).collect();
    let Some(last) = surplus.checked_sub(1) else { return };
    let (_, end, _) = ends.select_nth_unstable(last);
    let mut left = surplus;
    issued.retain(|_, issuance| {
        let is_first = issuance.expires <= *end && left > 0;
        left -= usize::from(is_first);
        !is_first
    });
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn identities_are_forgotten_some_time_after_their_certificate_ended() {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 1, 2));
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let issued = IssuedCertificates::default();
        issued.note(&["spiffe://cluster.local/ns/a/sa/b".to_owned()], &[pem]);
        issued.note(&["nobody".to_owned()], &["garbage".to_owned()]);
        let end = date_time_ymd(2026, 1, 2).unix_timestamp().try_into().unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!((issued.older_than(end, end - 1), issued.older_than(end, end)), (1, 0));
        assert_eq!(issued.older_than(0, end - 1), 0);
        assert_eq!(issued.all(end, hour).len(), 1);
        assert!(issued.all(end + 3600, hour).is_empty());
    }

    #[test]
    fn those_that_expire_first_are_forgotten_when_there_are_too_many() {
        let mut issued: BTreeMap<String, Issuance> = (0..MOST as u64 + 3)
            .map(|number| (format!("{number:06}"), Issuance { from: 0, expires: 1_000_000 - number / 2 }))
            .collect();
        forget_first(&mut issued);
        assert_eq!(issued.len(), MOST);
        assert!(issued.contains_key("000000") && !issued.contains_key(&format!("{:06}", MOST + 2)));
    }
}
