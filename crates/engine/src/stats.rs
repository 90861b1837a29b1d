//! Counters of size and work.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::typemap::TypeMap;

/// The size of an engine, and the work it has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Inputs that have a value.
    pub inputs: usize,
    /// Memoised queries.
    pub memos: usize,
    /// Watched queries.
    pub roots: usize,
    /// Recorded reads, one per memo and distinct subject.
    pub edges: usize,
    /// Times a memo was marked as possibly stale after a change: what a change costs before anything is evaluated.
    pub marks: u64,
    /// Times a query function ran.
    pub evaluations: u64,
    /// Times a dirty memo was verified and kept without running its query.
    pub validations: u64,
    /// Times a query was answered by a clean memo.
    pub hits: u64,
    /// Estimated memory of inputs, memos and edges, without what keys and values own on the heap.
    pub bytes: usize,
}

/// The work one engine has done.
#[derive(Default)]
pub(crate) struct Counters {
    /// By query family: its name, and how often one of its queries ran.
    evaluations: TypeMap<(&'static str, AtomicU64)>,
    marks: AtomicU64,
    validations: AtomicU64,
    hits: AtomicU64,
}

impl Counters {
    pub(crate) fn add_evaluation(&self, family: TypeId, name: &'static str) {
        let (_, count) = self.evaluations.get_or_insert_with(family, || (name, AtomicU64::new(0)));
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_marks(&self, marks: u64) {
        self.marks.fetch_add(marks, Ordering::Relaxed);
    }

    pub(crate) fn add_validation(&self) {
        self.validations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_hits(&self, hits: u64) {
        if hits > 0 {
            self.hits.fetch_add(hits, Ordering::Relaxed);
        }
    }

    pub(crate) fn marks(&self) -> u64 {
        self.marks.load(Ordering::Relaxed)
    }

    pub(crate) fn validations(&self) -> u64 {
        self.validations.load(Ordering::Relaxed)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Evaluations by the name of the query family.
    pub(crate) fn evaluations(&self) -> BTreeMap<&'static str, u64> {
        let mut by_name = BTreeMap::new();
        for (name, count) in self.evaluations.values() {
            *by_name.entry(*name).or_default() += count.load(Ordering::Relaxed);
        }
        by_name
    }
}
