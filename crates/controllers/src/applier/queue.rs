//! Writes that are due and have not begun.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use canopus_api::ObjectKey;

use crate::controller::Write;

/// The writes of the last plan that wait, and the objects that are being written.
///
/// The newest and the oldest begin in turn: somebody who changes an object does not wait for thousands of others, and those do not
/// wait for ever while objects keep changing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The newest first.
    waiting: VecDeque<Arc<Write>>,
    under_way: BTreeSet<ObjectKey>,
    /// Objects under way that a plan has listed since.
    overtaken: BTreeSet<ObjectKey>,
    takes_oldest: bool,
}

impl Queue {
    /// Replaces what waits by what another plan found due. Writes that waited keep their places.
    pub(super) fn replace(&mut self, due: Vec<Arc<Write>>) {
        let mut new: BTreeMap<ObjectKey, Arc<Write>> = BTreeMap::new();
        for write in due {
            if self.under_way.contains(&write.target) {
                self.overtaken.insert(write.target.clone());
            } else {
                new.insert(write.target.clone(), write);
            }
        }
        let before = std::mem::take(&mut self.waiting);
        let kept: Vec<_> = before.iter().filter_map(|write| new.remove(&write.target)).collect();
        self.waiting = new.into_values().chain(kept).collect();
    }

    /// The next write; its object counts as being written from now on.
    pub(super) fn begin(&mut self) -> Option<Arc<Write>> {
        self.takes_oldest = !self.takes_oldest;
        let write = if self.takes_oldest { self.waiting.pop_back() } else { self.waiting.pop_front() }?;
        self.under_way.insert(write.target.clone());
        Some(write)
    }

    /// The write of an object ended. True if a plan wanted to write it meanwhile, so that another plan has to say what is due now.
    pub(super) fn end(&mut self, target: &ObjectKey) -> bool {
        self.under_way.remove(target);
        self.overtaken.remove(target)
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::Kind;
    use serde_json::json;

    use super::*;
    use crate::controller::{Change, Ownership};

    fn write(name: &str) -> Arc<Write> {
        let change = Change::Apply { fields: json!({}), ownership: Ownership::Take };
        Arc::new(Write { target: ObjectKey::new(Kind::ConfigMap, "shop", name), change })
    }

    fn next(queue: &mut Queue) -> Option<String> {
        queue.begin().map(|write| write.target.name.to_string())
    }

    #[test]
    fn change_does_not_wait_for_a_backlog_nor_the_backlog_for_changes() {
        let mut queue = Queue::default();
        queue.replace(["a", "b", "c", "d", "e"].map(write).into());
        assert_eq!(next(&mut queue).as_deref(), Some("e"));
        queue.replace(["a", "b", "c", "d", "new"].map(write).into());
        assert_eq!(next(&mut queue).as_deref(), Some("new"));
        queue.replace(["a", "b", "c", "d", "newer"].map(write).into());
        assert_eq!(next(&mut queue).as_deref(), Some("d"), "the oldest has its turn");
        assert_eq!(next(&mut queue).as_deref(), Some("newer"));
    }

    #[test]
    fn object_is_written_by_one_write_at_a_time() {
        let mut queue = Queue::default();
        queue.replace(vec![write("a")]);
        let begun = queue.begin().unwrap();
        queue.replace(vec![write("a")]);
        assert_eq!(next(&mut queue), None, "it is under way");
        assert!(queue.end(&begun.target), "a plan has to say whether it is still due");
        queue.replace(vec![write("a")]);
        let begun = queue.begin().unwrap();
        assert!(!queue.end(&begun.target));
    }

    #[test]
    fn what_no_plan_lists_any_more_is_not_written() {
        let mut queue = Queue::default();
        queue.replace(["a", "b"].map(write).into());
        queue.replace(vec![write("b")]);
        assert_eq!(next(&mut queue).as_deref(), Some("b"));
        assert_eq!(next(&mut queue), None);
    }
}
