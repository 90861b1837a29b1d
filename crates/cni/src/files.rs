//! Files in directories that belong to the host, or that others can write to.
//!
//! The installer runs as root and works in directories that are mounted from the host. A link in them must not lead it to a
//! file elsewhere, so a directory is opened once and names are resolved below it by the kernel (`openat2`). Writes go to a
//! new file that takes the place of the old one, so that a container runtime never reads half a configuration.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Configuration and token files larger than this are not read.
pub const MAX_TEXT: u64 = 4 << 20;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileError {
    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the file system cannot be written to.
    pub fn is_read_only(&self) -> bool {
        self.source.kind() == io::ErrorKind::ReadOnlyFilesystem
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let opened = open(path, flags, Mode::empty());
        let fd = opened.map_err(|errno| FileError { path: path.to_owned(), source: errno.into() })?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Opens a directory after making it, readable for its owner alone, if there is none.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| FileError { path: path.to_owned(), source })?;
        Self::open(path)
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fail<E: Into<io::Error>>(&self, name: &str) -> impl FnOnce(E) -> FileError + use<'_, E> {
        let path = self.path.join(name);
        move |source| FileError { path, source: source.into() }
    }

    /// Opens a file for reading. Links are followed only while they stay below this directory.
    pub fn file(&self, name: &str) -> Result<File, FileError> {
        let fail = self.fail(name);
        plain(name).and_then(|()| Ok(beneath(&self.fd, Path::new(name))?)).map(File::from).map_err(fail)
    }

    /// The contents of a file.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        let read = self.file(name)?.take(MAX_TEXT + 1).read_to_end(&mut bytes);
        read.map_err(self.fail(name))?;
        if bytes.len() as u64 > MAX_TEXT {
            let message = format!("it is larger than {MAX_TEXT} bytes");
            return Err(self.fail(name)(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        Ok(bytes)
    }

    /// Whether there is a file of this name that can be opened.
    pub fn exists(&self, name: &str) -> bool {
        self.file(name).is_ok()
    }

    /// The permissions of a file.
    pub fn mode(&self, name: &str) -> Result<u32, FileError> {
        let metadata = self.file(name)?.metadata().map_err(self.fail(name))?;
        Ok(metadata.permissions().mode() & 0o7777)
    }

    /// The names in it, sorted, without those of directories.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        let fail = |errno: Errno| FileError { path: self.path.clone(), source: errno.into() };
        // Positions in a directory are those of the open file, so a listing opens it anew.
        let again =
            openat(&self.fd, ".", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).map_err(fail)?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(again).map_err(fail)?.iter() {
            let entry = entry.map_err(fail)?;
            if entry.file_type() != Some(nix::dir::Type::Directory)
                && let Ok(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Writes a file whole, in the place of one that may be there.
    pub fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.replace(name, &mut &bytes[..], mode)
    }

    /// Writes what is read from `source` to a file, in the place of one that may be there.
    pub fn replace(&self, name: &str, source: &mut dyn io::Read, mode: u32) -> Result<(), FileError> {
        plain(name).map_err(self.fail(name))?;
        let temporary = format!("{name}.tmp.{}", std::process::id());
        let written = self
            .write_new(&temporary, source, mode)
            .and_then(|()| Ok(renameat(self.fd.as_fd(), temporary.as_str(), self.fd.as_fd(), name)?));
        if written.is_err() {
            let _ = unlinkat(&self.fd, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written.map_err(self.fail(name))
    }

    fn write_new(&self, name: &str, source: &mut dyn io::Read, mode: u32) -> io::Result<()> {
        let _ = unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.fd, name, flags, Mode::from_bits_truncate(0o600))?);
        io::copy(source, &mut file)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.flush()?;
        file.sync_all()
    }

    /// Renames a file within the directory.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        plain(from).and_then(|()| plain(to)).map_err(self.fail(from))?;
        renameat(self.fd.as_fd(), from, self.fd.as_fd(), to).map_err(self.fail(from))
    }

    /// Removes a file. Whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool, FileError> {
        plain(name).map_err(self.fail(name))?;
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.fail(name)(errno)),
        }
    }
}

/// Refuses names that are paths.
fn plain(name: &str) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        let message = format!("{name:?} is not the name of a file in this directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

fn beneath(directory: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(directory, path, how) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::ENOSYS) => openat(directory, path, flags | OFlag::O_NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}

/// Opens the file of a network namespace as the host names it, below the directory where the host's files are mounted.
///
/// Links are resolved as if that directory were the root, so they cannot lead out of it. A process's own file
/// (`/proc/1234/ns/net`) is one of the kernel's links, which cannot be resolved that way; its directory can.
pub fn open_namespace(root: &Path, path: &Path) -> Result<File, FileError> {
    let fail = |source: io::Error| FileError { path: path.to_owned(), source };
    let relative = path.strip_prefix("/").unwrap_or(path);
    let directory = Directory::open(root)?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let within = |path: &Path, flags: OFlag| {
        openat2(&directory.fd, path, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT))
    };
    let opened = if relative.starts_with("proc") && relative.file_name().is_some_and(|name| name == "net") {
        let parent = relative.parent().unwrap_or(relative);
        within(parent, flags | OFlag::O_DIRECTORY)
            .and_then(|parent| openat(parent, "net", flags, Mode::empty()))
    } else {
        within(relative, flags)
    };
    let file = File::from(opened.map_err(|errno| fail(errno.into()))?);
    let kind = nix::sys::statfs::fstatfs(&file).map_err(|errno| fail(errno.into()))?.filesystem_type();
    if kind != nix::sys::statfs::NSFS_MAGIC {
        return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "it is not a namespace")));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_within_the_directory_alone() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(root.path().join("real"), "inside").unwrap();
        symlink("real", root.path().join("near")).unwrap();
        symlink(outside.path(), root.path().join("far")).unwrap();
        let directory = Directory::open(root.path()).unwrap();
        assert_eq!(directory.read("near").unwrap(), b"inside");
        assert!(directory.read("far").is_err());
        assert!(directory.read("../etc/passwd").unwrap_err().to_string().contains("not the name of a file"));
    }

    #[test]
    fn writing_replaces_a_link_and_not_its_target() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), root.path().join("conf")).unwrap();
        let directory = Directory::open(root.path()).unwrap();
        directory.write("conf", b"new", 0o600).unwrap();
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"");
        assert_eq!(directory.read("conf").unwrap(), b"new");
        assert_eq!(directory.mode("conf").unwrap(), 0o600);
        assert_eq!(directory.names().unwrap(), ["conf"]);
    }

    #[test]
    fn only_namespaces_are_opened_as_such() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run/netns")).unwrap();
        std::fs::write(root.path().join("run/netns/fake"), "").unwrap();
        let error = open_namespace(root.path(), Path::new("/run/netns/fake")).unwrap_err();
        assert!(error.to_string().ends_with("it is not a namespace"), "{error}");
        symlink("/etc/passwd", root.path().join("run/netns/escape")).unwrap();
        assert!(open_namespace(root.path(), Path::new("/run/netns/escape")).unwrap_err().is_not_found());
        assert!(open_namespace(Path::new("/"), Path::new("/proc/self/ns/net")).is_ok());
    }
}
