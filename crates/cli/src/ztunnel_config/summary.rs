//! Tables of what a ztunnel knows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::dump::{Dump, Selection, list};
use crate::table::{aligned, row};

/// Stands where there is no value.
const NONE: &str = "NA";

/// All tables, one after another.
pub(super) fn all(dump: &Dump, with_headers: bool) -> String {
    let everything = Selection::default();
    let tables = [
        ("WORKLOAD INFO", workloads(dump, &dump.workloads(&everything))),
        ("SERVICE INFO", services(dump, &dump.services(""))),
        ("POLICY INFO", policies(&dump.policies(""))),
        ("SECRET INFO", certificates(dump)),
        ("CONNECTION INFO", connections(dump, &everything, None, false)),
    ];
    let heading = |name: &str| if with_headers { format!("------ {name} ------\n\n") } else { String::new() };
    tables.iter().map(|(name, table)| format!("\n{}{table}", heading(name))).collect()
}

fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or_default()
}

pub(super) fn workloads(dump: &Dump, workloads: &[&Value]) -> String {
    let mut rows = vec![row(["NAMESPACE", "POD NAME", "ADDRESS", "NODE", "WAYPOINT", "PROTOCOL"])];
    for workload in workloads {
        let addresses = list(&workload["workloadIps"]).join(",");
        let address = if addresses.is_empty() { text(workload, "hostname") } else { &addresses };
        rows.push(row([
            text(workload, "namespace"),
            text(workload, "name"),
            address,
            text(workload, "node"),
            waypoint(workload, dump),
            text(workload, "protocol"),
        ]));
    }
    aligned(&rows, 1)
}

pub(super) fn services(dump: &Dump, services: &[&Value]) -> String {
    let status: BTreeMap<&str, &str> =
        dump.workloads.iter().map(|workload| (text(workload, "uid"), text(workload, "status"))).collect();
    let mut rows = vec![row(["NAMESPACE", "SERVICE NAME", "SERVICE VIP", "WAYPOINT", "ENDPOINTS"])];
    for service in services {
        let addresses: Vec<&str> =
            list(&service["vips"]).iter().map(|vip| vip.split_once('/').map_or(*vip, |(_, ip)| ip)).collect();
        let endpoints = service["endpoints"].as_object();
        let healthy = endpoints.into_iter().flat_map(|all| all.values());
        let healthy =
            healthy.filter(|endpoint| status.get(text(endpoint, "workloadUid")) == Some(&"Healthy"));
        let count = format!("{}/{}", healthy.count(), endpoints.map_or(0, serde_json::Map::len));
        rows.push(row([
            text(service, "namespace"),
            text(service, "name"),
            &addresses.join(","),
            waypoint(service, dump),
            &count,
        ]));
    }
    aligned(&rows, 1)
}

pub(super) fn policies(policies: &[&Value]) -> String {
    let mut rows = vec![row(["NAMESPACE", "POLICY NAME", "ACTION", "SCOPE"])];
    rows.extend(
        policies
            .iter()
            .map(|policy| row(["namespace", "name", "action", "scope"].map(|key| text(policy, key)))),
    );
    aligned(&rows, 1)
}

/// The name of the service that is the waypoint of a workload or service.
fn waypoint<'a>(record: &Value, dump: &'a Dump) -> &'a str {
    let Some(destination) = record["waypoint"]["destination"].as_str() else { return "None" };
    let found = dump.services.iter().find(|service| {
        format!("{}/{}", text(service, "namespace"), text(service, "hostname")) == destination
            || list(&service["vips"]).contains(&destination)
    });
    found.map_or(NONE, |service| text(service, "name"))
}

