//! The columns that `kubectl get` prints.

use canopus_base::tree::Node;

use super::{list, map, text};
use crate::Kind;
use crate::registry::Info;

/// Kinds with no columns but those every kind has.
const PLAIN: [Kind; 5] =
    [Kind::EnvoyFilter, Kind::Gateway, Kind::ProxyConfig, Kind::RequestAuthentication, Kind::Sidecar];

/// The columns of a kind; `None` if `kubectl` is left to print its own.
pub(super) fn printer_columns(info: &Info) -> Option<Node> {
    if PLAIN.iter().any(|kind| kind.info() == info) {
        return None;
    }
    let mut columns: Vec<Node> = info
        .columns
        .iter()
        .map(|column| printed(column.name, "string", column.path, meaning(column.path)))
        .collect();
    let age = printed("Age", "date", ".metadata.creationTimestamp", "How long ago the object was created.");
    // Parity: of this kind the age is printed first.
    let place = if *info == *Kind::WorkloadEntry.info() { 0 } else { columns.len() };
    columns.insert(place, age);
    Some(list(columns))
}

fn printed(name: &str, kind: &str, path: &str, description: &str) -> Node {
    map([
        ("description", text(description)),
        ("jsonPath", text(path)),
        ("name", text(name)),
        ("type", text(kind)),
    ])
}

fn meaning(path: &str) -> &'static str {
    match path {
        ".spec.action" => "What is done with requests that match.",
        ".spec.address" => "The address of the workload.",
        ".spec.gateways" => "The gateways, or `mesh` for sidecars, that the routes are for.",
        ".spec.host" => "The service that the rule is about.",
        ".spec.hosts" => "The hosts it is about.",
        ".spec.location" => "Whether the service is outside the mesh or part of it.",
        ".spec.mtls.mode" => "Whether peers have to use mutual TLS.",
        ".spec.resolution" => "How the addresses of the hosts are found.",
        _ => "",
    }
}
