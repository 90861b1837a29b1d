//! How an analysis is printed: messages on standard output, the rest on standard error.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use canopus_analysis::message::DOCUMENTATION;
use canopus_analysis::{Level, Message};
use canopus_base::tree::Node;
use canopus_base::yaml;
use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::report::{FileError, Report};
use super::{Arguments, Format};
use crate::output;

/// Exit code: a message at or above the threshold was found.
const FOUND_ISSUES: u8 = 79;
/// A file could not be read.
const UNREADABLE_FILE: u8 = 65;

pub(super) fn print(report: &Report, arguments: &Arguments, format: Format) -> ExitCode {
    let messages: Vec<&Message> = report
        .outcome
        .messages
        .iter()
        .filter(|message| message.level.reaches(arguments.output_threshold))
        .collect();
    let mut words = String::new();
    report.notes.iter().for_each(|note| line(&mut words, note));
    words.push_str(&parse_errors(&report.errors));
    if arguments.verbose {
        words.push_str(&analyzers(report));
    }
    let text = match format {
        Format::Log => log(report, &messages, colours(arguments)),
        Format::Json => json(report, &messages),
        Format::Yaml => yaml(report, &messages),
    };
    if messages.is_empty() {
        line(&mut words, &nothing_found(report));
    }
    let fails = |message: &Message| message.level.reaches(arguments.failure_threshold);
    let code = if format != Format::Log {
        ExitCode::SUCCESS
    } else if report.outcome.messages.iter().any(fails) {
        line(&mut words, &format!("Error: Analyzers found issues when analyzing {}.", report.target()));
        line(&mut words, &format!("See {DOCUMENTATION} for more information about causes and resolutions."));
        ExitCode::from(FOUND_ISSUES)
    } else if !report.errors.is_empty() && !arguments.ignore_unknown {
        line(&mut words, "Error: Some files couldn't be parsed.");
        ExitCode::from(UNREADABLE_FILE)
    } else {
        ExitCode::SUCCESS
    };
    match output::print(&text, ExitCode::SUCCESS) {
        ExitCode::SUCCESS => output::say(&words, code),
        failure => failure,
    }
}

fn line(text: &mut String, words: &str) {
    text.push_str(words);
    text.push('\n');
}

/// Files that could not be read, as Go's library prints errors in errors.
fn parse_errors(errors: &[FileError]) -> String {
    if errors.is_empty() {
        return String::new();
    }
    let mut text = format!("Error(s) adding files: {} occurred:\n", counted(errors.len()));
    for FileError { file, documents } in errors {
        let _ = writeln!(text, "\t* errors parsing content {file:?}: {} occurred:", counted(documents.len()));
        for (document, error) in documents {
            let _ = writeln!(text, "\t* error processing {file}[{document}]: {error}");
        }
        text.push_str("\n\n");
    }
    text.push('\n');
    text
}

fn counted(errors: usize) -> String {
    if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") }
}

fn analyzers(report: &Report) -> String {
    let mut text = format!("Analyzed resources in {}\n", report.target());
    for (title, names) in
        [("Skipped analyzers:", &report.outcome.skipped), ("Executed analyzers:", &report.outcome.chosen)]
    {
        if !names.is_empty() {
            line(&mut text, title);
            names.iter().for_each(|name| line(&mut text, &format!("\t {name}")));
        }
    }
    text.push('\n');
    text
}

fn nothing_found(report: &Report) -> String {
    const FOUND: &str = "No validation issues found when analyzing";
    match (report.errors.len(), report.files.as_slice()) {
        (0, []) => format!("✔ {FOUND} {}.", report.target()),
        (0, [file]) => format!("✔ {FOUND} {file}."),
        (0, files) => format!("✔ {FOUND}:\n  - {}", files.join("\n  - ")),
        (1, _) => format!("{FOUND} {} (but 1 file could not be parsed).", report.target()),
        (broken, _) => format!("{FOUND} {} (but {broken} files could not be parsed).", report.target()),
    }
}

fn colours(arguments: &Arguments) -> bool {
    let may = || {
        std::io::stdout().is_terminal()
            && anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
    };
    arguments.color.unwrap_or_else(may)
}

fn log(report: &Report, messages: &[&Message], with_colours: bool) -> String {
    let mut text = String::new();
    for message in messages {
        let (start, end) = match message.level {
            _ if !with_colours => ("", ""),
            Level::Error => ("\x1b[1;31m", "\x1b[0m"),
            Level::Warning => ("\x1b[33m", "\x1b[0m"),
            Level::Info => ("", "\x1b[0m"),
        };
        let origin = message.origin_text(report.with_clusters);
        let remedy = message.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{start}{}{end} [{}]{origin} {}{remedy}",
            message.level, message.code, message.text
        );
    }
    if messages.is_empty() {
        text.push('\n');
    }
    text
}

fn values(report: &Report, messages: &[&Message]) -> Vec<Value> {
    messages.iter().map(|message| message.to_json(report.with_clusters)).collect()
}

/// JSON with tabs, as istioctl prints it.
fn json(report: &Report, messages: &[&Message]) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"\t"));
    // Writing to memory does not fail.
    let _ = values(report, messages).serialize(&mut serializer);
    bytes.push(b'\n');
    String::from_utf8(bytes).unwrap_or_default()
}

fn yaml(report: &Report, messages: &[&Message]) -> String {
    let values = Value::Array(values(report, messages));
    let mut text = yaml::node_to_string(&Node::from(values));
    text.push('\n');
    text
}
