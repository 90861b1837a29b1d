//! Which tokens of a single use were used.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::TokenError;

/// How many numbers are remembered; they are forgotten when their tokens expire.
const MOST: usize = 65_536;

/// Remembers the numbers of tokens until they expire.
pub trait Uses: Send + Sync {
    /// Takes a number; an error if it was taken before, or if that cannot be told. Times are seconds since 1970.
    fn take(&self, number: &str, expires: u64, now: u64) -> Result<(), TokenError>;
}

/// Remembers in memory, for one process that never restarts.
#[derive(Debug, Default)]
pub struct MemoryUses(Mutex<BTreeMap<String, u64>>);

impl Uses for MemoryUses {
    fn take(&self, number: &str, expires: u64, now: u64) -> Result<(), TokenError> {
        let mut used = self.0.lock();
        used.retain(|_, expires| *expires > now);
        if used.contains_key(number) {
            return Err(TokenError::Used);
        }
        if used.len() >= MOST {
            return Err(TokenError::Busy);
        }
        used.insert(number.to_owned(), expires);
        Ok(())
    }
}

/// Remembers in a directory, one file for each number, so that processes that share it and come after it know.
#[derive(Debug)]
pub struct DirectoryUses {
    directory: PathBuf,
    /// When the next expired number is looked for, in seconds since 1970.
    next_sweep: Mutex<u64>,
}

/// How often expired numbers are removed, in seconds.
const SWEEP: u64 = 60;

impl DirectoryUses {
    /// Remembers in this directory, which is made if need be.
    pub fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned(), next_sweep: Mutex::default() })
    }

    /// Removes numbers whose tokens have expired; how many are left.
    fn sweep(&self, now: u64) -> io::Result<usize> {
        let mut left = 0;
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let expires = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
            // A number without a time was written by a process that is still at it, or crashed; it stays taken.
            match expires.filter(|expires| *expires <= now) {
                Some(_) => fs::remove_file(&path)?,
                None => left += 1,
            }
        }
        Ok(left)
    }
}

impl Uses for DirectoryUses {
    fn take(&self, number: &str, expires: u64, now: u64) -> Result<(), TokenError> {
        let failed = |error: io::Error| TokenError::Uses(error.to_string());
        // Numbers are signed, so this holds unless the key is in other hands; a path must not be built from anything else.
        if number.len() != 32 || !number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TokenError::Refused("its number is not one that is issued".to_owned()));
        }
        {
            let mut next = self.next_sweep.lock();
            if *next <= now {
                if self.sweep(now).map_err(failed)? >= MOST {
                    return Err(TokenError::Busy);
                }
                *next = now.saturating_add(SWEEP);
            }
        }
        // Creating a file that must not exist is what makes one of two processes the first.
        let path = self.directory.join(number);
        let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                file.write_all(expires.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(TokenError::Used),
            Err(error) => Err(failed(error)),
        }
    }
}
