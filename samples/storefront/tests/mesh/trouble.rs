//! What goes wrong: it is named precisely, and the rest keeps running.

use std::fs;
use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::lab::{Lab, eventually, text};

/// One program is missing and one ends with an error; the third serves, and `up --detach` says what lacks.
pub(crate) fn bad_program() -> Result<()> {
    let lab = Lab::small(
        "- {name: lost, command: ./no-such-program, port: 7001, sidecar: false}\n\
         - {name: sad, command: [sh, -c, 'echo no money left; exit 3'], sidecar: false}\n",
    )?;
    let began = Instant::now();
    let output = lab.canopus(&["up", "--detach"])?;
    let said = text(&output);
    ensure!(output.status.code() == Some(1), "{said}");
    ensure!(began.elapsed() < Duration::from_secs(110), "it waited for what cannot come: {said}");
    for words in [
        "no such program; build it, or change `command` in mesh.yaml",
        "small: not ready after ",
        "everything else runs: lost: ",
        "`canopus status` tells how it is",
    ] {
        ensure!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    ensure!(lab.answer()?.contains("charged"), "the third program serves");
    eventually(|| {
        let (lost, sad) = (lab.unit("lost")?["message"].to_string(), lab.unit("sad")?["message"].to_string());
        ensure!(lost.contains("no such program; build it, or change `command` in mesh.yaml"), "{lost}");
        ensure!(sad.contains("exit status: 3; its last words: no money left"), "{sad}");
        Ok(())
    })?;
    let table = lab.try_run(&["status"])?;
    ensure!(table.status.code() == Some(1), "a mesh that is not ready has status 1: {}", text(&table));
    ensure!(lab.status()?["controlPlane"] == true, "the control plane answers");
    lab.down()?;
    Ok(())
}

pub(crate) fn port_in_use() -> Result<()> {
    let lab = Lab::small("")?;
    let holder = TcpListener::bind(("127.0.0.1", lab.port))?;
    let output = lab.canopus(&["up", "--detach"])?;
    let said = text(&output);
    ensure!(output.status.code() == Some(1), "{said}");
    for words in ["is in use by mesh", "change the gateway's `ports` in mesh.yaml", "small: not ready after "]
    {
        ensure!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    ensure!(lab.unit("pay")?["state"] == "ready", "the rest runs");
    drop(holder);
    ensure!(lab.answer()?.contains("charged"), "the port is tried again");
    eventually(|| {
        let problems = lab.status()?["problems"].to_string();
        ensure!(problems == "[]", "{problems}");
        Ok(())
    })?;
    lab.down()?;
    Ok(())
}

/// A proxy and a program that die are started again, and their service answers again.
pub(crate) fn crashes() -> Result<()> {
    let lab = Lab::small("")?;
    lab.up(&[])?;
    for name in ["pay/proxy", "edge", "canopusd", "pay"] {
        let unit = if name == "edge" { "edge/proxy" } else { name };
        let before = lab.unit(unit)?["restarts"].as_u64().unwrap_or_default();
        let said = lab.run(&["kill", name])?;
        ensure!(said == format!("killed: {unit}\n"), "{said}");
        lab.ready_again(unit, before + 1)?;
        ensure!(lab.answer()?.contains("charged"), "after the end of {name}");
    }
    lab.down()?;
    Ok(())
}

/// `up` with a file that is wrong names every place, leaves nothing, and does not touch a mesh that runs.
pub(crate) fn bad_file() -> Result<()> {
    let lab = Lab::small("")?;
    let file = lab.path().join("mesh.yaml");
    let good = fs::read_to_string(&file)?;
    fs::write(&file, good.replace("port: 8080}", "prot: 8080}"))?;
    failed(&lab.canopus(&["up", "--detach"])?, &["mesh.yaml:5:", "workloads[0].prot: unknown field"])?;
    fs::write(&file, good.replace("port: 8080}", "port: 0, protocol: grcp}"))?;
    failed(
        &lab.canopus(&["up", "--no-view"])?,
        &[
            "workloads[0].port: 0 is no port; use 1 to 65535",
            "workloads[0].protocol: \"grcp\" is not known; use HTTP",
        ],
    )?;
    fs::write(&file, "workloads: [")?;
    failed(&lab.canopus(&["up", "--tour"])?, &["mesh.yaml:1:"])?;
    fs::remove_file(&file)?;
    failed(&lab.canopus(&["up"])?, &["mesh.yaml", "`canopus init"])?;
    ensure!(!lab.path().join(".canopus").exists(), "nothing was made");

    fs::write(&file, &good)?;
    lab.up(&[])?;
    let before = lab.unit("pay")?["pid"].clone();
    failed(&lab.canopus(&["up", "--detach"])?, &["the mesh runs already", "`canopus down` ends it"])?;
    fs::write(&file, "workloads: [")?;
    failed(&lab.canopus(&["up", "--detach"])?, &["mesh.yaml:1:"])?;
    ensure!(lab.answer()?.contains("charged") && lab.unit("pay")?["pid"] == before, "the mesh is as it was");
    // Down needs no file that can be read.
    lab.down()?;
    ensure!(!lab.path().join(".canopus").exists(), "the mesh is gone");
    Ok(())
}

/// An object that cannot be read is named in canopusd's log, and the other objects count.
pub(crate) fn bad_object() -> Result<()> {
    let lab = Lab::small("")?;
    lab.up(&[])?;
    lab.answer()?;
    fs::write(lab.path().join("config/broken.yaml"), "kind: [\n")?;
    eventually(|| {
        let log = lab.run(&["logs", "canopusd", "--tail", "200"])?;
        ensure!(log.contains("broken.yaml"), "{log}");
        Ok(())
    })?;
    ensure!(lab.answer()?.contains("charged"), "everything else counts");
    lab.down()?;
    Ok(())
}

fn failed(output: &Output, words: &[&str]) -> Result<()> {
    let said = text(output);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    words.iter().try_for_each(|words| {
        ensure!(said.contains(words), "{words:?} is not in:\n{said}");
        Ok(())
    })
}
