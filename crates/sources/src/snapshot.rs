//! The input world on disk, so that a control plane that starts can serve before its sources answer.
//!
//! One file per source, in a directory of its own: a line that says what it is, a line of JSON per object, and a line with
//! the checksum of all before it. A file is replaced as a whole or not at all, and counts only as a whole. Secrets are never
//! written: proxies that run keep theirs, and nobody finds keys on a disk.

mod keeper;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use canopus_api::{Kind, Object, Options};
use canopus_base::hash::{ContentHash, Hasher};
use canopus_base::json;
use canopus_base::tree::Limits;
use serde::{Deserialize, Serialize};

pub use keeper::Keeper;

use crate::change::{Saved, SourceInfo};

/// What this version writes, and the only version it reads.
const VERSION: u32 = 1;

/// A world larger than this is neither written nor read.
const MAX_BYTES: u64 = 1 << 30;

/// A line longer than this is not one of ours.
const MAX_LINE: u64 = 16 << 20;

/// Why a snapshot could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file system does not play along.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The file is not what was written, or was written by another version.
    #[error("{path}: {reason}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The snapshot would be larger than allowed.
    #[error("{path}: more than {MAX_BYTES} bytes would have to be written", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    canopus_snapshot: u32,
    source: Box<str>,
    cluster: Box<str>,
    objects: usize,
    /// The kinds of which all objects are in the file; absent if the source is not followed kind by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kinds: Option<Vec<String>>,
}

/// The last line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Tail {
    checksum: ContentHash,
}

/// A directory of snapshots.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Snapshots in a directory, which is made if it is not there, for its owner alone.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, SnapshotError> {
        let directory = directory.into();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        // Whether anything can be written shows only in the attempt.
        let probe = directory.join(".probe");
        let writable = made.and_then(|()| File::create(&probe)).and_then(|_| fs::remove_file(&probe));
        match writable {
            Ok(()) => Ok(Self { directory }),
            Err(source) => Err(SnapshotError::Io { path: directory, source }),
        }
    }

    /// Writes what a source has. What was written before stays until all of it is on the disk.
    pub fn save(
        &self,
        source: &SourceInfo,
        objects: &[Object],
        kinds: Option<&BTreeSet<Kind>>,
    ) -> Result<(), SnapshotError> {
        let path = self.path(source);
        let scratch = path.with_extension("new");
        let written = write(&scratch, source, objects, kinds).and_then(|whole| {
            if whole {
                fs::rename(&scratch, &path)?;
                File::open(&self.directory)?.sync_all()?;
            }
            Ok(whole)
        });
        match written {
            Ok(true) => Ok(()),
            failed => {
                // What is left is of no use; if it cannot go, the next attempt takes its place.
                let _ = fs::remove_file(&scratch);
                Err(match failed {
                    Ok(_) => SnapshotError::TooLarge { path },
                    Err(source) => SnapshotError::Io { path, source },
                })
            }
        }
    }

    /// Reads what a source had; nothing if nothing was written.
    pub fn load(&self, source: &SourceInfo) -> Result<Option<Saved>, SnapshotError> {
        let path = self.path(source);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| SnapshotError::Io { path: path.clone(), source })?,
        };
        read(file, source).map(Some).map_err(|reason| SnapshotError::Unusable { path, reason })
    }

    /// The sources that something was written of. Files that are not ours are passed over.
    pub fn sources(&self) -> Vec<SourceInfo> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut sources: Vec<SourceInfo> = entries.filter_map(|entry| read_head(&entry.path())).collect();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        sources
    }

    /// Removes what was written of a source, if anything was.
    pub(crate) fn remove(&self, source: &SourceInfo) {
        let path = self.path(source);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a snapshot that is not needed any more cannot be removed");
        }
    }

    fn path(&self, source: &SourceInfo) -> PathBuf {
        // Names have characters that file names cannot have, and two names must not become one.
        let legible = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = source.name.chars().take(64).map(legible).collect();
        let hash = ContentHash::compute(source.name.as_bytes()).to_string();
        self.directory.join(format!("{name}-{}.jsonl", &hash[..8]))
    }
}

