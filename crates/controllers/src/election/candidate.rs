//! The decisions of one candidate, without a store or a clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::TERM;

/// Marks holders that belong to a control plane of another cluster.
const REMOTE: char = '^';

/// What a lock says. Field names are those of the annotation that Kubernetes' own components use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Holder of the lock; empty if it is free.
    pub holder_identity: String,
    /// The revision of the holder, by which others may take precedence.
    pub holder_key: String,
    /// For how long after a renewal.
    pub lease_duration_seconds: u64,
    /// When the holder got it, in RFC 3339.
    pub acquire_time: String,
    /// When the holder last renewed it.
    pub renew_time: String,
    /// How often it changed hands.
    pub leader_transitions: u64,
}

/// What a candidate does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another candidate holds the lock.
    Wait,
    /// Write this to get or keep the lock.
    Take(Record),
}

/// A process that competes for a lock.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    revision: String,
    /// Whether the default revision may take the lock from others; locks per revision have no use for it.
    has_precedence: bool,
    /// What the lock last said, and since when.
    observed: Option<(Record, Instant)>,
}

impl Candidate {
    /// A process of this revision, by a name that no other process has.
    pub fn new(identity: &str, revision: &str) -> Self {
        let revision = if revision.is_empty() { "default" } else { revision }.to_owned();
        Self { identity: identity.to_owned(), revision, has_precedence: true, observed: None }
    }

    /// The same for a lock that each revision has for itself.
    #[must_use]
    pub fn per_revision(self) -> Self {
        Self { has_precedence: false, ..self }
    }

    /// What to do about a lock that says this. The time of the lock is not looked at: clocks of machines differ, so a term
    /// counts from when its begin was seen here.
    pub fn step(
        &mut self,
        stored: Option<&Record>,
        default_revision: Option<&str>,
        now: Instant,
        time: Timestamp,
    ) -> Step {
        let Some(stored) = stored else { return Step::Take(self.record(time, time_text(time), 0)) };
        if self.observed.as_ref().is_none_or(|(known, _)| known != stored) {
            self.observed = Some((stored.clone(), now));
        }
        if stored.holder_identity == self.identity {
            return Step::Take(self.record(time, stored.acquire_time.clone(), stored.leader_transitions));
        }
        let seen = self.observed.as_ref().map_or(now, |(_, since)| *since);
        let is_free = stored.holder_identity.is_empty() || now.duration_since(seen) >= TERM;
        if is_free || self.precedes(&stored.holder_key, default_revision) {
            return Step::Take(self.record(
                time,
                time_text(time),
                stored.leader_transitions.saturating_add(1),
            ));
        }
        Step::Wait
    }

    /// The lock says this now, because this candidate wrote it.
    pub fn took(&mut self, record: Record, now: Instant) {
        self.observed = Some((record, now));
    }

    /// What to write to give the lock back; `None` if somebody else holds it.
    pub fn released(&self, stored: &Record, time: Timestamp) -> Option<Record> {
        (stored.holder_identity == self.identity).then(|| Record {
            lease_duration_seconds: 1,
            acquire_time: time_text(time),
            renew_time: time_text(time),
            leader_transitions: stored.leader_transitions,
            ..Record::default()
        })
    }

    /// Parity: the default revision goes before others, and a control plane of this cluster before one of another.
    fn precedes(&self, holder: &str, default_revision: Option<&str>) -> bool {
        let (is_remote, revision) = match holder.strip_prefix(REMOTE) {
            Some(revision) => (true, revision),
            None => (false, holder),
        };
        let is_same = self.revision == revision;
        let is_default = default_revision == Some(self.revision.as_str());
        self.has_precedence && (!is_same && is_default || is_same && is_remote)
    }

    fn record(&self, time: Timestamp, acquired: String, transitions: u64) -> Record {
        Record {
            holder_identity: self.identity.clone(),
            holder_key: if self.has_precedence { self.revision.clone() } else { String::new() },
            lease_duration_seconds: TERM.as_secs(),
            acquire_time: acquired,
            renew_time: time_text(time),
            leader_transitions: transitions,
        }
    }
}

/// A time as Leases have it, in microseconds, which locks in ConfigMaps accept as well.
fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    fn taken(step: Step) -> Record {
        match step {
            Step::Take(record) => record,
            Step::Wait => panic!("somebody else holds the lock"),
        }
    }

    #[test]
    fn lock_is_taken_when_there_is_none_or_it_was_given_back() {
        let now = Instant::now();
        let mut candidate = Candidate::new("a", "default");
        let record = taken(candidate.step(None, None, now, TIME));
        assert_eq!((record.holder_identity.as_str(), record.leader_transitions), ("a", 0));
        let free = candidate.released(&record, TIME).unwrap();
        let record = taken(Candidate::new("b", "default").step(Some(&free), None, now, TIME));
        assert_eq!((record.holder_identity.as_str(), record.leader_transitions), ("b", 1));
    }

    #[test]
    fn lock_is_taken_from_a_holder_only_when_it_was_not_renewed_for_a_term() {
        let now = Instant::now();
        let held = taken(Candidate::new("a", "").step(None, None, now, TIME));
        let mut candidate = Candidate::new("b", "");
        assert_eq!(candidate.step(Some(&held), None, now, TIME), Step::Wait);
        assert_eq!(candidate.step(Some(&held), None, now + TERM / 2, TIME), Step::Wait);
        let renewed = Record { renew_time: "later".into(), ..held };
        let later = now + TERM - Duration::from_secs(1);
        assert_eq!(candidate.step(Some(&renewed), None, later, TIME), Step::Wait);
        assert_eq!(candidate.step(Some(&renewed), None, now + TERM, TIME), Step::Wait);
        let record = taken(candidate.step(Some(&renewed), None, later + TERM, TIME));
        assert_eq!((record.holder_identity.as_str(), record.leader_transitions), ("b", 1));
    }

    #[test]
    fn holder_keeps_the_time_it_got_the_lock_when_it_renews() {
        let mut candidate = Candidate::new("a", "");
        let first = taken(candidate.step(None, None, Instant::now(), TIME));
        let later = Timestamp::from_second(60).unwrap();
        let second = taken(candidate.step(Some(&first), None, Instant::now(), later));
        assert_eq!(second.acquire_time, first.acquire_time);
        assert_eq!(second.renew_time, "1970-01-01T00:01:00.000000Z");
        assert_eq!(second.leader_transitions, 0);
    }

    #[test]
    fn default_revision_and_local_control_planes_take_precedence() {
        let now = Instant::now();
        let held = |key: &str| Record {
            holder_identity: "other".into(),
            holder_key: key.into(),
            ..Record::default()
        };
        let takes = |revision: &str, key: &str, default: Option<&str>| {
            Candidate::new("a", revision).step(Some(&held(key)), default, now, TIME) != Step::Wait
        };
        assert!(takes("canary", "stable", Some("canary")));
        assert!(!takes("canary", "stable", Some("stable")));
        assert!(!takes("canary", "stable", None));
        assert!(!takes("canary", "canary", Some("canary")));
        assert!(takes("canary", "^canary", None));
        let mut alone = Candidate::new("a", "canary").per_revision();
        assert_eq!(alone.step(Some(&held("stable")), Some("canary"), now, TIME), Step::Wait);
    }
}
