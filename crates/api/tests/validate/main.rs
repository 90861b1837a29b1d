//! What is said of objects that are wrong, and where.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod destination_rule;
mod gateway;
mod properties;
mod service_entry;
mod sidecar;
mod virtual_service;
mod workload;

use canopus_api::registry::Category;
use canopus_api::validate::{self, Finding, Report, Settings};
use canopus_api::{Kind, Object, Options};
use canopus_base::tree::Limits;
use canopus_base::yaml;

/// Reads an object of one of Istio's kinds from the YAML of its spec.
fn object(kind: &str, spec: &str) -> Object {
    object_with(kind, "", spec)
}

/// The same with more lines of metadata.
fn object_with(kind: &str, metadata: &str, spec: &str) -> Object {
    let indented = |text: &str| text.trim().lines().map(|line| format!("  {line}\n")).collect::<String>();
    let mut kinds = Kind::ALL.iter().map(|kind| kind.info());
    let info = kinds.find(|info| info.category == Category::Istio && info.kind == kind).unwrap();
    let api_version = info.api_version();
    let document = format!(
        "apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: case\n  namespace: demo\n{}spec:\n{}",
        indented(metadata),
        indented(spec)
    );
    let document = yaml::parse_one(document, &Limits::default()).unwrap();
    Object::decode(&document, Options::strict()).unwrap().value
}

fn report(kind: &str, spec: &str) -> Report {
    validate::validate(&object(kind, spec))
}

/// Findings as `path: message`, those Istio would not have in brackets.
fn lines(findings: &[Finding]) -> Vec<String> {
    let line = |finding: &Finding| {
        let text = format!("{}: {}", finding.path, finding.message);
        if finding.ours { format!("({text})") } else { text }
    };
    findings.iter().map(line).collect()
}

#[track_caller]
fn check(kind: &str, spec: &str, errors: &[&str], warnings: &[&str]) {
    let report = report(kind, spec);
    assert_eq!(lines(&report.errors), errors);
    assert_eq!(lines(&report.warnings), warnings);
}

#[test]
fn object_is_refused_for_annotations_that_no_user_may_set() {
    let spec = "servers: []";
    let gateway =
        object_with("Gateway", "annotations: {internal.istio.io/webhook-always-reject: 'true'}", spec);
    let report = validate::validate(&gateway);
    assert_eq!(
        report.error_text().unwrap(),
        r#""internal.istio.io/webhook-always-reject" annotation found, rejecting"#
    );
    assert_eq!(
        lines(&report.errors)[1],
        "(spec.servers: gateway must have at least one server)",
        "what Istio does not get to is found all the same"
    );

    let dry_run = object_with("Gateway", "annotations: {istio.io/dry-run: 'true'}", spec);
    assert_eq!(
        lines(&validate::validate(&dry_run).errors)[0],
        "metadata.annotations[\"istio.io/dry-run\"]: demo/case has unsupported annotation istio.io/dry-run, please remove \
         the annotation"
    );

    let parent = object_with("Gateway", "annotations: {internal.istio.io/parents: a}", spec);
    let text = validate::validate(&parent).error_text().unwrap();
    assert_eq!(text, r#""internal.istio.io/parents" annotation found, this may not be set by users"#);
}

#[test]
fn kinds_of_kubernetes_are_not_checked() {
    let document = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ''}\n";
    let document = yaml::parse_one(document, &Limits::default()).unwrap();
    let object = Object::decode(&document, Options::strict()).unwrap().value;
    assert_eq!(validate::validate_with(&object, &Settings::default()), Report::default());
}