/// Writes a file; false if it would become too large.
fn write(
    path: &Path,
    source: &SourceInfo,
    objects: &[Object],
    kinds: Option<&BTreeSet<Kind>>,
) -> io::Result<bool> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut out = BufWriter::new(&file);
    let mut hasher = Hasher::new();
    let mut size = 0;
    let mut line = |text: &mut Vec<u8>| {
        text.push(b'\n');
        hasher.update(text);
        size += text.len() as u64;
        out.write_all(text)?;
        Ok::<_, io::Error>(size <= MAX_BYTES)
    };
    let kept = |object: &&Object| object.kind() != Kind::Secret;
    let head = Head {
        canopus_snapshot: VERSION,
        source: source.name.clone(),
        cluster: (&*source.cluster).into(),
        objects: objects.iter().filter(kept).count(),
        kinds: kinds.map(|kinds| kinds.iter().map(|kind| kind.info().resource()).collect()),
    };
    line(&mut serde_json::to_vec(&head)?)?;
    for object in objects.iter().filter(kept) {
        if !line(&mut serde_json::to_vec(&object.to_node().to_json())?)? {
            return Ok(false);
        }
    }
    let mut tail = serde_json::to_vec(&Tail { checksum: hasher.finish() })?;
    tail.push(b'\n');
    out.write_all(&tail)?;
    out.flush()?;
    drop(out);
    file.sync_all()?;
    Ok(true)
}

/// The source that a file was written of.
fn read_head(path: &Path) -> Option<SourceInfo> {
    let mut line = Vec::new();
    next_line(&mut BufReader::new(File::open(path).ok()?), &mut line).ok()?;
    let head: Head = serde_json::from_slice(&line).ok()?;
    (head.canopus_snapshot == VERSION).then(|| SourceInfo::new(head.source, &*head.cluster, 0))
}

/// Reads a file, or says what is wrong with it.
fn read(file: impl io::Read, source: &SourceInfo) -> Result<Saved, String> {
    let mut lines = BufReader::new(file.take(MAX_BYTES + MAX_LINE));
    let mut hasher = Hasher::new();
    let mut line = Vec::new();
    next_line(&mut lines, &mut line)?;
    let head: Head = serde_json::from_slice(&line).map_err(|_| "not a snapshot".to_owned())?;
    if head.canopus_snapshot != VERSION {
        return Err(format!("written as version {}, and only {VERSION} can be read", head.canopus_snapshot));
    }
    if head.source != source.name || *head.cluster != *source.cluster {
        return Err(format!("written by {} for cluster {}", head.source, head.cluster));
    }
    hasher.update(&line);
    let mut saved = Saved { kinds: head.kinds.as_deref().map(kinds), ..Saved::default() };
    for number in 1..=head.objects {
        next_line(&mut lines, &mut line)?;
        hasher.update(&line);
        match object(&line) {
            Ok(object) => saved.objects.push(object),
            // The checksum tells damage. This is whole, and was written by a version that knew more or other fields.
            Err(reason) => saved.unreadable.push(format!("object {number}: {reason}")),
        }
    }
    next_line(&mut lines, &mut line)?;
    let tail: Tail = serde_json::from_slice(&line).map_err(|_| "does not end as it should".to_owned())?;
    if tail.checksum != hasher.finish() {
        return Err("is damaged: the checksum does not match".to_owned());
    }
    Ok(saved)
}

/// What a snapshot with these lines of objects restores, and what the bytes alone would: nothing, unless they are a whole
/// snapshot. For tests that damage snapshots.
pub fn inspect(lines: &[u8]) -> (Option<Saved>, Option<Saved>) {
    let source = SourceInfo::new("test", "test", 0);
    let as_they_are = read(lines, &source).ok();
    let mut objects = lines.to_vec();
    if objects.last().is_some_and(|last| *last != b'\n') {
        objects.push(b'\n');
    }
    let head = Head {
        canopus_snapshot: VERSION,
        source: source.name.clone(),
        cluster: (&*source.cluster).into(),
        objects: objects.iter().filter(|byte| **byte == b'\n').count(),
        kinds: None,
    };
    let Ok(mut whole) = serde_json::to_vec(&head) else { return (None, as_they_are) };
    whole.push(b'\n');
    whole.append(&mut objects);
    let mut hasher = Hasher::new();
    hasher.update(&whole);
    let Ok(tail) = serde_json::to_vec(&Tail { checksum: hasher.finish() }) else {
        return (None, as_they_are);
    };
    whole.extend_from_slice(&tail);
    whole.push(b'\n');
    (read(&*whole, &source).ok(), as_they_are)
}

/// The kinds of these names that this version knows.
fn kinds(names: &[String]) -> BTreeSet<Kind> {
    let known = |kind: &&Kind| names.iter().any(|name| *name == kind.info().resource());
    Kind::ALL.iter().filter(known).copied().collect()
}

fn next_line(lines: &mut impl io::BufRead, line: &mut Vec<u8>) -> Result<(), String> {
    line.clear();
    let read = lines.take(MAX_LINE).read_until(b'\n', line).map_err(|error| error.to_string())?;
    if read == 0 || line.last() != Some(&b'\n') {
        return Err("ends too early".to_owned());
    }
    Ok(())
}

fn object(line: &[u8]) -> Result<Object, String> {
    let node = json::parse(line, &Limits::default()).map_err(|error| error.to_string())?;
    Object::decode(&node, Options::watch()).map(|decoded| decoded.value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
