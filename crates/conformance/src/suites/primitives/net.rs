//! Addresses and interface names.

use canopus_base::net;

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestIsRequestFromLocalhost" => from_localhost,
        "TestValidateInterfaceNames" => interface_names,
        _ => return None,
    })
}

fn from_localhost(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = net::is_localhost_peer(row.text("remoteAddr")?);
    Ok(equal("expected", &row.truth("expected")?, &got))
}

fn interface_names(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = net::validate_interface_names(row.text("interfaces")?).is_err();
    Ok(equal("wantErr", &row.truth("wantErr")?, &got))
}
