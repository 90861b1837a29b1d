use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tar::{Builder, EntryType, Header};

/// The files of a layer.
#[derive(Clone, Debug, Default)]
pub struct Rootfs {
    /// By path, without a leading slash.
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { content: Content, mode: u32 },
    Link { target: String },
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

impl Rootfs {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.insert(path, Entry::Directory { mode })
    }

    /// Adds a file with this content.
    pub fn text(&mut self, path: &str, text: impl Into<Vec<u8>>) -> &mut Self {
        self.insert(path, Entry::File { content: Content::Bytes(text.into()), mode: 0o644 })
    }

    /// Adds a copy of a file of this machine. It is executable if that one is.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result<&mut Self> {
        let metadata = fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
        if !metadata.is_file() {
            bail!("{} is not a file", from.display());
        }
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        Ok(self.insert(path, Entry::File { content: Content::Path(from.to_owned()), mode }))
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.insert(path, Entry::Link { target: target.to_owned() })
    }

    /// Adds an entry of this machine: a file, or a link as it is.
    pub fn copy_or_link(&mut self, path: &str, from: &Path) -> Result<&mut Self> {
        match fs::read_link(from) {
            Ok(target) => {
                let target = target.to_str().with_context(|| format!("{}: odd link", from.display()))?;
                Ok(self.link(path, target))
            }
            Err(_) => self.copy(path, from),
        }
    }

    fn insert(&mut self, path: &str, entry: Entry) -> &mut Self {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Writes a tar archive of all entries.
    pub(crate) fn write(&self, out: impl Write) -> Result<()> {
        let mut tar = Builder::new(out);
        for (path, entry) in &self.entries {
            self.append(&mut tar, path, entry).with_context(|| format!("cannot add /{path} to a layer"))?;
        }
        tar.finish()?;
        Ok(())
    }

    fn append(&self, tar: &mut Builder<impl Write>, path: &str, entry: &Entry) -> Result<()> {
        match entry {
            Entry::Directory { mode } => {
                tar.append_data(
                    &mut header(EntryType::Directory, *mode, 0),
                    format!("{path}/"),
                    io::empty(),
                )?;
            }
            Entry::Link { target } => {
                tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
            }
            Entry::File { content: Content::Bytes(bytes), mode } => {
                let size = bytes.len() as u64;
                tar.append_data(&mut header(EntryType::Regular, *mode, size), path, bytes.as_slice())?;
            }
            Entry::File { content: Content::Path(from), mode } => {
                let file = File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
                let size = file.metadata()?.len();
                // A file that grows meanwhile must not spoil what follows it.
                tar.append_data(&mut header(EntryType::Regular, *mode, size), path, file.take(size))?;
            }
        }
        Ok(())
    }
}

/// A header without anything of the machine or the moment.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(rootfs: &Rootfs) -> Vec<u8> {
        let mut out = Vec::new();
        rootfs.write(&mut out).unwrap();
        out
    }

    #[test]
    fn order_of_additions_does_not_change_the_bytes() {
        let (mut one, mut other) = (Rootfs::default(), Rootfs::default());
        one.text("/etc/b", "2").link("/bin/sh", "busybox").text("/etc/a", "1");
        other.text("etc/a", "1").text("etc/b", "2").link("bin/sh", "busybox");
        assert_eq!(bytes(&one), bytes(&other));
    }

    #[test]
    fn parents_of_an_entry_are_added() {
        let mut rootfs = Rootfs::default();
        rootfs.text("/usr/share/doc/x", "").directory("/tmp", 0o1777);
        let bytes = bytes(&rootfs);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            format!("{:o} {}", entry.header().mode().unwrap(), entry.path().unwrap().display())
        };
        let entries: Vec<_> = archive.entries().unwrap().map(entry).collect();
        assert_eq!(
            entries,
            ["1777 tmp/", "755 usr/", "755 usr/share/", "755 usr/share/doc/", "644 usr/share/doc/x"]
        );
    }
}
