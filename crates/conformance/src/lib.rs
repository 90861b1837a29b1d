//! The scoreboard of the project: runs the conformance corpus and says, suite by suite, how much of it holds.
//!
//! Owns how cases are found in the data, how expected and actual outcomes are compared, and the ratchet that keeps a
//! count from falling. It may use every product crate; nothing may use it but developers and CI. It must not know any
//! case by name.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks on its standard streams"
)]

mod better;
mod case;
pub mod compare;
mod corpus;
mod dump;
mod layout;
mod ratchet;
mod record;
mod report;
mod run;
mod suites;
pub mod tool;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};

use corpus::Corpus;
use dump::Dump;
use ratchet::Ratchet;
use run::{Plan, Selection};

/// Runs the conformance corpus and prints one line per suite.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask conformance", bin_name = "cargo xtask conformance", max_term_width = 100)]
struct Arguments {
    /// Suites to run; all if none is named.
    suites: Vec<String>,

    /// The corpus [default: CANOPUS_CORPUS, else ../shared/conformance beside the repository].
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// A suite to run, as the positional argument.
    #[arg(long = "suite", value_name = "SUITE")]
    more_suites: Vec<String>,

    /// Run only cases of this id, or whose id contains this text if none has it.
    #[arg(long = "case", value_name = "CASE")]
    cases: Vec<String>,

    /// Also print counts by group, the first part of a case's id.
    #[arg(long)]
    groups: bool,

    /// Show where expectation and outcome part, field by field.
    #[arg(long)]
    diff: bool,

    /// Also write the results here as JSON (they always go to target/conformance.json).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write what was generated below this directory: in the corpus' own layout for a suite's own files, below its name for
    /// what it makes of files of others.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,

    /// List the cases instead of running them.
    #[arg(long)]
    list: bool,

    /// Hold the counts against the ratchet, or raise it to them.
    #[arg(long, value_name = "ACTION")]
    ratchet: Option<RatchetAction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RatchetAction {
    /// Fail if a count is below the ratchet.
    Check,
    /// Write the present counts to the ratchet.
    Update,
}

/// Runs the tool with these arguments, the first of which is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match execute(&Arguments::parse_from(arguments)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Some(corpus) = find_corpus(arguments)? else {
        println!("conformance corpus not found: skipped");
        return Ok(ExitCode::SUCCESS);
    };
    let selection = Selection {
        suites: [arguments.suites.as_slice(), &arguments.more_suites].concat(),
        cases: arguments.cases.clone(),
    };
    let plans = run::plan(&corpus, &selection)?;
    if arguments.list {
        report::list(&plans);
        return Ok(ExitCode::SUCCESS);
    }
    score(arguments, &corpus, &plans)
}

fn score(arguments: &Arguments, corpus: &Corpus, plans: &[Plan]) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let scores = run::run(plans, &Dump::new(arguments.dump.clone()))?;
    if arguments.diff {
        report::differences(&scores);
    }
    report::table(&scores, start.elapsed());
    if arguments.groups {
        report::groups(&scores);
    }
    let json = report::json(&scores);
    write(&repository().join("target/conformance.json"), &json)?;
    if let Some(file) = &arguments.json {
        write(file, &json)?;
    }
    let ratchet = Ratchet::in_repository(&repository());
    match arguments.ratchet {
        None => Ok(ExitCode::SUCCESS),
        Some(RatchetAction::Update) => ratchet.update(corpus, &scores),
        Some(RatchetAction::Check) => ratchet.check(corpus, &scores),
    }
}

/// The corpus to run; `None` if none was asked for and there is none in the usual place.
fn find_corpus(arguments: &Arguments) -> anyhow::Result<Option<Corpus>> {
    if let Some(directory) = &arguments.corpus {
        if !directory.is_dir() {
            bail!("no conformance corpus at {}", directory.display());
        }
        return Corpus::open(directory).map(Some);
    }
    let directory = corpus_of_environment().unwrap_or_else(|| repository().join("../shared/conformance"));
    if !directory.is_dir() {
        return Ok(None);
    }
    Corpus::open(&directory).map(Some)
}

#[allow(clippy::disallowed_methods, reason = "a developer's tool, not a part of the product")]
fn corpus_of_environment() -> Option<PathBuf> {
    std::env::var_os("CANOPUS_CORPUS").map(PathBuf::from)
}

fn repository() -> PathBuf {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    ancestors.skip(2).map(Path::to_owned).next().unwrap_or_default()
}

fn write(file: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}
