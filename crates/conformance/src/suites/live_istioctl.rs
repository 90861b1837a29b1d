//! Command lines of istioctl with what they printed and their exit codes, the objects that profiles amount to, and the table
//! of all commands and flags.
//!
//! The tool is run as scripts run it, in the directory of the inputs. What asks a cluster finds the recorded one, rebuilt on a
//! real API server ([`stage`]).

pub(super) mod flags;
mod manifests;
mod stage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_runtime::version::BuildInfo;
use parking_lot::Mutex;

use super::{Suite, cluster_stage};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;
use crate::record;
use crate::tool::{self, Output};
use stage::Stage;

/// Where the files are that command lines name.
const INPUTS: &str = "inputs";

/// The charts of the recorded version, which its tool has built in.
const CHARTS: &str = "charts/live";

#[derive(Default)]
pub(super) struct LiveIstioctl {
    stage: OnceLock<Result<Mutex<Stage>, String>>,
}

impl Suite for LiveIstioctl {
    fn name(&self) -> &str {
        "live-istioctl"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let judged = match case.file.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some("commands") => self.replay(case),
            Some("manifests") => manifests::compare(case).map(Outcome::from),
            _ => flags::compare(case, &canopus_cli::command::tree(), "istioctl").map(Outcome::from),
        };
        judged.unwrap_or_else(|error| Outcome::error(format_args!("{error:#}")))
    }
}

impl LiveIstioctl {
    /// Runs a recorded command line again.
    fn replay(&self, case: &Case) -> anyhow::Result<Outcome> {
        let recorded = record::read(&case.corpus, &case.path(&case.file))?;
        let text = |key: &str| recorded.get(key).and_then(Node::as_str).unwrap_or_default();
        let mut arguments = words(text("command"));
        if recorded.get("objects").is_some() {
            let charts = case.corpus.absolute(CHARTS.as_ref());
            arguments.extend(["--manifests".to_owned(), charts.to_string_lossy().into_owned()]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let directory = case.corpus.absolute(&case.path(INPUTS));
        if text("cluster").contains("live") {
            return self.replay_live(case, &recorded, &arguments, &directory);
        }
        let output = tool::run(&arguments, &directory, text("stdin"))?;
        let mut found = compare(&recorded, &with_recorded_build(output))?;
        found.extend(manifests::listed(&recorded, &arguments, case)?);
        Ok(found.into())
    }

    fn replay_live(
        &self,
        case: &Case,
        recorded: &Node,
        arguments: &[&str],
        directory: &Path,
    ) -> anyhow::Result<Outcome> {
        if !cluster_stage::is_possible() {
            return Ok(cluster_stage::NO_CLUSTER);
        }
        let text = |key: &str| recorded.get(key).and_then(Node::as_str).unwrap_or_default();
        let start = || Stage::start(&case.corpus).map(Mutex::new).map_err(|error| format!("{error:#}"));
        let stage = self.stage.get_or_init(start).as_ref().map_err(|error| anyhow!("{error}"))?;
        let mut stage = stage.lock();
        let words = format!("{} {} {}", text("command"), text("stdout"), text("stderr"));
        stage.prepare(text("name"), &words, directory)?;
        let has_bare_proxy = text("note").contains("no PROXY_CONFIG");
        if has_bare_proxy {
            stage.connect_bare_proxy(&case.corpus)?;
        }
        let output = stage.run(arguments, directory, text("stdin"));
        if has_bare_proxy {
            stage.disconnect_last();
        }
        Ok(compare(recorded, &with_recorded_build(output?))?.into())
    }
}

/// The output as of a build that knows as little of itself as the recorded one.
fn with_recorded_build(output: Output) -> Output {
    let own = BuildInfo::current();
    let mut stdout = output.stdout.replace(&own.compiler, "go1.26.8");
    for (key, value) in
        [("version", &own.version), ("revision", &own.revision), ("status", &own.status), ("tag", &own.tag)]
    {
        let forms = [
            (format!("{key:?}:{value:?}"), format!("{key:?}:\"unknown\"")),
            (format!("\\\"{key}\\\":\\\"{value}\\\""), format!("\\\"{key}\\\":\\\"unknown\\\"")),
            (format!("    {key}: {value}\n"), format!("    {key}: unknown\n")),
            (format!("{key:?}: {value:?}"), format!("{key:?}: \"unknown\"")),
            (format!("  {key}: {value}\n"), format!("  {key}: unknown\n")),
        ];
        for (own, recorded) in forms {
            stdout = stdout.replace(&own, &recorded);
        }
    }
    for line in ["client version: ", "control plane version: "] {
        stdout = stdout.replace(&format!("{line}{}\n", own.version), &format!("{line}unknown\n"));
    }
    Output { stdout, ..output }
}

/// The arguments of a recorded command line, which quotes nothing: what is suppressed are two words, a kind and a name.
fn words(command: &str) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut words = command.split_whitespace().skip(1).map(str::to_owned);
    while let Some(word) = words.next() {
        let is_suppression = arguments.last().is_some_and(|last| last == "-S") && word.contains('=');
        let name = if is_suppression { words.next() } else { None };
        arguments.push(name.map_or(word.clone(), |name| format!("{word} {name}")));
    }
    arguments
}

fn compare(recorded: &Node, output: &Output) -> anyhow::Result<Vec<Difference>> {
    let text = |key| recorded.get(key).and_then(Node::as_str).unwrap_or_default();
    let code = recorded.get("exitCode").and_then(Node::as_i64).context("no exit code")?;
    let mut found = Vec::new();
    if output.code != Some(code) {
        let got = output.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        found.push(Difference::new("/exitCode", code, got));
    }
    found.extend(within("/stdout", stdout_difference(recorded, &output.stdout)));
    if !is_same_message(text("stderr"), &output.stderr) {
        found.extend(within("/stderr", text::difference(text("stderr"), &output.stderr)));
    }
    Ok(found)
}

/// How the output differs from the recorded one: trees as trees, texts by their lines without what a log adds.
fn stdout_difference(recorded: &Node, got: &str) -> Vec<Difference> {
    let text = |key| recorded.get(key).and_then(Node::as_str).unwrap_or_default();
    let expected = text("stdout");
    if expected == "<not empty>" {
        let is_empty = got.trim().is_empty();
        return if is_empty { vec![Difference::new("", expected, "nothing")] } else { Vec::new() };
    }
    let parsed = |text: &str| yaml::parse_one(text, &Limits::default());
    let is_document = matches!(text("stdoutIs"), "json" | "yaml") || text("command").contains("-o yaml");
    if is_document && let (Ok(expected), Ok(got)) = (parsed(expected), parsed(got)) {
        return tree::difference(&stage::comparable(expected), &stage::comparable(got), &Rules::default());
    }
    let got = &with_masks(expected, got);
    let without_log = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("<TIME>"));
        lines.collect::<Vec<_>>().join("\n")
    };
    text::difference(&without_log(expected), &without_log(got))
}