pub(super) fn certificates(dump: &Dump) -> String {
    let mut rows = vec![row([
        "CERTIFICATE NAME",
        "TYPE",
        "STATUS",
        "VALID CERT",
        "SERIAL NUMBER",
        "NOT AFTER",
        "NOT BEFORE",
    ])];
    let now = Timestamp::now();
    for secret in &dump.certificates {
        let identity = text(secret, "identity");
        // The state of one that could not be had goes on with the reason.
        let state = text(secret, "state");
        let state = if state.contains("Unavailable") { "Unavailable" } else { state };
        let chain = secret["certChain"].as_array().map(Vec::as_slice).unwrap_or_default();
        let roots = secret["rootCerts"].as_array().map(Vec::as_slice).unwrap_or_default();
        if chain.is_empty() {
            rows.push(row([identity, NONE, state, "false", NONE, NONE, NONE]));
        }
        let kind = |at: usize| match at {
            0 => "Leaf",
            // Older ztunnels put the root at the end of the chain.
            at if at + 1 == chain.len() && roots.is_empty() => "Root",
            _ => "Intermediate",
        };
        let roots = if chain.is_empty() { &[] } else { roots };
        let chain = chain.iter().enumerate().map(|(at, certificate)| (kind(at), certificate));
        for (kind, certificate) in chain.chain(roots.iter().map(|root| ("Root", root))) {
            let or_none = |key: &str| match text(certificate, key) {
                "" => NONE.to_owned(),
                given => given.to_owned(),
            };
            rows.push(row([
                identity,
                kind,
                state,
                if is_valid(certificate, now) { "true" } else { "false" },
                &hexadecimal(text(certificate, "serialNumber")),
                &or_none("expirationTime"),
                &or_none("validFrom"),
            ]));
        }
    }
    aligned(&rows, 5)
}

fn is_valid(certificate: &Value, now: Timestamp) -> bool {
    let time = |key: &str| text(certificate, key).parse::<Timestamp>().ok();
    matches!((time("validFrom"), time("expirationTime")), (Some(from), Some(until)) if from < now && now < until)
}

/// A decimal number of any size in hexadecimal; what is no number stays as it is.
fn hexadecimal(decimal: &str) -> String {
    if decimal.is_empty() || !decimal.bytes().all(|byte| byte.is_ascii_digit()) {
        return decimal.to_owned();
    }
    let mut digits: Vec<u8> = decimal.bytes().map(|byte| byte - b'0').collect();
    let mut text = Vec::new();
    while !digits.is_empty() {
        let mut rest = 0u8;
        let mut quotient = Vec::with_capacity(digits.len());
        for digit in digits {
            let value = rest * 10 + digit;
            rest = value % 16;
            if !quotient.is_empty() || value >= 16 {
                quotient.push(value / 16);
            }
        }
        text.push(char::from_digit(u32::from(rest), 16).unwrap_or('0'));
        digits = quotient;
    }
    text.iter().rev().collect()
}

pub(super) fn connections(
    dump: &Dump,
    selection: &Selection<'_>,
    direction: Option<&str>,
    raw: bool,
) -> String {
    let names = if raw { BTreeMap::new() } else { names(dump) };
    let named = |address: &str| -> String {
        let found = address.rsplit_once(':').and_then(|(ip, port)| Some((names.get(ip)?, port)));
        found.map_or_else(|| address.to_owned(), |(name, port)| format!("{name}:{port}"))
    };
    let mut rows = vec![row(["WORKLOAD", "DIRECTION", "LOCAL", "REMOTE", "REMOTE TARGET", "PROTOCOL"])];
    for state in dump.states(selection) {
        let name = format!("{}.{}", state.info.name, state.info.namespace);
        if direction != Some("outbound") {
            rows.extend(state.connections.inbound.iter().map(|open| {
                let (local, remote) = (named(&open.actual_dst), named(&open.src));
                row([&name, "Inbound", &local, &remote, &open.original_dst, &open.protocol])
            }));
        }
        if direction != Some("inbound") {
            rows.extend(state.connections.outbound.iter().map(|open| {
                let (local, remote) = (named(&open.src), named(&open.actual_dst));
                row([&name, "Outbound", &local, &remote, &named(&open.original_dst), &open.protocol])
            }));
        }
    }
    aligned(&rows, 1)
}

/// Names of services and workloads by their first address; services win.
fn names(dump: &Dump) -> BTreeMap<String, String> {
    let first = |record: &Value, key: &str| {
        let address = list(&record[key]).first().copied().unwrap_or_default().to_owned();
        address.split_once('/').map_or(address.clone(), |(_, ip)| ip.to_owned())
    };
    let workloads = dump.workloads.iter().map(|workload| {
        let name = format!("{}.{}", text(workload, "name"), text(workload, "namespace"));
        (first(workload, "workloadIps"), name)
    });
    let services =
        dump.services.iter().map(|service| (first(service, "vips"), text(service, "hostname").to_owned()));
    workloads.chain(services).filter(|(address, _)| !address.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_of_any_size_become_hexadecimal() {
        assert_eq!(hexadecimal("0"), "0");
        assert_eq!(hexadecimal("255"), "ff");
        assert_eq!(
            hexadecimal("305567679837867459519562138563116869139"),
            "e5e231c85ef6a6417e89937a88bd2613"
        );
        assert_eq!(hexadecimal("x"), "x");
    }
}
