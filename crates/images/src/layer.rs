use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use flate2::GzBuilder;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::Rootfs;

/// Whether layers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// For images that travel.
    Gzip,
    /// For images that are loaded where they are made, at once.
    None,
}

/// A layer of an image, kept in a temporary file.
#[derive(Debug)]
pub struct Layer {
    file: NamedTempFile,
    /// The digest of the archive before compression.
    pub(crate) diff_id: String,
    /// The digest of the archive as it is stored.
    pub(crate) digest: String,
    pub(crate) size: u64,
    pub(crate) compression: Compression,
    /// What the layer is, for the history of the image.
    pub(crate) purpose: String,
}

impl Layer {
    /// Packs files into a layer. `purpose` appears in the image's history.
    pub fn new(purpose: &str, rootfs: &Rootfs, compression: Compression) -> Result<Self> {
        let file = NamedTempFile::new()?;
        let stored = Digesting::new(BufWriter::new(file.reopen()?));
        let (diff_id, mut stored) = match compression {
            Compression::None => {
                let mut stored = stored;
                rootfs.write(&mut stored)?;
                (stored.digest(), stored)
            }
            Compression::Gzip => {
                // Without a date and a name in the header, the same archive is compressed to the same bytes.
                let encoder: GzEncoder<_> =
                    GzBuilder::new().mtime(0).write(stored, flate2::Compression::new(6));
                let mut archive = Digesting::new(encoder);
                rootfs.write(&mut archive)?;
                (archive.digest(), archive.inner.finish()?)
            }
        };
        stored.flush()?;
        let (digest, size) = (stored.digest(), stored.written);
        Ok(Self { file, diff_id, digest, size, compression, purpose: purpose.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        File::open(self.path())
    }
}

/// The digest of bytes, as OCI writes it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    encode(Sha256::digest(bytes).as_slice())
}

fn encode(hash: &[u8]) -> String {
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A writer that knows the digest of what was written to it.
struct Digesting<W> {
    inner: W,
    hash: Sha256,
    written: u64,
}

impl<W> Digesting<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), written: 0 }
    }

    fn digest(&self) -> String {
        encode(self.hash.clone().finalize().as_slice())
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_files_give_equal_layers() {
        let mut rootfs = Rootfs::default();
        rootfs.text("/etc/passwd", "root:x:0:0::/:/bin/sh\n");
        for compression in [Compression::Gzip, Compression::None] {
            let (one, other) = (Layer::new("", &rootfs, compression), Layer::new("", &rootfs, compression));
            let (one, other) = (one.unwrap(), other.unwrap());
            assert_eq!((&one.digest, &one.diff_id, one.size), (&other.digest, &other.diff_id, other.size));
            assert_eq!(one.size, std::fs::metadata(one.path()).unwrap().len());
            assert_eq!(one.digest == one.diff_id, compression == Compression::None);
        }
    }
}
