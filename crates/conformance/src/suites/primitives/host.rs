//! Host names and wildcards.

use canopus_base::host::{self, Name};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestNameMatches" => |row| pair(row, host::matches),
        "TestNameSubsetOf" => |row| pair(row, host::subset_of),
        "TestNamesIntersection" => intersection,
        "TestNamesForNamespace" => for_namespace,
        "TestNamesSortOrder" => sort_order,
        "TestMoreSpecific" => more_specific,
        _ => return None,
    })
}

fn pair(row: Row<'_>, related: fn(&str, &str) -> bool) -> anyhow::Result<Vec<Difference>> {
    let got = related(row.text("a")?, row.text("b")?);
    Ok(equal("out", &row.truth("out")?, &got))
}

fn intersection(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = host::intersection(&names(row, "a")?, &names(row, "b")?);
    Ok(equal("intersection", &names(row, "intersection")?, &got))
}

fn for_namespace(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = host::for_namespace(&row.texts("hosts")?, row.text("namespace")?);
    Ok(equal("want", &names(row, "want")?, &got))
}

fn sort_order(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut got = row.texts("in")?;
    got.sort_by(|a, b| host::by_specificity(a, b));
    Ok(equal("want", &row.texts("want")?, &got))
}

fn more_specific(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = host::more_specific(row.text("host1")?, row.text("host2")?);
    Ok(equal("expected", &row.truth("expected")?, &got))
}

fn names(row: Row<'_>, column: &str) -> anyhow::Result<Vec<Name>> {
    Ok(row.texts(column)?.into_iter().map(Name::new).collect())
}
