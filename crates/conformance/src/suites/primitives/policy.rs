//! What authorization and authentication policies may say.

use canopus_api::security::jwks::JwksServer;
use canopus_api::security::{self, Checked};
use serde_json::json;

use super::Check;
use super::row::{Row, equal, equal_tree, with_lower_case_keys};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestParseJwksURI" => jwks_uri,
        "TestCheckWildcardValues" => |row| values(row, security::check_wildcards),
        "TestCheckTrustDomainValues" => |row| values(row, security::check_trust_domains),
        "TestCheckValidPathTemplate" => |row| values(row, security::check_path_templates),
        "TestValidateCondition" => attribute,
        "TestIsValidLiteral" => literal,
        "TestContainsPathTemplate" => contains_template,
        _ => return None,
    })
}

fn jwks_uri(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = JwksServer::parse(row.text("in")?);
    let mut found = equal("expectedError", &row.truth("expectedError")?, &got.is_err());
    if let (Ok(server), Some(expected)) = (got, row.get("expected")) {
        let got = json!({
            "hostname": server.host,
            "scheme": server.scheme(),
            "port": server.port,
            "usessl": server.tls,
        });
        found.extend(equal_tree(&with_lower_case_keys(expected), &got.into()));
    }
    Ok(found)
}

fn values(row: Row<'_>, check: fn(&str, &[String]) -> Checked) -> anyhow::Result<Vec<Difference>> {
    let got = check("field", &row.texts("values")?).is_err();
    Ok(equal("wantError", &row.truth("wantError")?, &got))
}

fn attribute(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let problems = security::check_attribute(row.text("key")?, &row.texts("values")?);
    Ok(equal("wantError", &row.truth("wantError")?, &!problems.is_empty()))
}

fn literal(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = security::is_path_literal(row.text("glob")?);
    Ok(equal("expected", &row.truth("expected")?, &got))
}

fn contains_template(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = security::contains_path_template(row.text("path")?);
    Ok(equal("isPathTemplate", &row.truth("isPathTemplate")?, &got))
}
