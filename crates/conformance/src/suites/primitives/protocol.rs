//! Port protocols, and what else the conversion of a Kubernetes Service reads.

use std::collections::BTreeSet;

use canopus_api::visibility::Visibility;
use canopus_base::protocol::Protocol;

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestParse" => parse,
        "TestConvertProtocol" => check_port_protocol,
        "TestServiceConversionWithExportToAnnotation" => export_to,
        _ => return None,
    })
}

fn parse(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = Protocol::parse(row.text("name")?).as_str();
    Ok(equal("out", &row.text("out")?, &got))
}

fn check_port_protocol(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let app_protocol = match row.get("appProtocol") {
        Some(_) => Some(row.text("appProtocol")?),
        None => None,
    };
    let port = u32::try_from(row.integer("port")?)?;
    let got = Protocol::from_port(port, row.text("name")?, row.text("proto")?, app_protocol).as_str();
    Ok(equal("out", &row.text("out")?, &got))
}

fn export_to(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = Visibility::parse_annotation(row.text("Annotation")?);
    let got: BTreeSet<_> = got.iter().map(ToString::to_string).collect();
    Ok(equal("Want", &row.texts("Want")?.into_iter().collect(), &got))
}
