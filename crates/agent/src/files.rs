//! Writing files that others read: whole or not at all, and for this user alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file by one with mode 0600.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let scratch = path.with_extension(format!("{}.new", std::process::id()));
    let written = write(&scratch, bytes).and_then(|()| fs::rename(&scratch, path));
    if written.is_err() {
        // A full disk must not fill up further with what could not be finished.
        let _ = fs::remove_file(&scratch);
    }
    written
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
