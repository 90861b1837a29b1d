//! `canopus validate`: files of objects, checked as admission would, with the line to change.

pub(crate) mod check;
mod istioctl;
mod operator;
pub(crate) mod report;
mod service;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::global::Global;
use crate::output::{print, say};
use crate::persona::Persona;
use crate::{exit, input};
use check::FileReport;

/// Files up to this size are checked before anybody would look for a progress bar.
const QUICK_BYTES: u64 = 4 << 20;

/// Check files of objects before a cluster sees them.
///
/// Reads YAML or JSON with any number of documents, from files, directories or standard input (`-`). Objects of kinds the
/// mesh does not read are skipped.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus validate -f routes.yaml
  canopus validate -f mesh/                       every .yaml, .yml and .json file below a directory
  kubectl get virtualservices -A -o yaml | canopus validate -f -
  canopus validate -f mesh/ -o json | jq '.findings[] | select(.severity == \"error\")'

Exit codes: 0 all objects are valid, 1 some are not or could not be read, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// File, directory, or `-` for standard input; may be repeated or separated by commas.
    #[arg(short, long = "filename", value_name = "PATH", value_delimiter = ',')]
    filenames: Vec<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Yaml,
}

pub(crate) fn run(persona: Persona, global: &Global, arguments: &Arguments) -> ExitCode {
    if arguments.filenames.is_empty() {
        return say(
            "Error: error: you must specify resources by --filename.\nExample resource specifications include:\n   \
             '-f rsrc.yaml'\n   '--filename=rsrc.json'\n",
            exit::FAILURE,
        );
    }
    let inputs = input::find(&arguments.filenames);
    let progress = progress(&inputs);
    let mut files = Vec::with_capacity(inputs.len());
    for input in inputs {
        files.push(check::file(&input, global, &progress));
    }
    progress.finish_and_clear();
    let is_valid = match persona {
        Persona::Canopus => FileReport::is_valid,
        Persona::Istioctl => FileReport::is_valid_to_istioctl,
    };
    let code = if files.iter().all(is_valid) { ExitCode::SUCCESS } else { exit::FAILURE };
    match (arguments.output, persona) {
        (Format::Json, _) => print(&report::json(&files), code),
        (Format::Yaml, _) => print(&report::yaml(&files), code),
        (Format::Text, Persona::Istioctl) => say(&istioctl::text(&files), code),
        (Format::Text, Persona::Canopus) => say(&report::text(&files), code),
    }
}

/// Shown on a terminal, for what takes long enough to be looked at.
fn progress(inputs: &[input::Input]) -> ProgressBar {
    let bytes: u64 = inputs.iter().map(input::Input::size).sum();
    if bytes < QUICK_BYTES || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
