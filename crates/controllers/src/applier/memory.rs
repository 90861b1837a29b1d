//! What an applier remembers of its writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::ObjectKey;
use tokio::time::Instant;

use super::perform::Outcome;
use crate::controller::Write;

/// How long the watch may take to show a write before it is made again.
const SETTLING: Duration = Duration::from_secs(5);

/// The pause after a first failure; it doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, and how long what others declare is left alone before it is looked at again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The last attempt at each object that still needs a write.
#[derive(Debug, Default)]
pub(super) struct Memory {
    attempts: BTreeMap<ObjectKey, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    write: Arc<Write>,
    /// The same write is not made before.
    not_before: Instant,
    failures: u32,
}

impl Memory {
    /// The writes of a plan that are due. What the plan does not list has arrived, and is forgotten.
    pub(super) fn select(&mut self, writes: Vec<Arc<Write>>, now: Instant) -> Vec<Arc<Write>> {
        let listed: BTreeMap<&ObjectKey, &Arc<Write>> =
            writes.iter().map(|write| (&write.target, write)).collect();
        self.attempts.retain(|key, attempt| listed.get(key).is_some_and(|write| **write == attempt.write));
        let is_due = |write: &Arc<Write>| {
            self.attempts.get(&write.target).is_none_or(|attempt| attempt.not_before <= now)
        };
        writes.iter().filter(|write| is_due(write)).cloned().collect()
    }

    /// Whether the same write has failed before.
    pub(super) fn has_failed(&self, write: &Write) -> bool {
        self.attempts.get(&write.target).is_some_and(|attempt| attempt.failures > 0)
    }

    /// Takes note of what became of a write.
    pub(super) fn note(&mut self, write: Arc<Write>, outcome: &Outcome, now: Instant) {
        let before = self.attempts.get(&write.target).map_or(0, |attempt| attempt.failures);
        let (pause, failures) = match outcome {
            Outcome::Written => (SETTLING, 0),
            Outcome::NotLeading => (Duration::ZERO, before),
            Outcome::Declared(_) => (LONGEST_PAUSE, before.saturating_add(1)),
            Outcome::Outdated | Outcome::Forbidden(_) | Outcome::Failed(_) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST_PAUSE);
                (pause, before.saturating_add(1))
            }
        };
        self.attempts.insert(write.target.clone(), Attempt { write, not_before: now + pause, failures });
    }

    /// When the next write is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.attempts.values().map(|attempt| attempt.not_before).min()
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::Kind;
    use serde_json::json;

    use super::*;
    use crate::controller::{Change, Ownership};

    fn write(text: &str) -> Arc<Write> {
        let fields = json!({"data": text});
        let change = Change::Apply { fields, ownership: Ownership::Take };
        Arc::new(Write { target: ObjectKey::new(Kind::ConfigMap, "shop", "roots"), change })
    }

    #[test]
    fn write_is_not_repeated_until_the_watch_had_time_to_show_it() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        assert_eq!(memory.select(vec![write("a")], start).len(), 1);
        memory.note(write("a"), &Outcome::Written, start);
        assert!(memory.select(vec![write("a")], start + SETTLING / 2).is_empty());
        assert_eq!(memory.next_due(), Some(start + SETTLING));
        assert_eq!(memory.select(vec![write("a")], start + SETTLING).len(), 1);
    }

    #[test]
    fn drift_is_repaired_at_once_when_the_write_had_arrived() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(write("a"), &Outcome::Written, start);
        assert!(memory.select(Vec::new(), start).is_empty());
        assert_eq!(memory.select(vec![write("a")], start).len(), 1);
    }

    #[test]
    fn another_desire_is_written_at_once_when_the_last_one_failed() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(write("a"), &Outcome::Failed("down".into()), start);
        assert!(memory.has_failed(&write("a")));
        assert_eq!(memory.select(vec![write("b")], start).len(), 1);
        assert!(!memory.has_failed(&write("b")));
    }

    #[test]
    fn pauses_double_while_the_same_write_fails() {
        let (mut memory, mut now) = (Memory::default(), Instant::now());
        for expected in [500, 1000, 2000, 4000] {
            memory.note(write("a"), &Outcome::Failed("down".into()), now);
            let due = memory.next_due().unwrap();
            assert_eq!((due - now).as_millis(), expected);
            now = due;
        }
        for _ in 0..20 {
            memory.note(write("a"), &Outcome::Failed("down".into()), now);
        }
        assert_eq!(memory.next_due(), Some(now + LONGEST_PAUSE));
    }
}
