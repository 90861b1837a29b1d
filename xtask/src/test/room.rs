//! Whether the disk has room for a whole run: a linker that runs out of it dies of a bus error and says nothing of disks.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nix::sys::statvfs::statvfs;

use crate::shell::root;

const GIB: u64 = 1 << 30;

/// What lints, tests, their programs and their work files take where nothing is compiled yet.
const FIRST_RUN: u64 = 16 * GIB;

/// What a run takes that finds most of it compiled.
const NEXT_RUN: u64 = 4 * GIB;

/// Refuses to begin what the disk cannot hold.
pub(super) fn check() -> Result<()> {
    let target = target_directory();
    let is_compiled = target.join("debug/deps").is_dir();
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let disk =
        statvfs(&target).with_context(|| format!("asking how full the disk of {} is", target.display()))?;
    let free = disk.blocks_available() * disk.fragment_size();
    verdict(free, is_compiled).with_context(|| format!("no room to compile into {}", target.display()))
}

fn target_directory() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "cargo's own way to be told where to compile to")]
    let named = std::env::var_os("CARGO_TARGET_DIR");
    named.map_or_else(|| root().join("target"), PathBuf::from)
}

fn verdict(free: u64, is_compiled: bool) -> Result<()> {
    let needed = if is_compiled { NEXT_RUN } else { FIRST_RUN };
    ensure!(
        free >= needed,
        "{:.1} GiB are free and {} are needed: remove builds that nobody uses (`cargo clean` there), or name a larger disk in \
         CARGO_TARGET_DIR",
        free as f64 / GIB as f64,
        needed / GIB,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_the_remedy() {
        let error = verdict(7 * GIB, false).unwrap_err().to_string();
        assert!(error.starts_with("7.0 GiB are free and 16 are needed"), "{error}");
        assert!(error.contains("CARGO_TARGET_DIR"), "{error}");
        verdict(7 * GIB, true).unwrap();
        verdict(16 * GIB, false).unwrap();
    }
}
