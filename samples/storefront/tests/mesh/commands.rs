//! The commands for a mesh that runs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::lab::{Lab, canopus, eventually, text};
use crate::terminal::Terminal;

pub(crate) fn of_a_mesh() -> Result<()> {
    let lab = Lab::small("- {name: once, command: 'true', restart: never, sidecar: false}\n")?;
    failed(&lab, &["status"], "no mesh runs here; start it with `canopus up`")?;
    failed(&lab, &["logs"], "no mesh runs here")?;
    lab.up(&[])?;
    status(&lab)?;
    kill_and_restart(&lab)?;
    logs(&lab)?;
    attach(&lab)?;
    logs_end_with_the_mesh(&lab)?;
    ensure!(lab.down()?.contains("no mesh runs here"), "down where nothing runs");
    Ok(())
}

fn status(lab: &Lab) -> Result<()> {
    let table = eventually(|| lab.run(&["status"]))?;
    ensure!(table.starts_with("PROCESS") && table.contains("RESTARTS"), "{table}");
    for name in ["canopusd", "edge/proxy", "pay", "pay/proxy"] {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(name));
        let row = row.with_context(|| format!("{name} in\n{table}"))?;
        ensure!(row.split_whitespace().nth(1) == Some("ready"), "{row}");
    }
    ensure!(lab.unit("once")?["state"] == "stopped", "{table}");
    Ok(())
}

fn kill_and_restart(lab: &Lab) -> Result<()> {
    let before = lab.unit("pay")?;
    ensure!(lab.run(&["kill", "pay"])? == "killed: pay\n", "kill");
    lab.ready_again("pay", 1)?;
    ensure!(lab.unit("pay")?["pid"] != before["pid"], "another process");
    ensure!(lab.run(&["restart", "pay"])? == "restarting: pay\n", "restart");
    lab.ready_again("pay", 2)?;
    ensure!(lab.answer()?.contains("charged"), "it answers again");
    // What does not run cannot be killed, and stays as it is.
    failed(lab, &["kill", "once"], "once does not run; `canopus restart once` starts it")?;
    ensure!(lab.unit("once")?["restarts"] == 0, "kill has not started it");
    lab.run(&["restart", "once"])?;
    eventually(|| {
        let once = lab.unit("once")?;
        ensure!(once["restarts"] == 1 && once["state"] == "stopped", "{once}");
        Ok(())
    })?;
    failed(
        lab,
        &["kill", "cart"],
        "\"cart\" is not a process of the mesh; there are: canopusd, edge/proxy, once, pay",
    )
}

fn logs(lab: &Lab) -> Result<()> {
    let pay = lab.run(&["logs", "pay"])?;
    ensure!(pay.lines().all(|line| line.starts_with("listening on ")) && !pay.is_empty(), "{pay}");
    let one = lab.run(&["logs", "pay", "--tail", "1"])?;
    ensure!(one.lines().count() == 1, "{one}");
    let all = lab.run(&["logs"])?;
    for beginning in ["pay              | listening on ", "canopusd         | ", "pay/proxy        | "] {
        ensure!(all.lines().any(|line| line.starts_with(beginning)), "{beginning:?} in\n{all}");
    }
    failed(lab, &["logs", "cart"], "\"cart\" has written nothing; there are logs of: canopusd, ")
}

/// The view of a mesh that runs; leaving it leaves the mesh, and so does closing its terminal.
fn attach(lab: &Lab) -> Result<()> {
    let picture = lab.path().join("mesh.svg");
    let output = canopus()?.args(["up", "--attach", "--picture"]).arg(&picture).arg(lab.path()).output()?;
    ensure!(output.status.success(), "{}", text(&output));
    let svg = fs::read_to_string(&picture)?;
    ensure!(
        svg.starts_with("<svg ") && svg.contains("canopus · small") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    let output = lab.canopus(&["up", "--attach"])?;
    ensure!(text(&output).contains("needs a terminal; `canopus status`"), "{}", text(&output));
    for leave in ["q", "C-c"] {
        let path = lab.path().to_str().context("path")?;
        let terminal = Terminal::start("attach", (100, 30), &["up", "--attach", path])?;
        terminal.shows(&["canopus · small", "5 processes ready", "services", "leave"])?;
        terminal.press(leave)?;
        terminal.ended()?;
        ensure!(lab.answer()?.contains("charged"), "the mesh runs on after {leave}");
    }
    Ok(())
}

fn logs_end_with_the_mesh(lab: &Lab) -> Result<()> {
    let mut command = canopus()?;
    command.args(["logs", "pay", "-f", "--tail", "0", "-C"]).arg(lab.path()).stdout(Stdio::piped());
    let mut follower = command.spawn()?;
    let mut lines = BufReader::new(follower.stdout.take().context("output")?).lines();
    // It may not have begun to look.
    std::thread::sleep(Duration::from_secs(1));
    lab.run(&["restart", "pay"])?;
    let line = lines.next().context("a line")??;
    ensure!(line.starts_with("listening on "), "{line}");
    lab.down()?;
    let status = follower.wait()?;
    ensure!(status.success(), "logs -f ends with the mesh: {status}");
    Ok(())
}

fn failed(lab: &Lab, arguments: &[&str], words: &str) -> Result<()> {
    let output = lab.try_run(arguments)?;
    let said = text(&output);
    ensure!(output.status.code() == Some(1) && said.contains(words), "{arguments:?}: {said}");
    Ok(())
}

/// A mesh that is shown ends with its terminal, and its view ends with it.
pub(crate) fn terminal_and_mesh_end_together() -> Result<()> {
    let lab = Lab::small("")?;
    let path = lab.path().to_str().context("path")?;
    let state = lab.path().join(".canopus");
    let terminal = Terminal::start("down", (100, 30), &["up", path])?;
    terminal.shows(&["4 processes ready", "end"])?;
    let began = Instant::now();
    lab.down()?;
    ensure!(began.elapsed() < Duration::from_secs(12), "down had to kill the mesh");
    terminal.ended()?;
    ensure!(!state.exists(), "the mesh is gone");
    let terminal = Terminal::start("closed", (100, 30), &["up", path])?;
    terminal.shows(&["4 processes ready"])?;
    drop(terminal);
    eventually(|| {
        ensure!(!state.exists(), "the mesh has not ended with its terminal");
        Ok(())
    })
}

/// From two programs to a mesh of them: what `canopus init` writes runs.
pub(crate) fn init() -> Result<()> {
    let directory = tempfile::Builder::new().prefix("mesh-").tempdir()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let path = directory.path().to_str().context("path")?;
    let run = |arguments: &[&str]| {
        let output = canopus()?.args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", text(&output));
        Ok(text(&output))
    };
    let said = run(&[
        "init",
        "-C",
        path,
        "--gateway",
        &port,
        "catalogue:8080=storefront catalogue",
        "inventory:7000/tcp=storefront inventory",
    ])?;
    ensure!(said.contains("`canopus up` runs it") && said.contains("to catalogue"), "{said}");
    run(&["up", "--detach", path])?;
    // The catalogue asks the inventory for the stock, by its name.
    let page = eventually(|| {
        let url = format!("http://127.0.0.1:{port}/products");
        let output = Command::new("curl").args(["-sS", "--fail", "--max-time", "5", &url]).output()?;
        ensure!(output.status.success(), "{}", text(&output));
        Ok(text(&output))
    });
    run(&["down", path])?;
    let page = page?;
    ensure!(page.contains("\"stock\":42"), "{page}");
    Ok(())
}
