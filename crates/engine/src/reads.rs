//! What a query has read.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::Subject;

/// Up to this many subjects are searched one by one.
const SEARCHED: usize = 16;

/// Distinct subjects in the order they were first read.
#[derive(Default)]
pub(crate) struct Reads {
    list: SmallVec<[Subject; SEARCHED]>,
    /// The subjects in the list once it is too long to be searched, by where they are kept.
    seen: Option<Box<FxHashSet<usize>>>,
}

impl Reads {
    pub(crate) fn record(&mut self, subject: Subject) {
        if self.list.len() < SEARCHED {
            if self.list.contains(&subject) {
                return;
            }
        } else {
            let seen = self.seen.get_or_insert_with(|| Box::new(self.list.iter().map(place).collect()));
            if !seen.insert(place(&subject)) {
                return;
            }
        }
        self.list.push(subject);
    }

    pub(crate) fn as_slice(&self) -> &[Subject] {
        &self.list
    }

    pub(crate) fn into_subjects(self) -> Box<[Subject]> {
        // A vector made from the list would be as large as the list may become, and cut to size after that.
        let mut subjects = Vec::with_capacity(self.list.len());
        subjects.extend(self.list);
        subjects.into_boxed_slice()
    }
}

/// Tells a subject from all others that are alive.
fn place(subject: &Subject) -> usize {
    std::sync::Arc::as_ptr(&subject.0).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::intern::Registry;
    use crate::subject::Value;

    struct Number;
    impl Input for Number {
        const NAME: &'static str = "number";
        type Key = u32;
        type Value = u32;
        type Index = ();
    }

    #[test]
    fn each_subject_is_kept_once_in_the_order_it_was_first_read() {
        let registry = Registry::default();
        for count in [1, 16, 17, 100] {
            let mut reads = Reads::default();
            for key in (0..count).chain((0..count).rev()) {
                reads.record(registry.intern::<Value<Number>>(&key));
            }
            let keys = reads.as_slice().iter().map(|subject| *subject.input::<Number>().unwrap());
            assert!(keys.eq(0..count));
            assert_eq!(reads.into_subjects().len(), count as usize);
        }
    }
}
