//! The log of one type.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::debug;

use super::record::{self, Change, HEADER, MARK, PREFIX};

/// A log this much larger than what it says is written anew.
const SLACK: u64 = 1 << 20;
/// Bytes that wait in memory while they cannot be written.
const MAX_UNWRITTEN: usize = 1 << 20;

/// Why changes are not in the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    /// The disk does not take them. They are written with the next ones, unless there are too many.
    #[error("{0}; make room")]
    Write(#[from] io::Error),
    /// The record has more bytes than the log may keep.
    #[error("{needed} bytes are more than CANOPUS_STATE_MAX_BYTES leaves ({room}); raise the limit")]
    Limit { needed: u64, room: u64 },
    /// The log has nothing of what came before these.
    #[error("the disk took nothing for too long; make room and restart")]
    Lost,
}

/// An append-only file.
pub(super) struct TypeLog {
    path: PathBuf,
    file: File,
    owner: u64,
    length: u64,
    /// The length when the log was last written anew.
    compact_length: u64,
    /// Records that the disk did not take.
    unwritten: Vec<u8>,
}

impl TypeLog {
    /// Opens a log. One of another owner, or with another mark, is emptied; one with a broken end is cut off there.
    pub(super) fn open(path: &Path, owner: u64) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut log =
            Self { path: path.to_owned(), file, owner, length: 0, compact_length: 0, unwritten: Vec::new() };
        let mut header = [0; HEADER];
        let is_ours = log.file.read_exact_at(&mut header, 0).is_ok() && header == log.header();
        if is_ours {
            log.length = log.scan()?.end;
            log.file.set_len(log.length)?;
            log.compact_length = log.length;
        } else {
            log.start_anew()?;
        }
        Ok(log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Removes the file: what is in it is no longer what Envoy has.
    pub(super) fn discard(&self) {
        let _ = self.file.set_len(0);
        let _ = fs::remove_file(&self.path);
    }

    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MARK);
        header[8..].copy_from_slice(&self.owner.to_le_bytes());
        header
    }

    fn start_anew(&mut self) -> io::Result<()> {
        // The header comes with the first records: a full disk is no reason to do without a log.
        self.file.set_len(0)?;
        self.length = 0;
        self.compact_length = 0;
        Ok(())
    }

    /// Adds changes. The log is written anew when it is mostly garbage, and may not grow beyond `room`.
    ///
    /// What the disk does not take leaves the log as it was, and waits for the next time.
    pub(super) fn append(&mut self, changes: &[Change<'_>], room: u64) -> Result<(), AppendError> {
        let mut bytes = std::mem::take(&mut self.unwritten);
        for change in changes {
            record::encode(change, &mut bytes);
        }
        match self.write(&bytes, room) {
            Err(AppendError::Write(error)) => {
                // Whatever part was written is cut off again, which makes room as well.
                let _ = self.file.set_len(self.length);
                if bytes.len() <= MAX_UNWRITTEN {
                    self.unwritten = bytes;
                } else if self.length <= HEADER as u64 {
                    return Err(AppendError::Lost);
                }
                Err(AppendError::Write(error))
            }
            written => written,
        }
    }

    fn write(&mut self, bytes: &[u8], room: u64) -> Result<(), AppendError> {
        if self.length + bytes.len() as u64 > room.min(self.compact_length * 2 + SLACK)
            && let Err(error) = self.compact()
        {
            // There may be room for the records, if not for a second log.
            debug!(target: "xdsproxy", "{}: {error}; it is not written anew", self.path.display());
        }
        let needed = self.length + bytes.len() as u64;
        if needed > room {
            return Err(AppendError::Limit { needed, room });
        }
        if self.length == 0 {
            self.file.write_all_at(&self.header(), 0)?;
            self.length = HEADER as u64;
        }
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the log anew with what still counts, and puts it in the place of the old one.
    fn compact(&mut self) -> io::Result<()> {
        let catalogue = self.catalogue()?;
        let scratch = self.path.with_extension("new");
        let _ = fs::remove_file(&scratch);
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&scratch)?;
        let written = (|| {
            let mut length = HEADER as u64;
            file.write_all(&self.header())?;
            for name in catalogue.names() {
                let Some(stored) = catalogue.read(name) else { continue };
                let mut bytes = Vec::with_capacity(stored.body.len() + name.len() + 64);
                record::encode(
                    &Change::Put { name, version: &stored.version, body: &stored.body },
                    &mut bytes,
                );
                file.write_all(&bytes)?;
                length += bytes.len() as u64;
            }
            fs::rename(&scratch, &self.path)?;
            Ok::<_, io::Error>(length)
        })();
        self.length = written.inspect_err(|_| {
            let _ = fs::remove_file(&scratch);
        })?;
        self.compact_length = self.length;
        self.file = file;
        Ok(())
    }

    /// What the log says, without the resources themselves.
    pub(super) fn catalogue(&mut self) -> io::Result<Catalogue> {
        let scan = self.scan()?;
        Ok(Catalogue { file: self.file.try_clone()?, entries: scan.entries, version: scan.version })
    }

    fn scan(&mut self) -> io::Result<Scan> {
        self.file.seek(SeekFrom::Start(HEADER as u64))?;
        let total = self.file.metadata()?.len();
        scan(BufReader::with_capacity(64 << 10, &self.file), total)
    }
}

