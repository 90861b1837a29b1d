//! Merge keys: `<<: *defaults`.

use crate::FastMap;
use crate::tree::{DuplicateKey, Entry, Map, Node, ReadError, ReadErrorKind, Value};

/// What has to be known of a map's entries once some of them were merged in.
pub(super) struct Merged {
    /// Where each key stands.
    index: FastMap<Box<str>, usize>,
    /// Which entries the map itself has given.
    own: Vec<bool>,
}

/// Merges the value of a `<<` key: a map, or a list of maps of which the first has precedence.
pub(super) fn merge(
    entries: &mut Vec<Entry>,
    merged: &mut Option<Box<Merged>>,
    node: Node,
) -> Result<(), ReadError> {
    let maps: Vec<Map> = match node.value {
        Value::Map(map) => vec![map],
        Value::List(items) => items.into_iter().map(into_map).collect::<Result<_, _>>()?,
        _ => return Err(ReadError::new(node.at, ReadErrorKind::Merge)),
    };
    let merged = match merged {
        Some(merged) => merged,
        None => merged.insert(Box::new(Merged::collect(entries)?)),
    };
    for entry in maps.into_iter().rev().flat_map(Map::into_entries) {
        merged.put(entries, entry, false);
    }
    Ok(())
}

fn into_map(node: Node) -> Result<Map, ReadError> {
    match node.value {
        Value::Map(map) => Ok(map),
        _ => Err(ReadError::new(node.at, ReadErrorKind::Merge)),
    }
}

impl Merged {
    fn collect(entries: &[Entry]) -> Result<Self, ReadError> {
        let mut index = FastMap::default();
        for (at, entry) in entries.iter().enumerate() {
            if index.insert(entry.key.clone(), at).is_some() {
                let kind = ReadErrorKind::DuplicateKey { key: entry.key.clone() };
                return Err(ReadError::new(entry.key_at, kind));
            }
        }
        Ok(Self { index, own: vec![true; entries.len()] })
    }

    /// Adds an entry of the map's own, over one merged in before it.
    pub(super) fn set(&mut self, entries: &mut Vec<Entry>, entry: Entry) -> Result<(), DuplicateKey> {
        match self.index.get(&entry.key) {
            Some(at) if self.own[*at] => Err(DuplicateKey { key: entry.key, at: entry.key_at }),
            _ => {
                self.put(entries, entry, true);
                Ok(())
            }
        }
    }

    /// Adds an entry or replaces the one that has its key.
    ///
    /// Parity: a merge overrides even what the map itself has given further up, because merging happens where it stands.
    fn put(&mut self, entries: &mut Vec<Entry>, entry: Entry, own: bool) {
        if let Some(at) = self.index.get(&entry.key) {
            self.own[*at] |= own;
            entries[*at] = entry;
            return;
        }
        self.index.insert(entry.key.clone(), entries.len());
        self.own.push(own);
        entries.push(entry);
    }
}
