//! A mesh of one gateway and one program: its life, its end, and what goes wrong in it.

use std::net::TcpListener;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::lab::{Lab, eventually, traces};

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
        ensure!(traces(lab.path())?.len() > before.len() + 3, "there are traces to compare");
        lab.down()?;
        let after = traces(lab.path())?;
        let left: Vec<_> = after.difference(&before).collect();
        ensure!(left.is_empty(), "left behind: {left:#?}");
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
        let after = traces(lab.path())?;
        let left: Vec<_> = after.difference(&before).collect();
        ensure!(left.is_empty(), "left behind: {left:#?}");
    }
    Ok(())
}

/// One program is missing and one ends with an error; the third serves.
pub(crate) fn bad_program() -> Result<()> {
    let lab = Lab::small(
        "- {name: lost, command: ./no-such-program, port: 7001, sidecar: false}\n\
         - {name: sad, command: [sh, -c, 'echo no money left; exit 3'], sidecar: false}\n",
    )?;
    let _mesh = Background::start(&lab)?;
    lab.answer()?;
    let status = eventually(|| {
        let status = lab.status()?;
        let message = |name: &str| {
            let units = status["units"].as_array().cloned().unwrap_or_default();
            let unit = units.into_iter().find(|unit| unit["name"] == name);
            unit.and_then(|unit| Some(unit["message"].as_str()?.to_owned())).unwrap_or_default()
        };
        let (lost, sad) = (message("lost"), message("sad"));
        ensure!(lost.contains("no such program; build it, or change `command` in mesh.yaml"), "{lost}");
        ensure!(sad.contains("exit status: 3; its last words: no money left"), "{sad}");
        Ok(status)
    })?;
    ensure!(status["controlPlane"] != serde_json::Value::Null, "{status}");
    lab.answer()?;
    Ok(())
}

pub(crate) fn port_in_use() -> Result<()> {
    let lab = Lab::small("")?;
    let holder = TcpListener::bind(("127.0.0.1", lab.port))?;
    let _mesh = Background::start(&lab)?;
    eventually(|| {
        let problems = lab.status()?["problems"].to_string();
        ensure!(
            problems.contains("is in use by") && problems.contains("change the gateway's `ports`"),
            "{problems}"
        );
        Ok(())
    })?;
    drop(holder);
    lab.answer()?;
    Ok(())
}

pub(crate) fn loopback() -> Result<()> {
    let lab = Lab::small("")?;
    let said = lab.up(&["--loopback"])?;
    ensure!(said.contains("loopback mode: traffic is not captured"), "{said}");
    ensure!(lab.answer()?.contains("charged"), "the program answers");
    lab.down()?;
    Ok(())
}

/// A mesh that is not ready as a whole, so nobody can wait for that.
struct Background(std::process::Child);

impl Background {
    fn start(lab: &Lab) -> Result<Self> {
        let mut command = crate::lab::canopus()?;
        command.args(["up", "--no-view"]).arg(lab.path()).stdout(std::process::Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}
