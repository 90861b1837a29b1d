//! What an applier remembers of its writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::ObjectKey;
use tokio::time::Instant;

use super::perform::Outcome;
use crate::controller::{Observed, Write};

/// How long the watch may take to show a write before it is made again.
const SETTLING: Duration = Duration::from_secs(5);

/// The pause after a first failure; it doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, and how long what others declare is left alone before it is looked at again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause after a write that the server ignores: the same one would be ignored again.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

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
    /// The state that a managed object had after the write.
    result: Option<Observed>,
}

impl Attempt {
    /// Whether a managed object still is as this attempt left it.
    fn is_settled(&self, write: &Write) -> bool {
        self.result.is_some() && self.result.as_ref() == write.seen()
    }
}

impl Memory {
    /// The writes of a plan that are due. What the plan does not list has arrived, and is forgotten.
    pub(super) fn select(&mut self, writes: Vec<Arc<Write>>, now: Instant) -> Vec<Arc<Write>> {
        let listed: BTreeMap<&ObjectKey, &Arc<Write>> =
            writes.iter().map(|write| (&write.target, write)).collect();
        self.attempts.retain(|key, attempt| {
            listed.get(key).is_some_and(|write| write.has_same_desire(&attempt.write))
        });
        let is_due = |write: &Arc<Write>| {
            self.attempts.get(&write.target).is_none_or(|attempt| {
                let has_moved = attempt.failures == 0 && attempt.write.seen() != write.seen();
                !attempt.is_settled(write) && (has_moved || attempt.not_before <= now)
            })
        };
        writes.iter().filter(|write| is_due(write)).cloned().collect()
    }

    /// Whether the same write has failed before.
    pub(super) fn has_failed(&self, write: &Write) -> bool {
        self.attempts.get(&write.target).is_some_and(|attempt| attempt.failures > 0)
    }

    /// Takes note of what became of a write, and in which state it left a managed object.
    pub(super) fn note(
        &mut self,
        write: Arc<Write>,
        outcome: &Outcome,
        result: Option<Observed>,
        now: Instant,
    ) {
        let before = self.attempts.get(&write.target).map_or(0, |attempt| attempt.failures);
        let (pause, failures) = match outcome {
            Outcome::Written => (SETTLING, 0),
            Outcome::NotLeading => (Duration::ZERO, before),
            Outcome::Ignored => (NEVER, 0),
            Outcome::Declared(_) | Outcome::Foreign => (LONGEST_PAUSE, before.saturating_add(1)),
            Outcome::Outdated | Outcome::Forbidden(_) | Outcome::Failed(_) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST_PAUSE);
                (pause, before.saturating_add(1))
            }
        };
        let attempt = Attempt { write, not_before: now + pause, failures, result };
        self.attempts.insert(attempt.write.target.clone(), attempt);
    }

    /// When a write is due next, after this moment. A managed object that was written is looked at again when the watch shows
    /// another state.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let waiting = self.attempts.values().filter(|attempt| attempt.result.is_none());
        waiting.map(|attempt| attempt.not_before).filter(|due| *due > now).min()
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
        memory.note(write("a"), &Outcome::Written, None, start);
        assert!(memory.select(vec![write("a")], start + SETTLING / 2).is_empty());
        assert_eq!(memory.next_due(start), Some(start + SETTLING));
        assert_eq!(memory.select(vec![write("a")], start + SETTLING).len(), 1);
    }

    #[test]
    fn write_that_the_server_ignores_is_made_once() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(write("a"), &Outcome::Ignored, None, start);
        assert!(memory.select(vec![write("a")], start + LONGEST_PAUSE * 100).is_empty());
        assert_eq!(memory.select(vec![write("b")], start).len(), 1, "another one may be taken");
    }

    #[test]
    fn drift_is_repaired_at_once_when_the_write_had_arrived() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(write("a"), &Outcome::Written, None, start);
        assert!(memory.select(Vec::new(), start).is_empty());
        assert_eq!(memory.select(vec![write("a")], start).len(), 1);
    }

    #[test]
    fn another_desire_is_written_at_once_when_the_last_one_failed() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(write("a"), &Outcome::Failed("down".into()), None, start);
        assert!(memory.has_failed(&write("a")));
        assert_eq!(memory.select(vec![write("b")], start).len(), 1);
        assert!(!memory.has_failed(&write("b")));
    }

    fn managed(text: &str, generation: Option<i64>) -> Arc<Write> {
        let seen = generation.map(observed);
        let change =
            Change::Manage { fields: json!({"data": text}), manager: "us".into(), mark: "ours", seen };
        Arc::new(Write { target: ObjectKey::new(Kind::Deployment, "shop", "web"), change })
    }

    fn observed(generation: i64) -> Observed {
        Observed::new(&canopus_api::Meta { generation, ..canopus_api::Meta::new("shop", "web") })
    }

    #[test]
    fn managed_object_is_written_again_only_when_it_is_not_as_it_was_left() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let mut due = |write: Arc<Write>, after: i64| {
            let due = memory.select(vec![Arc::clone(&write)], start).len() == 1;
            if due {
                memory.note(write, &Outcome::Written, Some(observed(after)), start);
            }
            due
        };
        assert!(due(managed("a", None), 1), "it is created");
        assert!(!due(managed("a", None), 1), "the watch has not shown it yet");
        assert!(!due(managed("a", Some(1)), 1), "it is as it was left");
        assert!(due(managed("a", Some(2)), 2), "somebody changed it");
        assert!(!due(managed("a", Some(2)), 2), "the server had nothing to change");
        assert!(due(managed("b", Some(2)), 3), "something else is desired");
        assert!(!due(managed("b", Some(3)), 3));
        assert!(due(managed("b", None), 1), "it was deleted");
    }

    #[test]
    fn pauses_double_while_the_same_write_fails() {
        let (mut memory, mut now) = (Memory::default(), Instant::now());
        for expected in [500, 1000, 2000, 4000] {
            memory.note(write("a"), &Outcome::Failed("down".into()), None, now);
            let due = memory.next_due(now).unwrap();
            assert_eq!((due - now).as_millis(), expected);
            now = due;
        }
        for _ in 0..20 {
            memory.note(write("a"), &Outcome::Failed("down".into()), None, now);
        }
        assert_eq!(memory.next_due(now), Some(now + LONGEST_PAUSE));
    }
}
