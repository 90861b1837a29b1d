//! What one file says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use canopus_api::decode::Identity;
use canopus_api::validate::validate;
use canopus_api::{Kind, Object, ObjectKey, Options, decode_documents};
use canopus_base::tree::Limits;

/// The documents of a file.
pub(super) struct Documents {
    /// Objects that were read.
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    /// What is wrong, with its place.
    pub(super) problems: Vec<String>,
    /// Documents that cannot be read.
    pub(super) broken: Broken,
}

/// Documents that cannot be read.
#[derive(Default)]
pub(super) struct Broken {
    /// Keys of the broken documents that name their object.
    known: BTreeSet<ObjectKey>,
    /// Whether there are others: they may be anything.
    unknown: bool,
}

impl Broken {
    /// Whether one of the broken documents may be this object.
    pub(super) fn may_be(&self, key: &ObjectKey) -> bool {
        self.unknown || self.known.contains(key)
    }

    fn add(&mut self, object: &Identity) {
        match Kind::lookup(&object.api_version, &object.kind) {
            Ok(kind) if !object.name.is_empty() => {
                self.known.insert(ObjectKey::new(kind, &object.namespace, &object.name));
            }
            _ => self.unknown = true,
        }
    }
}

/// Reads the documents of a file. Each stands alone.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Documents {
    let mut documents =
        Documents { objects: BTreeMap::new(), problems: Vec::new(), broken: Broken::default() };
    for outcome in decode_documents(bytes, &Limits::default(), Options::watch()) {
        match outcome {
            Ok(decoded) => {
                let key = decoded.value.key();
                let ignored =
                    decoded.ignored.iter().map(|problem| format!("{}: {key}: {problem}", path.display()));
                documents.problems.extend(ignored);
                documents.take(path, key, decoded.value);
            }
            Err(error) => {
                if !error.is_unknown_kind() {
                    documents.broken.add(&error.object);
                }
                documents.problems.push(format!("{}: {error}", path.display()));
            }
        }
    }
    documents
}

impl Documents {
    fn take(&mut self, path: &Path, key: ObjectKey, object: Object) {
        match validate(&object).error_text() {
            None => {
                if self.objects.insert(key.clone(), object).is_some() {
                    self.problems
                        .push(format!("{}: {key} is defined twice; the last counts", path.display()));
                }
            }
            Some(errors) => {
                self.problems.push(format!("{}: {key} is not valid: {errors}", path.display()));
                self.broken.known.insert(key);
            }
        }
    }
}
