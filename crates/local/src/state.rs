//! The directory in which a mesh keeps its state while it runs.
//!
//! | file | what |
//! |---|---|
//! | `journal` | what was made, for cleaning up |
//! | `lock` | held by the process that supervises the mesh |
//! | `control` | the socket on which it takes commands |
//! | `objects/` | what the control plane reads: `mesh.yaml`'s objects, links to the user's directory and the tour's |
//! | `objects-ca/` | the certificate authority |
//! | `logs/` | what processes write |
//! | `pods/NAME/` | the directory of an agent |
//!
//! Keys and tokens are in it, so only its owner may enter it, and one that others could have written is not used.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::unistd::geteuid;

/// The name of the directory inside that of the mesh.
const NAME: &str = ".canopus";

/// The longest path that a socket can have, less its end.
const LONGEST_SOCKET_PATH: usize = 107;

/// The directory of a mesh's state.
#[derive(Clone, Debug)]
pub struct State {
    root: PathBuf,
}

impl State {
    /// The state of the mesh in a directory, kept there or elsewhere. Nothing is made or checked yet.
    pub fn locate(mesh: &Path, elsewhere: Option<&Path>) -> Result<Self> {
        let root = elsewhere.map_or_else(|| mesh.join(NAME), Path::to_owned);
        let root = std::path::absolute(&root).with_context(|| root.display().to_string())?;
        if root.join("control").as_os_str().len() > LONGEST_SOCKET_PATH {
            bail!("{}: the path is too long for a socket; use --state with a shorter one", root.display());
        }
        Ok(Self { root })
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether there is such a directory. One that somebody else could have written is an error.
    pub fn exists(&self) -> Result<bool> {
        match fs::symlink_metadata(&self.root) {
            Ok(metadata) => self.check(&metadata).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| self.root.display().to_string()),
        }
    }

    fn check(&self, metadata: &Metadata) -> Result<()> {
        let is_ours =
            metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0;
        if !is_ours {
            bail!(
                "{}: this is not a directory that only the current user (id {}) may enter; run the command as the user who \
                 started the mesh, or remove it",
                self.root.display(),
                geteuid()
            );
        }
        Ok(())
    }

    /// Makes the directory and what is always in it.
    pub fn create(&self) -> Result<()> {
        let make = |path: &Path| {
            DirBuilder::new().mode(0o700).create(path).with_context(|| path.display().to_string())
        };
        make(&self.root)?;
        // A mask of the process may have taken rights of the owner.
        fs::set_permissions(&self.root, Permissions::from_mode(0o700))?;
        for path in [
            self.objects(),
            self.tour_objects(),
            self.logs(),
            self.root.join("pods"),
            self.root.join("plane"),
        ] {
            make(&path)?;
        }
        // The directory should not be committed.
        fs::write(self.root.join(".gitignore"), "*\n").context(".gitignore")
    }

    /// Takes the lock that the supervising process holds; nothing if another has it.
    pub fn try_lock(&self) -> Result<Option<File>> {
        let path = self.root.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// The socket for commands.
    pub fn control(&self) -> PathBuf {
        self.root.join("control")
    }

    /// The objects that the control plane reads.
    pub fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    /// The objects of the tour's current step.
    pub fn tour_objects(&self) -> PathBuf {
        self.objects().join("tour")
    }

    /// The certificate authority, where the control plane keeps it for its directory of objects.
    pub fn authority(&self) -> PathBuf {
        self.root.join("objects-ca")
    }

    /// The root certificate of the mesh.
    pub fn root_certificate(&self) -> PathBuf {
        self.authority().join("current/root-cert.pem")
    }

    /// What processes write.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What one process writes.
    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{}.log", process.replace('/', ".")))
    }

    /// The directory of a pod's agent.
    pub fn pod(&self, name: &str) -> PathBuf {
        self.root.join("pods").join(name)
    }

    /// The directory that the control plane runs in.
    pub fn plane(&self) -> PathBuf {
        self.root.join("plane")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_others_may_enter_is_refused() {
        let mesh = tempfile::tempdir().unwrap();
        let state = State::locate(mesh.path(), None).unwrap();
        assert!(!state.exists().unwrap());
        state.create().unwrap();
        assert!(state.exists().unwrap());
        fs::set_permissions(state.root(), Permissions::from_mode(0o755)).unwrap();
        let error = state.exists().unwrap_err().to_string();
        assert!(error.contains("only the current user"), "{error}");
    }

    #[test]
    fn lock_has_one_holder() {
        let mesh = tempfile::tempdir().unwrap();
        let state = State::locate(mesh.path(), None).unwrap();
        state.create().unwrap();
        let held = state.try_lock().unwrap();
        assert!(held.is_some() && state.try_lock().unwrap().is_none());
        drop(held);
        assert!(state.try_lock().unwrap().is_some());
    }

    #[test]
    fn path_too_long_for_a_socket_is_refused_with_a_remedy() {
        let error = State::locate(Path::new(&format!("/{}", "a".repeat(120))), None).unwrap_err().to_string();
        assert!(error.contains("--state"), "{error}");
    }
}
