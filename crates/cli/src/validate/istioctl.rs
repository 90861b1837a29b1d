//! istioctl's texts, to the letter.

use std::collections::BTreeSet;

use canopus_api::validate::report::list;

use super::check::{FileReport, Finding, Severity};

/// What istioctl prints on standard error.
pub(super) fn text(files: &[FileReport]) -> String {
    let mut out = String::new();
    for finding in said(files, Severity::Note) {
        out += &format!("{}\n", finding.message);
    }
    let errors: Vec<String> = said(files, Severity::Error).map(prefixed).collect();
    let mut named = BTreeSet::new();
    for file in files.iter().filter(|file| named.insert(&file.name)) {
        let warnings: Vec<String> = file
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Warning && f.in_istioctl)
            .map(prefixed)
            .collect();
        out += &verdict(&file.name, &warnings, errors.is_empty());
    }
    if !errors.is_empty() {
        out += &format!("Error: {}\n", list(errors.iter().map(String::as_str)));
    }
    out
}

fn said(files: &[FileReport], severity: Severity) -> impl Iterator<Item = &Finding> {
    let findings = files.iter().flat_map(|file| &file.findings);
    findings.filter(move |finding| finding.severity == severity && finding.in_istioctl)
}

/// One line of the list: the object, where there is one, and the words.
fn prefixed(finding: &Finding) -> String {
    let (object, prefix, message) = (&finding.object, finding.istioctl_prefix, &finding.message);
    if object.kind.is_empty() {
        return format!("{prefix}{message}");
    }
    format!("{}/{}/{}: {prefix}{message}", object.kind, object.namespace, object.name)
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
