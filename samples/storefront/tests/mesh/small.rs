//! A mesh of one gateway and one program: its life and its end.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::lab::{Lab, eventually};
use crate::traces::traces;

/// How often a mesh is started and ended; `CANOPUS_UP_DOWN` says otherwise.
const TIMES: usize = 2;

pub(crate) fn leaves_nothing() -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a test is told by its environment")]
    let times = std::env::var("CANOPUS_UP_DOWN").ok().and_then(|times| times.parse().ok()).unwrap_or(TIMES);
    let lab = Lab::small("")?;
    let before = traces(lab.path())?;
    for _ in 0..times {
        let said = lab.up(&[])?;
        ensure!(said.contains("2 proxies, 1 programs"), "{said}");
        ensure!(lab.answer()?.contains("charged"), "the program answers");
        let during = traces(lab.path())?;
        for kind in ["namespace", "tcp", "process", "file"] {
            let new = during.difference(&before).filter(|trace| trace.starts_with(kind)).count();
            ensure!(new > 0, "no trace to compare of the kind {kind}: {during:#?}");
        }
        lab.down()?;
        nothing_left(&lab, &before)?;
    }
    Ok(())
}

pub(crate) fn killed_supervisor() -> Result<()> {
    let lab = Lab::small("")?;
    let before = traces(lab.path())?;
    for clean_by_up in [false, true] {
        lab.up(&[])?;
        let journal = std::fs::read_to_string(lab.path().join(".canopus/journal"))?;
        let first: serde_json::Value = serde_json::from_str(journal.lines().next().context("a line")?)?;
        let supervisor = first["supervisor"]["pid"].as_u64().context("the supervisor")?.to_string();
        ensure!(Command::new("kill").args(["-9", &supervisor]).status()?.success(), "kill");
        if clean_by_up {
            let said = eventually(|| lab.up(&[]))?;
            ensure!(said.contains("an earlier run did not end well"), "{said}");
            lab.answer()?;
        }
        lab.down()?;
        nothing_left(&lab, &before)?;
    }
    Ok(())
}

/// Compares the machine with what it was. Other programs of the machine come and go, so what is new is looked at again.
fn nothing_left(lab: &Lab, before: &BTreeSet<String>) -> Result<()> {
    let new = || Ok::<_, anyhow::Error>(&traces(lab.path())? - before);
    let mut left = new()?;
    for _ in 0..20 {
        if left.is_empty() {
            return Ok(());
        }
        sleep(Duration::from_millis(250));
        left = &left & &new()?;
    }
    bail!("left behind: {left:#?}")
}
