//! Label sets, and the canonical names that labels give.

use canopus_base::labels::{Labels, canonical};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestInstance" => selection,
        "TestString" => text,
        "TestInstanceValidate" => validity,
        "TestCanonicalService" => canonical_service,
        "TestGetApp" => app,
        "TestHasCanonicalServiceName" => |row| has(row, canonical::name),
        "TestHasCanonicalServiceRevision" => |row| has(row, canonical::revision),
        _ => return None,
    })
}

fn selection(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let (left, right) = (row.labels("left")?, row.labels("right")?);
    let expected = row.row("expected")?;
    let mut found = equal("expected/subsetOf", &expected.truth("subsetOf")?, &left.subset_of(&right));
    found.extend(equal("expected/selected", &expected.truth("selected")?, &left.selects(&right)));
    Ok(found)
}

fn text(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = row.labels("input")?.to_string();
    Ok(equal("expected", &row.text("expected")?, &got.as_str()))
}

fn validity(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = row.labels("tags")?.validate().is_empty();
    Ok(equal("valid", &row.truth("valid")?, &got))
}

fn canonical_service(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let labels = row.labels("labels")?;
    let (name, revision) = canonical::service(&labels, row.text("workloadName")?);
    let mut found = equal("expectedName", &row.text("expectedName")?, &name);
    found.extend(equal("expectedRevision", &row.text("expectedRevision")?, &revision));
    Ok(found)
}

fn app(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let labels = row.labels("labels")?;
    let got = canonical::app(&labels);
    let mut found = equal("expectedOk", &row.truth("expectedOk")?, &got.is_some());
    found.extend(equal("expectedValue", &row.text("expectedValue")?, &got.unwrap_or_default()));
    Ok(found)
}

fn has(row: Row<'_>, find: fn(&Labels) -> Option<&str>) -> anyhow::Result<Vec<Difference>> {
    let labels = row.labels("labels")?;
    Ok(equal("expected", &row.truth("expected")?, &find(&labels).is_some()))
}
