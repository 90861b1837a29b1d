//! Objects from a directory of YAML and JSON files, or from one file.
//!
//! A document that cannot be read, or is not valid, keeps what it last said; the others go on. Nothing is taken away at the
//! first sight of its absence: files are written in steps, and half of a file may look like a shorter one. What is missing
//! has to be missing at a second look, with nothing written in between.

mod document;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use canopus_api::{Object, ObjectKey};
use canopus_base::hash::ContentHash;

use crate::change::{Change, ProblemScope, SourcePart};
use document::Documents;

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
    complaints: BTreeMap<PathBuf, Vec<String>>,
    listed: bool,
    /// A defect for tests: the next look panics.
    #[cfg(test)]
    is_broken: bool,
}

/// What one file holds.
#[derive(Debug, Default)]
struct File {
    /// Hash of the bytes that were last read; `None` if the file was missing.
    hash: Option<ContentHash>,
    objects: BTreeMap<ObjectKey, Object>,
    problems: Vec<String>,
    /// Whether something in it is missing, and was there before.
    unsettled: bool,
}

/// What a look at the files brought.
#[derive(Debug, Default, PartialEq)]
pub struct Look {
    /// What differs from the look before.
    pub events: Vec<Change>,
    /// Whether nothing is missing that has yet to be missing at a second look.
    pub settled: bool,
}

impl Files {
    /// Objects below `root`, which may also be a single file. Nothing is read yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            files: BTreeMap::new(),
            reported: BTreeMap::new(),
            complaints: BTreeMap::new(),
            listed: false,
            #[cfg(test)]
            is_broken: false,
        }
    }

    /// Looks at what is there now.
    pub fn look(&mut self) -> Result<Look, FilesError> {
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.is_broken), "a defect");
        let mut paths = BTreeSet::new();
        list(&self.root, 0, &mut paths)?;
        self.miss(&paths);
        let mut complaints = BTreeMap::new();
        for path in paths {
            if let Err(error) = self.look_at(&path) {
                complaints.insert(path, vec![error.to_string()]);
            }
        }
        let settled = self.files.values().all(|file| !file.unsettled);
        Ok(Look { events: self.report(complaints), settled })
    }

    /// Notes the files that are not there.
    fn miss(&mut self, paths: &BTreeSet<PathBuf>) {
        self.files.retain(|path, file| {
            let there = paths.contains(path);
            let missed_before = file.hash.is_none();
            if !there {
                file.hash = None;
                file.unsettled = true;
            }
            there || !missed_before
        });
    }

    /// A file that cannot be read keeps what it last held.
    fn look_at(&mut self, path: &Path) -> Result<(), FilesError> {
        let bytes = read_bounded(path).map_err(|source| FilesError { path: path.to_owned(), source })?;
        let hash = Some(ContentHash::compute(&bytes));
        let file = self.files.entry(path.to_owned()).or_default();
        let seen = file.hash == hash;
        if seen && !file.unsettled {
            return Ok(());
        }
        let Documents { objects, problems, broken } = document::read(path, &bytes);
        let before = std::mem::replace(&mut file.objects, objects);
        file.unsettled = false;
        for (key, object) in before {
            let missing = !file.objects.contains_key(&key);
            if missing && (broken.may_be(&key) || !seen) {
                file.unsettled |= !broken.may_be(&key);
                file.objects.insert(key, object);
            }
        }
        file.hash = hash;
        file.problems = problems;
        Ok(())
    }

    fn report(&mut self, mut complaints: BTreeMap<PathBuf, Vec<String>>) -> Vec<Change> {
        let mut now: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for (path, file) in &self.files {
            let mut problems = file.problems.clone();
            for (key, object) in &file.objects {
                if !now.contains_key(key) {
                    now.insert(key.clone(), object.clone());
                } else if !file.unsettled {
                    problems.push(format!("{}: {key} is already defined in another file", path.display()));
                }
            }
            complaints.entry(path.clone()).or_default().extend(problems);
        }
        complaints.retain(|_, problems| !problems.is_empty());

        let first = !std::mem::replace(&mut self.listed, true);
        let mut events = Vec::new();
        events.extend(first.then_some(Change::Begin(SourcePart::Whole)));
        let new = now.iter().filter(|(key, object)| self.reported.get(*key) != Some(*object));
        events.extend(new.map(|(_, object)| Change::Set(object.clone())));
        let gone = self.reported.keys().filter(|key| !now.contains_key(*key));
        events.extend(gone.map(|key| Change::Remove(key.clone())));
        events.extend(first.then_some(Change::End(SourcePart::Whole)));
        events.extend(said_anew(&self.complaints, &complaints));
        self.reported = now;
        self.complaints = complaints;
        events
    }
}

/// The complaints that differ from what was said before.
fn said_anew(
    before: &BTreeMap<PathBuf, Vec<String>>,
    now: &BTreeMap<PathBuf, Vec<String>>,
) -> impl Iterator<Item = Change> {
    let event = |path: &PathBuf, problems| Change::Problems(ProblemScope::File(path.clone()), problems);
    let over = before.keys().filter(|path| !now.contains_key(*path));
    let new = now.iter().filter(|(path, problems)| before.get(*path) != Some(*problems));
    let new = new.map(move |(path, problems)| event(path, problems.clone()));
    over.map(move |path| event(path, Vec::new())).chain(new)
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
            Ok(data) if data.is_file() && is_document(&entry) => {
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
