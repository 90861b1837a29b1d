//! How often each patch applied.

use std::collections::BTreeMap;

use crate::audience::PatchId;

/// How many of the objects a patch was held against it applied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of objects the patch applied to.
    pub applied: usize,
    /// Number of objects the patch was not for, or could not be applied to.
    pub passed_over: usize,
    /// Number of objects that proxies would have rejected after the patch, so it was left out.
    pub refused: usize,
}

/// The counts of all patches that something was held against.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally(BTreeMap<PatchId, Count>);

impl Tally {
    pub(super) fn note(&mut self, patch: &PatchId, applied: bool) {
        let count = self.0.entry(patch.clone()).or_default();
        if applied {
            count.applied += 1;
        } else {
            count.passed_over += 1;
        }
    }

    /// Notes that a patch was left out because the proxy would have refused the result.
    pub(super) fn refuse(&mut self, patch: &PatchId) {
        self.0.entry(patch.clone()).or_default().refused += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (patch, count) in &other.0 {
            let sum = self.0.entry(patch.clone()).or_default();
            sum.applied += count.applied;
            sum.passed_over += count.passed_over;
            sum.refused += count.refused;
        }
    }

    /// The counts, by patch.
    pub(crate) fn into_counts(self) -> BTreeMap<PatchId, Count> {
        self.0
    }
}