/// How many resources the records of a log have that is `bytes` after its header.
pub fn inspect(bytes: &[u8]) -> usize {
    scan(bytes, HEADER as u64 + bytes.len() as u64).map_or(0, |scan| scan.entries.len())
}

/// Reads all records up to the first that is broken, in a log of `total` bytes.
fn scan(mut reader: impl Read, total: u64) -> io::Result<Scan> {
    let mut scan = Scan { entries: BTreeMap::new(), version: String::new(), end: HEADER as u64 };
    let mut body = Vec::new();
    loop {
        let mut prefix = [0; PREFIX];
        if reader.read_exact(&mut prefix).is_err() {
            return Ok(scan);
        }
        let Some((length, checksum)) = record::prefix(&prefix) else { return Ok(scan) };
        let start = scan.end + PREFIX as u64;
        if start + length as u64 > total {
            return Ok(scan);
        }
        body.clear();
        if (&mut reader).take(length as u64).read_to_end(&mut body)? < length {
            return Ok(scan);
        }
        let Some(change) = record::decode(&body, checksum) else { return Ok(scan) };
        scan.end = start + length as u64;
        match change {
            Change::Clear => scan.entries.clear(),
            Change::Remove { name } => drop(scan.entries.remove(name)),
            Change::Put { name, version, body } => {
                version.clone_into(&mut scan.version);
                let entry = Entry {
                    offset: scan.end - body.len() as u64,
                    length: body.len(),
                    version: version.into(),
                };
                scan.entries.insert(name.into(), entry);
            }
        }
    }
}

struct Scan {
    entries: BTreeMap<Box<str>, Entry>,
    version: String,
    end: u64,
}

struct Entry {
    offset: u64,
    length: usize,
    version: Box<str>,
}

/// What a log says. Resources are read when they are wanted.
pub struct Catalogue {
    file: File,
    entries: BTreeMap<Box<str>, Entry>,
    version: String,
}

/// A resource of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResource {
    /// The version it was sent with.
    pub version: String,
    /// The encoded `Any`.
    pub body: Bytes,
}

impl Catalogue {
    /// The names of the resources.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|name| &**name)
    }

    /// Whether a resource has these bytes in it.
    pub fn mentions(&self, bytes: &[u8]) -> bool {
        let has = |body: &[u8]| body.windows(bytes.len().max(1)).any(|window| window == bytes);
        self.names().any(|name| self.read(name).is_some_and(|stored| has(&stored.body)))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The version of a resource.
    pub fn version_of(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(|entry| &*entry.version)
    }

    /// The version of whatever was written last.
    pub fn last_version(&self) -> &str {
        &self.version
    }

    /// A resource; `None` if there is none of the name, or if it cannot be read.
    pub fn read(&self, name: &str) -> Option<StoredResource> {
        let entry = self.entries.get(name)?;
        let mut body = vec![0; entry.length];
        self.file.read_exact_at(&mut body, entry.offset).ok()?;
        Some(StoredResource { version: entry.version.to_string(), body: body.into() })
    }
}
