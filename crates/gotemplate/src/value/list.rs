//! Slices.

use std::sync::Arc;

use super::{Value, map};

/// A Go slice. Nothing in a template changes a slice in place, so it is shared without a lock.
#[derive(Clone, Debug)]
pub struct List {
    elem: Elem,
    items: Option<Arc<Items>>,
}

/// What a slice was declared to hold. Templates see it in `printf "%T"`, in error texts and in which functions accept it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    /// `[]interface {}`.
    Any,
    /// `[]string`.
    String,
    /// `[]int`.
    Int,
    /// `[][]interface {}`.
    List,
}

#[derive(Debug)]
struct Items(Vec<Value>);

impl Drop for Items {
    fn drop(&mut self) {
        map::drop_iteratively(std::mem::take(&mut self.0));
    }
}

impl List {
    /// A slice of type `[]interface {}`.
    pub fn new(items: Vec<Value>) -> Self {
        Self::typed(Elem::Any, items)
    }

    /// A slice whose elements all have the given type; that they do is for the caller to see to.
    pub fn typed(elem: Elem, items: Vec<Value>) -> Self {
        Self { elem, items: Some(Arc::new(Items(items))) }
    }

    /// A nil slice: empty, and `null` in JSON.
    pub fn nil(elem: Elem) -> Self {
        Self { elem, items: None }
    }

    /// Whether this is a nil slice, as opposed to an empty one.
    pub fn is_nil(&self) -> bool {
        self.items.is_none()
    }

    /// What the slice was declared to hold.
    pub fn elem(&self) -> Elem {
        self.elem
    }

    /// The items.
    pub fn items(&self) -> &[Value] {
        self.items.as_ref().map_or(&[], |items| &items.0)
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.elem {
            Elem::Any => "[]interface {}",
            Elem::String => "[]string",
            Elem::Int => "[]int",
            Elem::List => "[][]interface {}",
        }
    }

    /// Takes the items out if nothing else refers to them.
    pub(super) fn into_sole_items(self) -> Option<Vec<Value>> {
        let mut items = Arc::try_unwrap(self.items?).ok()?;
        Some(std::mem::take(&mut items.0))
    }
}

impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::new(items.into_iter().collect())
    }
}
