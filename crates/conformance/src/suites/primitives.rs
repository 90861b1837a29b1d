//! Tables of pure functions: hosts, labels, protocols, identities, credentials, policies, node metadata.
//!
//! A row of a table is a case. Which function a table is about is told by its file and the name of the test it was; a
//! table whose function does not exist here counts as not passed.

mod authorization;
mod bootstrap;
mod capture;
mod gateway;
mod host;
mod identity;
mod injection;
mod istioctl;
mod labels;
mod mesh;
mod net;
mod node;
mod paths;
mod policy;
mod protocol;
mod row;
mod stat_prefix;
mod trust_domain;
mod virtual_service;

use canopus_base::tree::Node;

use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;
use row::Row;

/// Runs one row.
type Check = fn(Row<'_>) -> anyhow::Result<Vec<Difference>>;

pub(super) struct Primitives;

impl Suite for Primitives {
    fn name(&self) -> &str {
        "tables-primitives"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let table = case.file.file_stem().and_then(|stem| stem.to_str());
        let test = case.shared.get("test").and_then(Node::as_str);
        match check(table.unwrap_or_default(), test.unwrap_or_default()) {
            Some(check) => check(Row::new(&case.entry)).into(),
            None => Outcome::Skipped(NO_ADAPTER),
        }
    }
}

/// The function a table is about.
fn check(table: &str, test: &str) -> Option<Check> {
    match table {
        "authz-generators" | "authz-model-util" => authorization::check(test),
        "bootstrap-config" => bootstrap::check(test),
        "host-name" | "host-names" => host::check(test),
        "istioctl-validate" => istioctl::check(test),
        "labels" | "kube-labels" => labels::check(test),
        "protocol" | "kube-conversion" => protocol::check(test),
        "mesh" => mesh::check(test),
        "cni-podutil" => capture::check(test),
        "inject-required" | "inject-template" | "inject-validate" => injection::check(test),
        "operator-path" | "operator-values" => paths::check(test),
        "net-ip" => net::check(test),
        "spiffe" | "credentials-resource" | "jwt-routing" => identity::check(test),
        "security" => policy::check(test),
        "gateway-protocol" => gateway::check(test),
        "proxy-metadata" | "pilot-context" => node::check(test),
        "networkfilter" | "telemetry-statprefix" => stat_prefix::check(test),
        "trustdomain-bundle" | "trustdomain-util" => trust_domain::check(test),
        "virtualservice-merge" | "pilot-model-config" => virtual_service::check(test),
        _ => None,
    }
}
