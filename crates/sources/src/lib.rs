//! Where objects come from.
//!
//! A source watches something outside, decodes it into typed objects and reports what changed since its last report. It
//! never reports an object as gone because it could not look: what cannot be read keeps its last good state.
//!
//! Must not know what objects are used for.

pub mod files;

use std::collections::BTreeSet;

use canopus_api::{Object, ObjectKey};

/// What changed since the last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Objects that are new or different.
    pub set: Vec<Object>,
    /// Objects that are gone.
    pub removed: Vec<ObjectKey>,
    /// What could not be read, with its place.
    pub problems: Vec<String>,
}

impl Update {
    /// Adds what a later report of the same source says.
    pub fn merge(&mut self, later: Self) {
        let again: BTreeSet<ObjectKey> = later.set.iter().map(Object::key).collect();
        self.removed.retain(|key| !again.contains(key));
        self.set.retain(|object| !later.removed.contains(&object.key()) && !again.contains(&object.key()));
        self.set.extend(later.set);
        self.removed.extend(later.removed);
        self.problems = later.problems;
    }

    /// Whether any object changed.
    pub fn changes_nothing(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }
}
