//! Findings for people, with the lines they are about, and for programs.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use canopus_base::tree::Pos;
use canopus_base::yaml;
use serde::Serialize;

use super::check::{FileReport, Finding, Severity};

/// Snippets of the text around each finding, then a line for each file.
pub(crate) fn text(files: &[FileReport]) -> String {
    let renderer = Renderer::styled();
    let mut out = String::new();
    for file in files {
        let source = String::from_utf8_lossy(&file.text);
        let lines = line_starts(&source);
        for finding in &file.findings {
            out += &renderer.render(&[snippet(file, &source, &lines, finding)]);
            out += "\n\n";
        }
    }
    for file in files {
        out += &summary(file);
    }
    out
}

fn snippet<'a>(file: &'a FileReport, source: &'a str, lines: &[usize], finding: &'a Finding) -> Group<'a> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = level.primary_title(finding.message.as_str());
    let mut group = match finding.code {
        Some(code) => Group::with_title(title.id(code)),
        None => Group::with_title(title),
    };
    if finding.at.is_known() {
        let place = place(source, lines, finding.at);
        // Only the line and its neighbours: a file of 100,000 documents is not searched for each finding.
        let window = window(lines, source.len(), finding.at);
        let annotation = AnnotationKind::Primary.span(place.start - window.start..place.end - window.start);
        let first_line = (finding.at.line as usize).saturating_sub(1).max(1);
        group = group.element(
            Snippet::source(&source[window])
                .line_start(first_line)
                .path(file.name.as_str())
                .annotation(annotation.label(finding.path.as_str())),
        );
    }
    if !finding.object.kind.is_empty() {
        group = group.element(Level::NOTE.message(format!("in {}", finding.object)));
    }
    match &finding.remedy {
        Some(remedy) => group.element(Level::HELP.message(remedy.as_str())),
        None => group,
    }
}

fn summary(file: &FileReport) -> String {
    let counted = |severity, one: &str| match file.count(severity) {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    let found: Vec<_> = [counted(Severity::Error, "error"), counted(Severity::Warning, "warning")]
        .into_iter()
        .flatten()
        .collect();
    let objects = if file.checked == 1 { "1 object".to_owned() } else { format!("{} objects", file.checked) };
    match (file.is_valid(), found.is_empty()) {
        (true, true) => format!("{}: valid ({objects})\n", file.name),
        (true, false) => format!("{}: valid, with {} ({objects})\n", file.name, found.join(" and ")),
        (false, _) => format!("{}: invalid: {} ({objects})\n", file.name, found.join(" and ")),
    }
}

/// Byte offsets at which lines start.
fn line_starts(source: &str) -> Vec<usize> {
    std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// The bytes of the line before, the line itself and the line after.
fn window(lines: &[usize], end: usize, at: Pos) -> std::ops::Range<usize> {
    let line = (at.line as usize).saturating_sub(1);
    let start = lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
    start..lines.get(line + 2).copied().unwrap_or(end)
}

/// The bytes of the value at a position: from there to the end of the line.
fn place(source: &str, lines: &[usize], at: Pos) -> std::ops::Range<usize> {
    let Some(&start) = lines.get((at.line as usize).saturating_sub(1)) else {
        return source.len()..source.len();
    };
    let line = source[start..].split('\n').next().unwrap_or_default().trim_end();
    let skipped: usize = line.chars().take((at.column as usize).saturating_sub(1)).map(char::len_utf8).sum();
    start + skipped..start + line.len().max(skipped)
}

/// What programs read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    valid: bool,
    files: Vec<OutputFile<'a>>,
    findings: Vec<OutputFinding<'a>>,
}

#[derive(Serialize)]
struct OutputFile<'a> {
    name: &'a str,
    valid: bool,
    objects: usize,
    errors: usize,
    warnings: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutputFinding<'a> {
    severity: Severity,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    file: &'a str,
    line: u32,
    column: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'a str>,
}

fn output(files: &[FileReport]) -> Output<'_> {
    Output {
        valid: files.iter().all(FileReport::is_valid),
        files: files
            .iter()
            .map(|file| OutputFile {
                name: &file.name,
                valid: file.is_valid(),
                objects: file.checked,
                errors: file.count(Severity::Error),
                warnings: file.count(Severity::Warning),
            })
            .collect(),
        findings: files
            .iter()
            .flat_map(|file| file.findings.iter().map(move |f| described(file, f)))
            .collect(),
    }
}

fn described<'a>(file: &'a FileReport, finding: &'a Finding) -> OutputFinding<'a> {
    OutputFinding {
        severity: finding.severity,
        code: finding.code,
        file: &file.name,
        line: finding.at.line,
        column: finding.at.column,
        api_version: &finding.object.api_version,
        kind: &finding.object.kind,
        namespace: &finding.object.namespace,
        name: &finding.object.name,
        path: &finding.path,
        message: &finding.message,
        remedy: finding.remedy.as_deref(),
    }
}

pub(super) fn json(files: &[FileReport]) -> String {
    let text = serde_json::to_string_pretty(&output(files)).expect("plain data serialises");
    text + "\n"
}

pub(super) fn yaml(files: &[FileReport]) -> String {
    yaml::to_string(&output(files)).expect("plain data serialises")
}