/// The texts by which a recording says that something was there which changes.
const MASKS: [&str; 3] = ["<MASKED>", "<API SERVER>", "<ADDRESS>"];

/// A text with the recorded lines in the place of those that are the same but for what was masked.
fn with_masks(expected: &str, got: &str) -> String {
    let mut recorded = expected.lines();
    let lines = got.lines().map(|line| match recorded.next() {
        Some(recorded) if is_same_line(Some(recorded), Some(line)) => recorded,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether two messages begin alike, or say the same in another order: files come in that of a map of Go's.
fn is_same_message(expected: &str, got: &str) -> bool {
    fn counted(text: &str) -> BTreeMap<&str, usize> {
        let mut lines = BTreeMap::new();
        text.lines().for_each(|line| *lines.entry(line).or_default() += 1);
        lines
    }
    is_same_line(expected.lines().next(), got.lines().next()) || counted(expected) == counted(got)
}

/// Whether two lines are the same where nothing is masked.
fn is_same_line(expected: Option<&str>, got: Option<&str>) -> bool {
    match (expected, got) {
        (Some(expected), Some(got)) => {
            let masked = MASKS.iter().find_map(|mask| expected.split_once(mask));
            match masked {
                Some((before, after)) => got.starts_with(before) && got.ends_with(after),
                None => expected == got,
            }
        }
        (expected, got) => expected == got,
    }
}

fn within(place: &str, differences: Vec<Difference>) -> impl Iterator<Item = Difference> {
    let place = place.to_owned();
    differences
        .into_iter()
        .map(move |difference| Difference { path: format!("{place} {}", difference.path), ..difference })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output(code: i64, stdout: &str, stderr: &str) -> Output {
        Output { code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn code_output_and_the_beginning_of_the_message_are_compared() {
        let recorded: Node = json!({"exitCode": 1, "stdout": "a\n", "stderr": "Error: x\nmore"}).into();
        let differences = |output| compare(&recorded, &output).unwrap().len();
        assert_eq!(differences(output(1, "a\n", "Error: x\nless")), 0);
        assert_eq!(differences(output(0, "b\n", "Error: y\nmore")), 3);
    }

    #[test]
    fn files_may_come_in_any_order() {
        assert!(is_same_message("a is valid\nb is valid\n", "b is valid\na is valid\n"));
        assert!(!is_same_message("a is valid\nb is valid\n", "b is valid\n"));
    }
}
