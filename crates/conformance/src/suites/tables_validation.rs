//! Tables of what is valid: whole objects, and the parts that functions of their own check.
//!
//! A row of a table is a case. A table about a whole kind goes through the same door as admission; a table about a part is
//! told by the function it was about. A table whose function does not exist here counts as not passed.

mod entry;
mod mesh;
mod networking;
mod shared;

use anyhow::Context;
use canopus_api::registry::Category;
use canopus_api::validate::{self, Code, Report, Severity};
use canopus_api::{Kind, Object, Options};
use canopus_base::tree::{Map, Node, Value};
use serde_json::json;

use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;
use entry::Entry;

const WRONG_TYPE: &str = "a message of another type cannot be given here";

/// Checks one row.
type Check = fn(&Entry) -> anyhow::Result<Got>;

/// What a check made of a row.
struct Got {
    report: Report,
    /// Where what else the function returned differs.
    other: Vec<Difference>,
}

impl From<Report> for Got {
    fn from(report: Report) -> Self {
        Self { report, other: Vec::new() }
    }
}

pub(super) struct TablesValidation;

impl Suite for TablesValidation {
    fn name(&self) -> &str {
        "tables-validation"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let text = |key: &str| case.shared.get(key).and_then(Node::as_str).unwrap_or_default();
        let entry = Entry::new(&case.entry, text("test"));
        let function = text("functionUnderTest");
        if let Some(kind) = whole_kind(function) {
            if entry.text("inType").is_ok_and(|given| given != kind.info().kind) {
                return Outcome::Skipped(WRONG_TYPE);
            }
            return finish(&entry, object(kind, &entry).map(Got::from));
        }
        let check =
            networking::check(function).or_else(|| mesh::check(function)).or_else(|| shared::check(function));
        match check {
            Some(check) => finish(&entry, check(&entry)),
            None => Outcome::Skipped(NO_ADAPTER),
        }
    }
}

/// Nothing stands where a message should. Readers of documents refuse it before anything is validated.
static NULL: Code = Code { id: "null", severity: Severity::Error, remedy: "give a value" };

/// Compares what was made of a row, if it could be read at all.
fn finish(entry: &Entry, got: anyhow::Result<Got>) -> Outcome {
    let refused = |error: &anyhow::Error| error.chain().any(|cause| cause.to_string().contains("found null"));
    let got = got.or_else(|error| {
        if !refused(&error) {
            return Err(error);
        }
        Ok(Got::from(validate::fragment(|mut scope| scope.add(NULL.says(format!("{error:#}"))))))
    });
    got.and_then(|got| compare(entry, got)).into()
}

/// The kind that a function such as `ValidateGateway` is about.
fn whole_kind(function: &str) -> Option<Kind> {
    let name = function.strip_prefix("Validate")?;
    Kind::ALL.iter().copied().find(|kind| {
        let info = kind.info();
        info.category == Category::Istio && info.kind == name
    })
}

/// Validates an object with the spec of a row.
fn object(kind: Kind, entry: &Entry) -> anyhow::Result<Report> {
    let mut metadata = json!({"name": entry.text("configName").unwrap_or("foo"), "namespace": "bar"});
    if let Some(annotations) = entry.get("annotations") {
        metadata["annotations"] = annotations.to_json();
    }
    if entry.test == "TestValidateK8sGateway" {
        metadata["annotations"] = json!({"internal.istio.io/gateway-semantics": "gateway"});
    }
    let mut document = Map::new();
    document.insert("metadata", metadata.into());
    document.insert("spec", entry.get("in").cloned().unwrap_or_default());
    let document = Node::from(Value::Map(document));
    let object = Object::decode_as(kind, &document, Options::strict()).context("cannot read the object")?;
    Ok(validate::validate(&object.value))
}

/// Compares verdict and words with what the row expects.
fn compare(entry: &Entry, got: Got) -> anyhow::Result<Vec<Difference>> {
    let Got { report, other: mut found } = got;
    let expected = entry.expected()?;
    let error = report.error_text();
    if expected.valid != error.is_none() {
        let shown = error.clone().unwrap_or_else(|| "valid".to_owned());
        found.push(Difference::new("/expect/valid", expected.valid, shown));
    }
    let warning = report.warning_text();
    if expected.warning.is_some_and(|expected| expected != warning.is_some()) {
        let shown = warning.clone().unwrap_or_else(|| "no warning".to_owned());
        found.push(Difference::new("/expect/warning", expected.warning.unwrap_or_default(), shown));
    }
    found.extend(contains("/expect/errorContains", expected.error_contains, error));
    found.extend(contains("/expect/warningContains", expected.warning_contains, warning));
    Ok(found)
}

fn contains(path: &str, wanted: Option<&str>, text: Option<String>) -> Option<Difference> {
    let text = text.unwrap_or_default();
    wanted.filter(|wanted| !text.contains(wanted)).map(|wanted| Difference::new(path, wanted, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_of_a_whole_kind_is_told_from_one_of_a_part() {
        assert_eq!(whole_kind("ValidateVirtualService"), Some(Kind::VirtualService));
        assert_eq!(whole_kind("validateServer"), None);
        assert_eq!(whole_kind("ValidateService"), None);
    }

    #[test]
    fn row_that_expects_another_verdict_or_other_words_differs() {
        let entry = |expect: serde_json::Value| Node::from(json!({"fqdn": "a b", "expect": expect}));
        let found = |expect| {
            let entry = entry(expect);
            let entry = Entry::new(&entry, "");
            compare(&entry, shared::check("ValidateFQDN").unwrap()(&entry).unwrap()).unwrap().len()
        };
        assert_eq!(found(json!({"valid": false, "errorContains": "label \"a b\" invalid"})), 0);
        assert_eq!(found(json!({"valid": true})), 1);
        assert_eq!(found(json!({"valid": false, "warning": true})), 1);
        assert_eq!(found(json!({"valid": false, "errorContains": "xyz", "warningContains": "x"})), 2);
    }
}
