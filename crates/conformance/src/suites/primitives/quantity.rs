//! Quantities, as annotations of pods give them.

use canopus_base::quantity::Quantity;

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    (test == "TestValidateResourceQuantity").then_some(validity)
}

fn validity(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = row.text("value")?.parse::<Quantity>().is_err();
    Ok(equal("wantErr", &row.truth("wantErr")?, &got))
}
