//! The reads of a running query.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::Subject;

/// Up to this many subjects a linear search is faster than hashing.
const LINEAR_SEARCH_MAX: usize = 16;

/// Distinct subjects in the order they were first read.
#[derive(Default)]
pub(crate) struct ReadLog {
    list: SmallVec<[Subject; LINEAR_SEARCH_MAX]>,
    /// The addresses of the subjects in the list, once it is too long to search.
    addresses: Option<Box<FxHashSet<usize>>>,
}

impl ReadLog {
    pub(crate) fn record(&mut self, subject: Subject) {
        if self.list.len() < LINEAR_SEARCH_MAX {
            if self.list.contains(&subject) {
                return;
            }
        } else {
            let addresses =
                self.addresses.get_or_insert_with(|| Box::new(self.list.iter().map(address).collect()));
            if !addresses.insert(address(&subject)) {
                return;
            }
        }
        self.list.push(subject);
    }

    pub(crate) fn as_slice(&self) -> &[Subject] {
        &self.list
    }

    pub(crate) fn into_subjects(self) -> Box<[Subject]> {
        // Copied into an allocation of the right size: the list's own would be as large as its capacity, then shrunk.
        let mut subjects = Vec::with_capacity(self.list.len());
        subjects.extend(self.list);
        subjects.into_boxed_slice()
    }
}

/// Identifies a subject among those that are alive, because equal subjects are one allocation.
fn address(subject: &Subject) -> usize {
    Arc::as_ptr(&subject.0).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::node::{InputNode, Interner};

    struct Number;
    impl Input for Number {
        const NAME: &'static str = "number";
        type Key = u32;
        type Value = u32;
        type Index = ();
    }

    #[test]
    fn each_subject_is_kept_once_in_the_order_it_was_first_read() {
        let interner = Interner::default();
        for count in [1, 16, 17, 100] {
            let mut reads = ReadLog::default();
            for key in (0..count).chain((0..count).rev()) {
                reads.record(interner.intern::<InputNode<Number>>(&key));
            }
            let keys = reads.as_slice().iter().map(|subject| *subject.input::<Number>().unwrap());
            assert!(keys.eq(0..count));
            assert_eq!(reads.into_subjects().len(), count as usize);
        }
    }
}
