//! Maps: shared, and changed in place by `set`, `unset` and the merges.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Str, Value};

/// A Go map with string keys. Copies refer to one map, as in Go: a change through one is seen through all.
///
/// Charts rely on that (`set .Values …`). A map never contains itself: whatever inserts checks it, so that maps are freed
/// and every walk ends.
#[derive(Clone, Debug)]
pub struct Map {
    kind: MapKind,
    cell: Option<Arc<Cell>>,
}

/// What a map was declared to be. Templates see it in `printf "%T"`, in error texts and in which functions accept it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// `map[string]interface {}`.
    Any,
    /// `map[string]string`.
    String,
    /// A named type whose definition is `map[string]interface {}`.
    Named(&'static str),
}

#[derive(Debug)]
struct Cell(RwLock<BTreeMap<Str, Value>>);

impl Drop for Cell {
    fn drop(&mut self) {
        let entries = std::mem::take(self.0.get_mut());
        drop_iteratively(entries.into_values().collect());
    }
}

/// Frees values without recursion: a template can nest them deeper than the stack is.
pub(super) fn drop_iteratively(mut pending: Vec<Value>) {
    while let Some(value) = pending.pop() {
        match value {
            Value::List(list) => pending.extend(list.into_sole_items().unwrap_or_default()),
            Value::Map(map) => pending.extend(map.into_sole_values()),
            _ => {}
        }
    }
}

impl Map {
    /// An empty `map[string]interface {}`.
    pub fn new() -> Self {
        Self::typed(MapKind::Any, BTreeMap::new())
    }

    /// A map of the given type with these entries.
    pub fn typed(kind: MapKind, entries: BTreeMap<Str, Value>) -> Self {
        Self { kind, cell: Some(Arc::new(Cell(RwLock::new(entries)))) }
    }

    /// A nil map: empty, `null` in JSON, and nothing can be put in it.
    pub fn nil(kind: MapKind) -> Self {
        Self { kind, cell: None }
    }

    /// Whether this is a nil map, as opposed to an empty one.
    pub fn is_nil(&self) -> bool {
        self.cell.is_none()
    }

    /// What the map was declared to be.
    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// The same map seen as another type.
    #[must_use]
    pub fn with_kind(mut self, kind: MapKind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether both are one map, so that a change of one is a change of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.cell, &other.cell) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The value under a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.cell.as_ref()?.0.read().get(key.as_ref()).cloned()
    }

    /// Whether a key is present, be its value nil.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.0.read().contains_key(key.as_ref()))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.cell.as_ref().map_or(0, |cell| cell.0.read().len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries at this moment, in the order of their keys.
    pub fn entries(&self) -> Vec<(Str, Value)> {
        let Some(cell) = &self.cell else { return Vec::new() };
        cell.0.read().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Sets a key. Nothing happens to a nil map or when the value contains this very map; [`Map::try_insert`] tells.
    pub fn insert(&self, key: impl Into<Str>, value: impl Into<Value>) {
        // The two refusals are documented above.
        let _ = self.try_insert(key.into(), value.into());
    }

    /// Sets a key, refused for a nil map and for a value that contains this very map.
    pub fn try_insert(&self, key: Str, value: Value) -> Result<(), InsertError> {
        let Some(cell) = &self.cell else { return Err(InsertError::NilMap) };
        if value.contains_map(self) {
            return Err(InsertError::Cycle);
        }
        cell.0.write().insert(key, value);
        Ok(())
    }

    /// Takes a key out.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.cell.as_ref()?.0.write().remove(key.as_ref())
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            MapKind::Any => "map[string]interface {}",
            MapKind::String => "map[string]string",
            MapKind::Named(name) => name,
        }
    }

    fn into_sole_values(self) -> Vec<Value> {
        let Some(Ok(mut cell)) = self.cell.map(Arc::try_unwrap) else { return Vec::new() };
        std::mem::take(cell.0.get_mut()).into_values().collect()
    }

    /// Identifies the map among those alive.
    pub(super) fn address(&self) -> Option<usize> {
        self.cell.as_ref().map(|cell| Arc::as_ptr(cell) as usize)
    }
}

/// Why a value cannot be put in a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// Go panics with these words.
    #[error("assignment to entry in nil map")]
    NilMap,
    /// Go would allow it and then run out of stack as soon as the map is printed.
    #[error("the value contains the map it is put in; copy it with deepCopy first")]
    Cycle,
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self::typed(MapKind::Any, entries.collect())
    }
}
