//! Documents that `istioctl validate` is given.

use std::path::Path;

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;
use crate::tool;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestValidateResource" => validate,
        _ => return None,
    })
}

fn validate(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let output = tool::run(&["validate", "-f", "-"], Path::new("."), row.text("in")?)?;
    let mut found = equal("valid", &row.truth("valid")?, &(output.code == Some(0)));
    // Without errors, what is not praise is a list of warnings.
    let has_warnings = output.code == Some(0) && output.stderr.contains("\n\t* ");
    found.extend(equal("warn", &row.truth("warn")?, &has_warnings));
    Ok(found)
}
