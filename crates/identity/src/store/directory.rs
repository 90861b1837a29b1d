//! A record in a directory.
//!
//! ```text
//! DIR/lock                 held while a process writes
//! DIR/current      ──────► generation-7
//! DIR/generation-7/ca-cert.pem, ca-key.pem, …
//! ```
//!
//! A new generation is written beside the old one and becomes current by renaming a symbolic link over it: readers see one
//! or the other, and never some files of each. A crash leaves at most a generation that is not current, which the next
//! writer removes. Everything belongs to the owner alone (0700, 0600).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{Answer, Record, RootStore, StoreError, Versioned};
use crate::pem::LARGEST_FILE;

const CURRENT: &str = "current";
const LOCK: &str = "lock";
const GENERATION: &str = "generation-";

/// How often a reader looks again when the generation it reads is replaced and removed.
const ATTEMPTS: usize = 8;

/// Keeps a record in a directory of its own.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    directory: PathBuf,
}

impl DirectoryStore {
    /// Keeps the record in this directory, which is made if need be and may be read by its owner alone.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let store = Self { directory: directory.to_owned() };
        store.prepare().map_err(|error| store.failed(&error))?;
        Ok(store)
    }

    fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mode = fs::metadata(&self.directory)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let text =
                format!("mode {mode:o} lets others in, and private keys are kept here; use `chmod 700`");
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> StoreError {
        StoreError { place: self.directory.display().to_string(), reason: error.to_string() }
    }

    fn read(&self) -> io::Result<Option<Versioned>> {
        for _ in 0..ATTEMPTS {
            let Some(generation) = self.current()? else { return Ok(None) };
            match read_generation(&self.directory.join(&generation)) {
                Ok(record) => return Ok(Some(Versioned { record, version: generation })),
                // A writer was faster; look where the link leads now.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("the current generation is not there; remove the link `current` to start anew"))
    }

    /// The name of the current generation.
    fn current(&self) -> io::Result<Option<String>> {
        match fs::read_link(self.directory.join(CURRENT)) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record if the current generation is the expected one; the record that is current then, and whether it is
    /// the one given.
    fn write(&self, expected: Option<&str>, record: &Record) -> io::Result<(Versioned, bool)> {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.directory.join(LOCK))?;
        lock.lock()?;
        let current = self.read()?;
        match current {
            Some(current) if expected != Some(current.version.as_str()) => return Ok((current, false)),
            None if expected.is_some() => {
                return Err(io::Error::new(
                    ErrorKind::NotFound,
                    "the record was removed while it was in use",
                ));
            }
            _ => {}
        }
        let generation = format!("{GENERATION}{}", number(expected) + 1);
        self.remove_other_generations(expected)?;
        write_generation(&self.directory.join(&generation), record)?;
        let link = self.directory.join(format!("{CURRENT}.new"));
        symlink(&generation, &link)?;
        fs::rename(&link, self.directory.join(CURRENT))?;
        File::open(&self.directory)?.sync_all()?;
        Ok((Versioned { record: record.clone(), version: generation }, true))
    }

    /// Removes what crashes left behind. The generation before the current one stays for readers that are on their way.
    fn remove_other_generations(&self, current: Option<&str>) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(GENERATION) && Some(name.as_str()) != current {
                fs::remove_dir_all(self.directory.join(name))?;
            } else if name == format!("{CURRENT}.new") {
                fs::remove_file(self.directory.join(name))?;
            }
        }
        Ok(())
    }
}

fn number(generation: Option<&str>) -> u64 {
    generation.and_then(|name| name.strip_prefix(GENERATION)?.parse().ok()).unwrap_or_default()
}

fn read_generation(directory: &Path) -> io::Result<Record> {
    let mut record = Record::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let file = File::open(entry.path())?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if size > LARGEST_FILE {
            return Err(io::Error::new(ErrorKind::FileTooLarge, entry.path().display().to_string()));
        }
        let mut content = Vec::with_capacity(size + 1);
        file.take(LARGEST_FILE as u64).read_to_end(&mut content)?;
        record.set(&entry.file_name().to_string_lossy(), content);
    }
    Ok(record)
}

fn write_generation(directory: &Path, record: &Record) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)?;
    for (name, content) in record.iter() {
        let path = directory.join(name);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    File::open(directory)?.sync_all()
}

impl RootStore for DirectoryStore {
    fn load(&self) -> Answer<'_, Option<Versioned>> {
        Box::pin(async { self.read().map_err(|error| self.failed(&error)) })
    }

    fn create_if_absent<'a>(&'a self, record: &'a Record) -> Answer<'a, Versioned> {
        Box::pin(async {
            let written = self.write(None, record).map_err(|error| self.failed(&error))?;
            Ok(written.0)
        })
    }

    fn compare_and_swap<'a>(&'a self, version: &'a str, record: &'a Record) -> Answer<'a, Option<Versioned>> {
        Box::pin(async move {
            let (now, taken) = self.write(Some(version), record).map_err(|error| self.failed(&error))?;
            Ok(taken.then_some(now))
        })
    }
}
