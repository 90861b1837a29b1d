//! Objects from a directory of YAML and JSON files, or from one file.

mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use canopus_api::{Object, ObjectKey, Options, decode_documents};
use canopus_base::hash::ContentHash;
use canopus_base::tree::Limits;

use crate::Update;
pub use watch::watch;

/// A file above this size is refused: nobody writes it by hand, and it would be held in memory several times.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// How deep directories may nest; a cycle of symbolic links ends here.
const MAX_DEPTH: usize = 32;

/// Why the files could not be looked at. The last good state stays.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}", path = path.display())]
pub struct FilesError {
    path: PathBuf,
    source: io::Error,
}

/// A directory of documents and what was last read from it.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    files: BTreeMap<PathBuf, File>,
    reported: BTreeMap<ObjectKey, Object>,
}

/// What one file held when it was last read.
#[derive(Debug)]
struct File {
    hash: ContentHash,
    objects: BTreeMap<ObjectKey, Object>,
    problems: Vec<String>,
}

impl Files {
    /// Objects below `root`, which may also be a single file. Nothing is read yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), files: BTreeMap::new(), reported: BTreeMap::new() }
    }

    /// Reads what is there now and reports the difference to the last call.
    pub fn read(&mut self) -> Result<Update, FilesError> {
        let mut paths = BTreeSet::new();
        list(&self.root, 0, &mut paths)?;
        self.files.retain(|path, _| paths.contains(path));
        let mut unreadable = Vec::new();
        for path in paths {
            if let Err(error) = self.read_file(&path) {
                unreadable.push(error.to_string());
            }
        }
        Ok(self.report(unreadable))
    }

    /// A file that cannot be read keeps what it last held, as does a document that cannot be decoded.
    fn read_file(&mut self, path: &Path) -> Result<(), FilesError> {
        let bytes = read_bounded(path).map_err(|source| FilesError { path: path.to_owned(), source })?;
        let hash = ContentHash::of(&bytes);
        if self.files.get(path).is_none_or(|file| file.hash != hash) {
            let last = self.files.remove(path).map(|file| file.objects).unwrap_or_default();
            self.files.insert(path.to_owned(), decode(path, hash, &bytes, last));
        }
        Ok(())
    }

    fn report(&mut self, mut problems: Vec<String>) -> Update {
        let mut now: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for (path, file) in &self.files {
            problems.extend(file.problems.iter().cloned());
            for (key, object) in &file.objects {
                if now.contains_key(key) {
                    problems.push(format!("{}: {key} is already defined in another file", path.display()));
                } else {
                    now.insert(key.clone(), object.clone());
                }
            }
        }
        let set = now.iter().filter(|(key, object)| self.reported.get(*key) != Some(*object));
        let set = set.map(|(_, object)| object.clone()).collect();
        let removed = self.reported.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
        self.reported = now;
        Update { set, removed, problems }
    }
}

fn decode(path: &Path, hash: ContentHash, bytes: &[u8], last: BTreeMap<ObjectKey, Object>) -> File {
    let mut objects = BTreeMap::new();
    let mut problems = Vec::new();
    let mut whole = true;
    for outcome in decode_documents(bytes, &Limits::default(), Options::watch()) {
        match outcome {
            Ok(decoded) => {
                let key = decoded.value.key();
                problems.extend(
                    decoded.ignored.iter().map(|problem| format!("{}: {key}: {problem}", path.display())),
                );
                objects.insert(key, decoded.value);
            }
            Err(error) => {
                whole &= error.is_unknown_kind();
                problems.push(format!("{}: {error}", path.display()));
            }
        }
    }
    if !whole {
        // The broken document may be one of these, half written.
        for (key, object) in last {
            objects.entry(key).or_insert(object);
        }
    }
    File { hash, objects, problems }
}

/// Documents below `path`. Names with a leading dot are skipped: editors' scratch files, and the `..data` directories
/// behind the links of a mounted ConfigMap.
fn list(path: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) -> Result<(), FilesError> {
    let fail = |source| FilesError { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(fail)?.is_dir() {
        found.insert(path.to_owned());
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(fail(io::Error::other("directories nest too deeply")));
    }
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        let hidden = entry.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        match fs::metadata(&entry) {
            _ if hidden => {}
            Ok(data) if data.is_dir() => list(&entry, depth + 1, found)?,
            Ok(_) if is_document(&entry) => {
                found.insert(entry);
            }
            Ok(_) => {}
            // Gone between listing and looking, or a dangling link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FilesError { path: entry, source: error }),
        }
    }
    Ok(())
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
