//! Trust domains that stand for each other in the principals of policies.

use canopus_mesh::trust_domain::{TrustDomains, overlap, principal_domain, specific_domain, with_domain};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestReplaceTrustDomainAliases" => aliases,
        "TestReplaceTrustDomainInPrincipal" => replaced,
        "TestGetTrustDomainFromSpiffeIdentity" => domain,
        "TestIsTrustDomainBeingEnforced" => asked_for,
        "TestStringMatch" => overlapping,
        _ => return None,
    })
}

fn aliases(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let bundle = row.row("trustDomainBundle")?;
    let domains = TrustDomains::new(bundle.text("trustDomain")?, &bundle.texts("aliases")?);
    let got = domains.principals(&row.texts("principals")?);
    Ok(equal("expect", &row.texts("expect")?, &got))
}

/// The table's error says nothing but that the principal is not a whole one.
fn replaced(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = with_domain(row.text("principal")?, row.text("trustDomainIn")?);
    let is_error = !row.text("expectedError")?.is_empty();
    let mut found = equal("expectedError", &is_error, &got.is_none());
    found.extend(equal("out", &row.text("out")?, &got.as_deref().unwrap_or_default()));
    Ok(found)
}

fn domain(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = principal_domain(row.text("principal")?).unwrap_or_default();
    Ok(equal("out", &row.text("out")?, &got))
}

fn asked_for(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = specific_domain(row.text("principal")?).is_some();
    Ok(equal("want", &row.truth("want")?, &got))
}

fn overlapping(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let element = row.text("element")?;
    let got = row.texts("list")?.iter().any(|listed| overlap(element, listed));
    Ok(equal("expected", &row.truth("expected")?, &got))
}
