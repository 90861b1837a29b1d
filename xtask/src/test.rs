mod programs;
mod room;
mod summary;

use std::process::Command;
use std::thread;

use anyhow::{Result, anyhow, ensure};
use canopus_parts::{Part, ensure_in_lines, find};

use crate::shell::{cargo, root, run, succeeds};
use crate::{conformance, demo, tidy};
use summary::{Outcome, Summary};

/// The parts that tests start, and what checks dependencies.
const PARTS: [Part; 13] = [
    Part::Envoy,
    Part::Iptables,
    Part::Dig,
    Part::GoTemplate,
    Part::Registry,
    Part::Grpc,
    Part::Containerd,
    Part::Runtime,
    Part::Kube,
    Part::Coredns,
    Part::Consul,
    Part::Helm,
    Part::CargoDeny,
];

/// What makes some tests do more than they do in a day's loop.
const AS_CI: [(&str, &str); 2] = [
    // As many simulated runs as fit: see `cargo xtask simulate`.
    ("CANOPUS_SIMULATION_SECONDS", "60"),
    // Number of times that a mesh on this machine is started and ended; it must leave nothing.
    ("CANOPUS_UP_DOWN", "20"),
];

/// The beginning of the names of tests that need a part built with Go.
const NEEDS_GO_BUILD: &str = "real_";

/// Runs everything that CI runs: set-up, formatting, lints, tests, laws of the tree, licences, conformance, the demo's tour.
///
/// The parts that tests start are installed first, once per machine; those that have to be compiled are, beside the Rust
/// code. With a filter, only the set-up and the tests whose names match are run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                      everything; run it before you push
  cargo xtask test --quick              without the tests that need servers built with Go
  cargo xtask test -- wildcard          the tests with `wildcard` in their names")]
pub(crate) struct Arguments {
    /// Leave out the tests that need a Kubernetes API server, Consul or Helm, and do not build those.
    #[arg(long)]
    quick: bool,

    /// Filter and other arguments for the tests.
    #[arg(last = true, value_name = "FILTER")]
    filter: Vec<String>,
}

pub(crate) fn run_all(arguments: &Arguments) -> Result<()> {
    let is_wanted = |part: &Part| {
        let is_here = !matches!(part, Part::Iptables | Part::Dig | Part::Containerd | Part::Runtime)
            || cfg!(target_os = "linux");
        is_here && !(arguments.quick && part.is_built())
    };
    let parts: Vec<_> = PARTS.into_iter().filter(is_wanted).collect();
    let mut summary = Summary::default();
    let full = arguments.filter.is_empty();

    room::check()?;
    // Compiling Go and compiling Rust at the same time leaves no core idle in either's slack.
    let installing = thread::spawn(move || ensure_in_lines(&parts));
    if full {
        summary.step("tidy", tidy::run);
        summary.step("fmt", || run(cargo().args(["fmt", "--all", "--check"])));
        summary.step("clippy", || run(&mut clippy()));
    }
    let compiled = summary.step("compile tests", || run(&mut compile()));
    summary.step("parts", || {
        installing.join().map_err(|_| anyhow!("installing parts panicked"))?.map(drop).map_err(Into::into)
    });
    if compiled {
        summary.step("test", || tests(arguments));
    } else {
        summary.note("test", Outcome::Skipped("the tests do not compile".to_owned()));
    }
    if full {
        deny(&mut summary);
        if compiled {
            conformance(&mut summary);
            if cfg!(target_os = "linux") {
                summary.step("demo", demo::tour_of_built);
            }
        }
    }
    if arguments.quick {
        let left_out = format!("left out by --quick: tests named `{NEEDS_GO_BUILD}…`");
        summary.note("servers built with Go", Outcome::Skipped(left_out));
    }
    println!("\n{summary}");
    ensure!(summary.is_good(), "{}", summary.failures());
    Ok(())
}

fn clippy() -> Command {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    command
}

/// Compiles the tests, and with them the programs: the same features, so nothing is compiled a second time for the scoreboard.
fn compile() -> Command {
    let mut command = cargo();
    command.args(["build", "--workspace", "--lib", "--bins", "--examples", "--tests"]);
    command
}

fn tests(arguments: &Arguments) -> Result<()> {
    let mut words = arguments.filter.clone();
    if arguments.quick {
        words.extend(["--skip", NEEDS_GO_BUILD].map(str::to_owned));
    }
    let variables: &[_] = if arguments.filter.is_empty() { &AS_CI } else { &[] };
    programs::run_all(&words, variables)
}

fn deny(summary: &mut Summary) {
    let Ok(directory) = find(Part::CargoDeny) else {
        let reason = "cargo-deny is not installed (`cargo xtask parts cargo-deny`, some minutes)";
        return summary.note("deny", Outcome::Skipped(reason.to_owned()));
    };
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(directory.join("cargo-deny"));
        command.current_dir(root()).arg("--all-features").args(arguments);
        command
    };
    let check = |what: &[&str]| {
        let mut command = deny(&["check", "--hide-inclusion-graph"]);
        command.args(what);
        command
    };
    summary.step("deny", || run(&mut check(&["bans", "licenses", "sources"])));
    if succeeds(&mut deny(&["fetch", "db"])) {
        summary.step("advisories", || run(&mut check(&["advisories"])));
    } else {
        summary.note("advisories", Outcome::Skipped("the advisory database cannot be reached".to_owned()));
    }
}

fn conformance(summary: &mut Summary) {
    if conformance::is_there() {
        summary.step("conformance", || conformance::run_built(&["--ratchet", "check"]));
    } else {
        summary.note("conformance", Outcome::Skipped("crates/conformance not found".to_owned()));
    }
}
