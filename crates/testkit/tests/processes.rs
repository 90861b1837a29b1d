//! Nothing that a test started is left behind: not after a panic, not after the test process was killed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use canopus_testkit::{Process, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// Tells a second process of this test where to leave its traces; absent in an ordinary run.
const TRACES: &str = "CANOPUS_TESTKIT_TRACES";

/// A component that starts a process of its own and writes both ids down.
fn start_family(traces: &Path, directory: &Path) -> Process {
    let script = r#"sleep 600 & echo "$$ $!" > "$1.part"; mv "$1.part" "$1"; wait"#;
    Process::spawn("family", Command::new("sh").args(["-c", script, "sh"]).arg(traces), directory).unwrap()
}

async fn family_ids(traces: &Path) -> Vec<u32> {
    let written = eventually("ids written down", PATIENCE, async || {
        fs::read_to_string(traces).context("nothing written")
    });
    written.await.unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn is_running(id: u32) -> bool {
    let status = Command::new("ps").args(["-o", "stat=", "-p", &id.to_string()]).output().unwrap();
    let state = String::from_utf8(status.stdout).unwrap();
    !state.trim().is_empty() && !state.starts_with('Z')
}

async fn assert_gone(ids: &[u32]) {
    let gone = eventually("no process left", PATIENCE, async || {
        let left: Vec<_> = ids.iter().filter(|id| is_running(**id)).collect();
        ensure!(left.is_empty(), "still running: {left:?}");
        Ok(())
    });
    gone.await.unwrap();
}

#[tokio::test]
async fn whole_family_is_gone_when_the_test_panics() {
    let directory = tempfile::tempdir().unwrap();
    let traces = directory.path().join("ids");
    let process = start_family(&traces, directory.path());
    let ids = family_ids(&traces).await;
    assert!(ids.iter().all(|id| is_running(*id)), "{ids:?}");

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = process;
        panic!("as a failing test does");
    }));
    assert!(panicked.is_err());
    assert_gone(&ids).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how one test process tells another which part it plays")]
async fn family_and_files_are_gone_when_the_test_process_is_killed() {
    if let Some(traces) = env::var_os(TRACES) {
        play_the_victim(Path::new(&traces));
    }
    let directory = tempfile::tempdir().unwrap();
    let traces = directory.path().join("ids");
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "family_and_files_are_gone_when_the_test_process_is_killed"])
        .env(TRACES, &traces)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ids = family_ids(&traces).await;
    let scratch = PathBuf::from(fs::read_to_string(traces.with_extension("scratch")).unwrap());
    assert!(ids.iter().all(|id| is_running(*id)) && scratch.exists());

    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_gone(&ids).await;
    let removed = eventually("scratch directory removed", PATIENCE, async || {
        ensure!(!scratch.exists(), "{} is there", scratch.display());
        Ok(())
    });
    removed.await.unwrap();
}

/// The second process of the test above: starts a family and lives until it is killed.
fn play_the_victim(traces: &Path) -> ! {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(traces.with_extension("scratch"), scratch.path().to_str().unwrap()).unwrap();
    let _family = start_family(traces, scratch.path());
    loop {
        std::thread::park();
    }
}
