//! Runs the test programs of the workspace, several at a time.
//!
//! `cargo test` runs one after the other, and half of the time they wait: for servers to start, for a lease to expire. Here each lane
//! takes the next program of one queue until it is empty. What a program says is shown when it ends, in one piece. Programs that compare
//! the whole machine before and after themselves run alone, at last.

use std::collections::VecDeque;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;
use parking_lot::Mutex;

use crate::shell::{cargo, run};

/// Programs at a time.
const LANES: usize = 2;

/// Programs that take minutes, longest first: begun last, one of them would have the machine to itself at the end.
const LONGEST: [&str; 14] = [
    "canopus-cli real_mesh",
    "canopus-agent pods",
    "canopus-daemon real_operator",
    "canopus-cli real_cni",
    "canopus-cli what_if",
    "canopus-engine canopus_engine",
    "canopus-daemon canopus_daemon",
    "canopus-daemon real_controllers",
    "canopus-agent certificate_day",
    "canopus-daemon real_authority",
    "canopus-daemon identity",
    "canopus-daemon panics",
    "canopus-sources real_kubernetes",
    "canopus-daemon faults",
];

/// Programs whose tests look for what they leave behind, wherever it is on the machine.
const ALONE: [&str; 1] = ["canopus-storefront mesh"];

/// How many of the slowest programs are named at the end.
const NAMED: usize = 10;

/// A test binary that cargo built.
#[derive(Debug)]
struct Program {
    /// The package and the target: `canopus-daemon delta`.
    name: String,
    executable: PathBuf,
    /// Where its package is.
    directory: PathBuf,
}

/// How a program ended.
struct Run {
    name: String,
    passed: usize,
    failed: usize,
    is_good: bool,
    time: Duration,
}

/// Runs all tests whose names match, with these variables set.
pub(super) fn run_all(arguments: &[String], variables: &[(&str, &str)]) -> Result<()> {
    let (alone, mut side_by_side): (Vec<_>, Vec<_>) =
        find()?.into_iter().partition(|program| ALONE.contains(&&*program.name));
    let rank =
        |program: &Program| LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len());
    side_by_side.sort_by_key(rank);
    let mut runs = run_in_lanes(side_by_side, LANES, arguments, variables)?;
    runs.extend(run_in_lanes(alone, 1, arguments, variables)?);
    let documented = documentation(arguments);
    report(runs)?;
    documented
}

/// Compiles what is not compiled yet, and lists the programs.
fn find() -> Result<Vec<Program>> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--lib", "--bins", "--examples", "--tests", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut compiling = command.spawn().context("starting cargo")?;
    let messages = compiling.stdout.take().context("what cargo says")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(messages)) {
        let Message::CompilerArtifact(artifact) = message.context("reading what cargo says")? else {
            continue;
        };
        let Some(executable) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let directory = artifact.manifest_path.parent().context("a manifest is in a directory")?;
        let package = package_name(&artifact.package_id.repr);
        programs.push(Program {
            name: format!("{package} {}", artifact.target.name),
            executable: executable.into(),
            directory: directory.into(),
        });
    }
    ensure!(compiling.wait().context("waiting for cargo")?.success(), "the tests do not compile");
    Ok(programs)
}

/// The name in a package's identity: `path+file:///…/daemon#canopus-daemon@0.1.0`, or without the name where the directory has it.
fn package_name(id: &str) -> &str {
    let (path, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

fn run_in_lanes(
    programs: Vec<Program>,
    lanes: usize,
    arguments: &[String],
    variables: &[(&str, &str)],
) -> Result<Vec<Run>> {
    let queue = Mutex::new(VecDeque::from(programs));
    let runs = Mutex::new(Vec::new());
    let lane = || -> Result<()> {
        loop {
            let next = queue.lock().pop_front();
            let Some(program) = next else { return Ok(()) };
            eprintln!("running {}", program.name);
            let run = program.run(arguments, variables)?;
            runs.lock().push(run);
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked")))
    })?;
    Ok(runs.into_inner())
}

impl Program {
    fn run(&self, arguments: &[String], variables: &[(&str, &str)]) -> Result<Run> {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).args(arguments);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let started = Instant::now();
        let output = command.output().with_context(|| format!("starting {}", self.name))?;
        let time = started.elapsed();
        let (passed, failed) = counts(&String::from_utf8_lossy(&output.stdout));
        let is_good = output.status.success();
        // With a filter, most programs have nothing to say.
        if !is_good || passed > 0 {
            self.show(&output, time);
        }
        Ok(Run { name: self.name.clone(), passed, failed, is_good, time })
    }

    /// Shows what a program said, in one piece.
    fn show(&self, output: &Output, time: Duration) {
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let said = said.concat();
        println!("\n-- {} ({:.1} s, {})\n{said}", self.name, time.as_secs_f64(), output.status);
    }
}

/// How many tests passed and failed, by the last words of a program of tests.
fn counts(output: &str) -> (usize, usize) {
    let number = |line: &str, what: &str| {
        let parts = line.split([';', '.']).map(str::trim);
        let mut counted = parts.filter_map(|part| part.strip_suffix(what)?.trim().parse().ok());
        counted.next().unwrap_or(0)
    };
    let results = output.lines().filter(|line| line.starts_with("test result: "));
    results.fold((0, 0), |(passed, failed), line| {
        (passed + number(line, "passed"), failed + number(line, "failed"))
    })
}

/// The examples in documentation.
fn documentation(arguments: &[String]) -> Result<()> {
    run(cargo().args(["test", "--workspace", "--doc", "--no-fail-fast", "--quiet", "--"]).args(arguments))
}

/// Says what took longest and what failed.
fn report(mut runs: Vec<Run>) -> Result<()> {
    runs.sort_by_key(|run| std::cmp::Reverse(run.time));
    eprintln!("\nthe slowest programs of tests:");
    for run in runs.iter().take(NAMED) {
        eprintln!("{:>8.1} s  {}", run.time.as_secs_f64(), run.name);
    }
    let sum = |count: fn(&Run) -> usize| runs.iter().map(count).sum::<usize>();
    eprintln!("\n{} passed, {} failed", sum(|run| run.passed), sum(|run| run.failed));
    let bad: Vec<&str> = runs.iter().filter(|run| !run.is_good).map(|run| &*run.name).collect();
    ensure!(bad.is_empty(), "tests failed in: {}", bad.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let said = "running 3 tests\n\ntest result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out; \
                    finished in 0.00s\n";
        assert_eq!(counts(said), (12, 1));
        assert_eq!(counts("nothing of the kind"), (0, 0));
    }

    #[test]
    fn packages_are_named_as_users_know_them() {
        assert_eq!(
            package_name("path+file:///somewhere/crates/daemon#canopus-daemon@0.1.0"),
            "canopus-daemon"
        );
        assert_eq!(package_name("path+file:///somewhere/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn failing_program_is_named_and_others_still_run() {
        let program = |name: &str, executable: &str| Program {
            name: name.to_owned(),
            executable: executable.into(),
            directory: "/".into(),
        };
        let programs = vec![program("bad", "false"), program("good", "true")];
        let runs = run_in_lanes(programs, 2, &[], &[]).unwrap();
        assert_eq!(runs.len(), 2);
        assert_eq!(report(runs).unwrap_err().to_string(), "tests failed in: bad");
    }
}
