use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::NoCacheDir;
use crate::recipe::Entry;

/// The per-user directory that parts are kept in: `$CANOPUS_CACHE`, else `canopus` in the user's cache directory.
pub fn cache_dir() -> Result<PathBuf, NoCacheDir> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a tool for developers: the product's flags do not apply to it"
    )]
    cache_dir_from(|name| std::env::var_os(name))
}

fn cache_dir_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoCacheDir> {
    // Relative values are ignored, as the base-directory specification asks: they would mean another place per process.
    let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    directory("CANOPUS_CACHE")
        .or_else(|| directory("XDG_CACHE_HOME").map(|path| path.join("canopus")))
        .or_else(|| directory("HOME").map(|path| path.join(".cache/canopus")))
        .ok_or(NoCacheDir)
}

/// The place of one part in the cache.
pub(crate) struct Slot {
    root: PathBuf,
    name: String,
    programs: &'static [&'static str],
}

impl Slot {
    pub(crate) fn new(cache: &Path, entry: &Entry) -> Self {
        Self { root: cache.join("parts"), name: entry.directory_name(), programs: entry.programs }
    }

    /// The directory of the part's executables, if it is installed.
    pub(crate) fn installed(&self) -> Option<PathBuf> {
        let bin = self.home().join("bin");
        let is_complete = bin.is_dir() && self.programs.iter().all(|program| bin.join(program).is_file());
        is_complete.then_some(bin)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn home(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// Takes the right to install this part; waits for another process that has it, after saying so through `waiting`.
    pub(crate) fn lock(&self, waiting: impl FnOnce()) -> io::Result<File> {
        fs::create_dir_all(&self.root)?;
        let file = File::create(self.root.join(format!("{}.lock", self.name)))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(file)
    }

    /// An empty directory on the same file system. Call under the lock: what an interrupted installation left is removed.
    pub(crate) fn workshop(&self) -> io::Result<TempDir> {
        let prefix = format!(".{}.", self.name);
        for left in fs::read_dir(&self.root)?.flatten() {
            if left.file_name().to_string_lossy().starts_with(&prefix) {
                fs::remove_dir_all(left.path())?;
            }
        }
        tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.root)
    }

    /// Puts a finished directory in the part's place, in one step.
    pub(crate) fn publish(&self, finished: &Path) -> io::Result<()> {
        let home = self.home();
        if home.exists() {
            // Present but incomplete: someone deleted files in it.
            fs::remove_dir_all(&home)?;
        }
        fs::rename(finished, home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    fn dir_with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        cache_dir_from(lookup).ok()
    }

    #[test]
    fn cache_is_where_the_most_specific_variable_says() {
        let all = [("HOME", "/home/ann"), ("XDG_CACHE_HOME", "/cache"), ("CANOPUS_CACHE", "/big")];
        assert_eq!(dir_with(&all), Some("/big".into()));
        assert_eq!(dir_with(&all[..2]), Some("/cache/canopus".into()));
        assert_eq!(dir_with(&all[..1]), Some("/home/ann/.cache/canopus".into()));
        assert_eq!(dir_with(&[]), None);
    }

    #[test]
    fn relative_cache_variable_is_ignored() {
        assert_eq!(dir_with(&[("CANOPUS_CACHE", "here"), ("HOME", "/h")]), Some("/h/.cache/canopus".into()));
    }

    #[test]
    fn part_is_installed_only_when_every_program_is_there() {
        let cache = tempfile::tempdir().unwrap();
        let slot = Slot::new(cache.path(), Part::Kube.entry());
        let _lock = slot.lock(|| panic!("nobody else holds the lock")).unwrap();
        let workshop = slot.workshop().unwrap();
        let made = workshop.path().join("made");
        fs::create_dir_all(made.join("bin")).unwrap();
        fs::write(made.join("bin/kubectl"), "").unwrap();
        slot.publish(&made).unwrap();
        assert_eq!(slot.installed(), None);

        fs::create_dir_all(made.join("bin")).unwrap();
        for program in Part::Kube.programs() {
            fs::write(made.join("bin").join(program), "").unwrap();
        }
        slot.publish(&made).unwrap();
        assert!(slot.installed().is_some());
    }

    #[test]
    fn second_installer_is_told_that_it_waits() {
        let cache = tempfile::tempdir().unwrap();
        let slot = Slot::new(cache.path(), Part::Envoy.entry());
        let first = slot.lock(|| panic!("nobody else holds the lock")).unwrap();
        let told = std::cell::Cell::new(false);
        std::thread::scope(|scope| {
            let (say, hear) = std::sync::mpsc::channel();
            let slot = &slot;
            let second = scope.spawn(move || slot.lock(|| say.send(()).unwrap()).is_ok());
            hear.recv().unwrap();
            told.set(true);
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(told.get());
    }

    #[test]
    fn leftovers_of_an_interrupted_installation_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let slot = Slot::new(cache.path(), Part::Helm.entry());
        let _lock = slot.lock(|| {}).unwrap();
        let interrupted = slot.workshop().unwrap().keep();
        let other = Slot::new(cache.path(), Part::Consul.entry()).workshop().unwrap();
        let _workshop = slot.workshop().unwrap();
        assert!(!interrupted.exists());
        assert!(other.path().exists(), "another part's work is left alone");
    }
}
