//! istioctl's texts, to the letter.

use std::collections::BTreeSet;

use canopus_api::validate::report::list;

use super::check::{FileReport, Finding, Severity, Wording};

/// What istioctl prints on standard error.
pub(super) fn text(files: &[FileReport]) -> String {
    let mut out = String::new();
    for finding in all(files).filter(|finding| finding.severity == Severity::Note) {
        out.extend(words(finding).map(|words| format!("{words}\n")));
    }
    let errors: Vec<String> = all(files).filter_map(|finding| said(finding, Severity::Error)).collect();
    let mut named = BTreeSet::new();
    for file in files.iter().filter(|file| named.insert(&file.name)) {
        let warnings: Vec<String> =
            file.findings.iter().filter_map(|finding| said(finding, Severity::Warning)).collect();
        out += &verdict(&file.name, &warnings, errors.is_empty());
    }
    if !errors.is_empty() {
        out += &format!("Error: {}\n", list(errors.iter().map(String::as_str)));
    }
    out
}

fn all(files: &[FileReport]) -> impl Iterator<Item = &Finding> {
    files.iter().flat_map(|file| &file.findings)
}

/// What istioctl says of a finding, if anything.
fn words(finding: &Finding) -> Option<&str> {
    match &finding.istioctl {
        Wording::Same => Some(&finding.message),
        Wording::Own(words) => Some(words),
        Wording::Silent => None,
    }
}

/// One line of the list of findings of a severity: the object, where there is one, and the words.
fn said(finding: &Finding, severity: Severity) -> Option<String> {
    let words = words(finding).filter(|_| finding.severity == severity)?;
    let object = finding.list.as_ref().unwrap_or(&finding.object);
    // What is wrong with a file is nobody's in it.
    if finding.object.kind.is_empty() {
        return Some(words.to_owned());
    }
    Some(format!("{}/{}/{}: {words}", object.kind, object.namespace, object.name))
}

/// What is said about a file that has no error.
fn verdict(name: &str, warnings: &[String], no_errors: bool) -> String {
    let listed: String = warnings.iter().map(|warning| format!("\n\t* {warning}")).collect();
    match (name, warnings.is_empty()) {
        ("-", true) if no_errors => "validation succeed\n".to_owned(),
        ("-", false) => format!("{listed}\n\n"),
        (name, false) => format!("{name:?} has warnings: {listed}\n\n"),
        (name, true) if no_errors => format!("{name:?} is valid\n"),
        _ => String::new(),
    }
}
