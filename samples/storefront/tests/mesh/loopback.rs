//! Loopback mode: what a newcomer without root gets.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

use crate::lab::{Lab, beside, search_path, text};
use crate::tour;

/// The user and group `nobody`.
const NOBODY: &str = "65534";

/// What it takes to run as somebody without rights from a checkout that belongs to root: files may be read, and nothing else is
/// permitted that root may do.
const WITHOUT_ROOT: [&str; 5] = [
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
    "--no-new-privs",
];

pub(crate) fn small() -> Result<()> {
    let lab = Lab::small("")?;
    let said = lab.up(&["--loopback"])?;
    ensure!(said.contains("loopback mode: traffic is not captured"), "{said}");
    ensure!(lab.answer()?.contains("charged"), "the program answers");
    lab.down()?;
    Ok(())
}

/// The whole sample and its tour, by a user who may not make network namespaces: `up` says so, and runs all the same.
pub(crate) fn tour_without_root() -> Result<()> {
    let sample = tour::sample(18_082)?;
    let output = if is_root()? {
        let owner = format!("{NOBODY}:{NOBODY}");
        let owned = Command::new("chown").args(["-R", &owner]).arg(sample.path()).status()?;
        ensure!(owned.success(), "chown: {owned}");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY]).args(WITHOUT_ROOT).arg(beside("canopus"));
        tour(command, sample.path())?
    } else {
        tour(Command::new(beside("canopus")), sample.path())?
    };
    let told = text(&output);
    ensure!(told.contains("only root may make network namespaces: loopback mode"), "{told}");
    ensure!(told.contains("traffic is not captured"), "{told}");
    tour::judge(&output)?;
    ensure!(!sample.path().join(".canopus").exists(), "nothing is left");
    Ok(())
}

fn tour(mut command: Command, sample: &std::path::Path) -> Result<Output> {
    command.args(["up", "--tour"]).arg(sample).env("PATH", search_path()?);
    command.output().context("canopus up --tour")
}

pub(crate) fn is_root() -> Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout == b"0\n")
}
