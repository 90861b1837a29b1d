//! Base facts and the batches that set them.

use crate::Key;

/// A family of base facts, set from outside in batches.
pub trait Input: 'static {
    /// What provenance and errors call this family.
    const NAME: &'static str;
    /// Names one fact of the family; lists of keys are sorted.
    type Key: Key + Ord;
    /// The fact; setting an equal value is no change.
    type Value: PartialEq + Send + Sync + 'static;
    /// Names a bucket of facts; `()` where buckets are not used.
    type Index: Key + Ord;

    /// Buckets a value belongs to ("all rules in namespace a"); membership of a bucket is a tracked read.
    ///
    /// Must be a pure function of its arguments. Naming a bucket twice is the same as naming it once.
    fn index(key: &Self::Key, value: &Self::Value) -> Vec<Self::Index> {
        let _ = (key, value);
        Vec::new()
    }
}
