//! When certificates and revocation lists that the mesh relies on expire, and what breaks on that day.

use rustls_pki_types::UnixTime;
use serde::Serialize;

use crate::bundle::Bundle;
use crate::certificate::Certificate;
use crate::self_signed::renewal;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// A root that workloads are verified by.
    Root,
    /// The certificate stands between leaves and roots.
    Intermediate,
    /// The certificate signs leaves.
    Signing,
    /// The list of certificates that an authority revoked.
    RevocationList,
    /// The control plane's ports have it.
    Server,
    /// The API server verifies the control plane's webhooks by it.
    Webhook,
    /// A gateway has it.
    Gateway,
    /// A workload has it.
    Workload,
}

impl Role {
    /// The value of the label `role` of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Intermediate => "intermediate",
            Self::Signing => "signing",
            Self::RevocationList => "revocationList",
            Self::Server => "server",
            Self::Webhook => "webhook",
            Self::Gateway => "gateway",
            Self::Workload => "workload",
        }
    }

    /// What breaks when a certificate of this role expires.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Root => "workloads no longer verify certificates that lead to this root",
            Self::Intermediate => "workloads no longer verify certificates that were issued under it",
            Self::Signing => "no certificate is issued, and those that were issued under it end with it",
            Self::RevocationList => "proxies reject every certificate of the authority that issued the list",
            Self::Server => "proxies and agents no longer connect to the control plane",
            Self::Webhook => {
                "the API server no longer trusts the webhook: pods are not injected, objects not validated"
            }
            Self::Gateway => "clients of the gateway reject its certificate",
            Self::Workload => "the workload's peers reject it until it has renewed its certificate",
        }
    }
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The certificate need not be renewed yet.
    Fine,
    /// The last fifth of the lifetime has begun: the certificate should have been renewed.
    Due,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
}

/// A certificate, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What it is for.
    pub role: Role,
    /// Holder of the certificate: a subject, a Secret, a workload.
    pub holder: String,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// How urgent it is.
    pub verdict: Verdict,
}

/// The share of its life, in percent, in which a certificate is due.
const GRACE_PERCENT: u32 = 20;

impl Entry {
    /// What is to be said of a certificate.
    pub fn new(role: Role, holder: &str, certificate: &Certificate, now: UnixTime) -> Self {
        Self::lasting(role, holder, (certificate.not_before(), certificate.not_after()), now)
    }

    /// What is to be said of something that counts from one time to another.
    fn lasting(role: Role, holder: &str, (from, to): (UnixTime, UnixTime), now: UnixTime) -> Self {
        let verdict = match now {
            _ if now < from => Verdict::NotYetValid,
            _ if now >= to => Verdict::Expired,
            _ if now >= renewal(from, to, GRACE_PERCENT) => Verdict::Due,
            _ => Verdict::Fine,
        };
        Self { role, holder: holder.to_owned(), expires: to.as_secs(), verdict }
    }

    /// What is to be said of a certificate that a workload got, of which only the times are known.
    pub fn issued(holder: &str, from: u64, expires: u64, now: UnixTime) -> Self {
        let time = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let due = renewal(time(from), time(expires), GRACE_PERCENT);
        let verdict = match now.as_secs() {
            now if now >= expires => Verdict::Expired,
            now if now >= due.as_secs() => Verdict::Due,
            _ => Verdict::Fine,
        };
        Self { role: Role::Workload, holder: holder.to_owned(), expires, verdict }
    }
}

/// The certificates and revocation lists of an authority, the first to expire first.
pub fn forecast_bundle(bundle: &Bundle, now: UnixTime) -> Vec<Entry> {
    let entry =
        |role, certificate: &Certificate| Entry::new(role, &certificate.subject_text(), certificate, now);
    let signing = bundle.signer().certificate();
    let mut entries = vec![entry(Role::Signing, signing)];
    let between = bundle.chain().iter().filter(|one| *one != signing && !bundle.roots().contains(one));
    entries.extend(between.map(|one| entry(Role::Intermediate, one)));
    entries.extend(bundle.roots().iter().map(|one| entry(Role::Root, one)));
    // A list that names no next one lasts for ever.
    let lists = bundle.revocations().iter().filter_map(|list| {
        let time = (list.issued(), list.next()?);
        Some(Entry::lasting(Role::RevocationList, list.issuer_text(), time, now))
    });
    entries.extend(lists);
    sort(&mut entries);
    entries
}

/// Puts what expires first in front.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| {
        (one.expires, one.role, &one.holder).cmp(&(other.expires, other.role, &other.holder))
    });
}
