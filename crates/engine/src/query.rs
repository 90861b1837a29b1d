//! Derived facts.

use crate::{Ctx, Key};

/// A family of derived facts: a pure function of inputs and other queries.
pub trait Query: 'static {
    /// What provenance and errors call this family.
    const NAME: &'static str;
    /// Names one fact of the family; the only argument of the function.
    type Key: Key;
    /// The result; a recomputed value equal to the old one stops the change from spreading.
    type Value: PartialEq + Send + Sync + 'static;

    /// Computes the value, reading only its key and what `ctx` gives.
    ///
    /// No clock, no randomness, no I/O: the engine decides from the recorded reads alone whether to run it again.
    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value;

    /// Whether a recomputed value is as good as the old one; override where something cheaper than `==` decides it,
    /// such as a fingerprint kept in the value.
    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        old == new
    }
}
