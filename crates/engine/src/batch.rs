//! Changes to inputs, applied together.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Input;

/// Changes to inputs that take effect together; the last change to a key wins.
#[derive(Default)]
pub struct Batch {
    pub(crate) changes: FxHashMap<TypeId, Box<dyn Changes>>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an input.
    pub fn set<I: Input>(&mut self, key: I::Key, value: I::Value) -> &mut Self {
        self.set_shared::<I>(key, Arc::new(value))
    }

    /// Sets an input to a value that is already shared.
    pub fn set_shared<I: Input>(&mut self, key: I::Key, value: Arc<I::Value>) -> &mut Self {
        self.changes_of::<I>().insert(key, Some(value));
        self
    }

    /// Removes an input; no change if it is not there.
    pub fn remove<I: Input>(&mut self, key: &I::Key) -> &mut Self {
        self.changes_of::<I>().insert(key.clone(), None);
        self
    }

    /// Whether nothing has been set or removed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn changes_of<I: Input>(&mut self) -> &mut BTreeMap<I::Key, Option<Arc<I::Value>>> {
        let changes: &mut dyn Any = self
            .changes
            .entry(TypeId::of::<I>())
            .or_insert_with(|| Box::new(TypedChanges::<I>(BTreeMap::new())))
            .as_mut();
        &mut changes.downcast_mut::<TypedChanges<I>>().expect("keyed by the type id of I").0
    }
}

pub(crate) struct TypedChanges<I: Input>(pub(crate) BTreeMap<I::Key, Option<Arc<I::Value>>>);

pub(crate) trait Changes: Any + Send {
    fn apply(self: Box<Self>, state: &mut crate::simple::State) -> bool;
}

impl<I: Input> Changes for TypedChanges<I> {
    fn apply(self: Box<Self>, state: &mut crate::simple::State) -> bool {
        let mut changed = false;
        for (key, value) in self.0 {
            changed |= state.set::<I>(key, value);
        }
        changed
    }
}
