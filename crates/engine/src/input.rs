//! Inputs: the values that everything else is derived from.

use crate::Key;

/// A family of inputs: values set from outside, in batches.
pub trait Input: 'static {
    /// Name of the family in provenance and errors.
    const NAME: &'static str;
    /// Identifies one input of the family. Lists of keys are sorted.
    type Key: Key + Ord;
    /// The value of an input. Setting an equal value is no change.
    type Value: PartialEq + Send + Sync + 'static;
    /// Identifies a bucket of inputs; `()` if the family has no buckets.
    type Index: Key + Ord;

    /// The buckets that an input belongs to, such as "all rules in namespace a". Which inputs a bucket has can be read, and
    /// is a dependency of its own.
    ///
    /// Must be a pure function of its arguments. Naming a bucket twice is the same as naming it once.
    fn index(key: &Self::Key, value: &Self::Value) -> Vec<Self::Index> {
        let _ = (key, value);
        Vec::new()
    }
}
