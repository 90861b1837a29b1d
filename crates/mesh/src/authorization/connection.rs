//! What of AuthorizationPolicies a ztunnel can enforce, which sees connections but no requests.

use std::collections::BTreeSet;

use canopus_proto::istio::security::v1beta1::{Operation, Rule, Source};

/// The condition keys that do not need a request.
const CONNECTION_KEYS: [&str; 5] =
    ["source.ip", "source.namespace", "source.principal", "destination.ip", "destination.port"];

/// The attributes of a rule that only a request has, sorted.
pub fn http_attributes(rule: &Rule) -> BTreeSet<&str> {
    let keys = rule.when.iter().map(|condition| condition.key.as_str());
    let mut found: BTreeSet<&str> = keys.filter(|key| !is_connection_key(key)).collect();
    for operation in rule.to.iter().filter_map(|to| to.operation.as_ref()) {
        for field in http_operation_fields(operation) {
            found.insert(field);
        }
    }
    for source in rule.from.iter().filter_map(|from| from.source.as_ref()) {
        for field in http_source_fields(source) {
            found.insert(field);
        }
    }
    found
}

fn is_connection_key(key: &str) -> bool {
    CONNECTION_KEYS.contains(&key)
}

fn http_operation_fields(operation: &Operation) -> impl Iterator<Item = &'static str> {
    let lists = [
        ("hosts", &operation.hosts),
        ("notHosts", &operation.not_hosts),
        ("methods", &operation.methods),
        ("notMethods", &operation.not_methods),
        ("paths", &operation.paths),
        ("notPaths", &operation.not_paths),
    ];
    lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, _)| name)
}

fn http_source_fields(source: &Source) -> impl Iterator<Item = &'static str> {
    let lists = [
        ("remoteIpBlocks", &source.remote_ip_blocks),
        ("notRemoteIpBlocks", &source.not_remote_ip_blocks),
        ("requestPrincipals", &source.request_principals),
        ("notRequestPrincipals", &source.not_request_principals),
    ];
    lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, _)| name)
}

/// Whether a rule matches any connection once its HTTP attributes are left out: no part of it is left empty, since an empty
/// part matches nothing.
pub fn matches_connections(rule: &Rule) -> bool {
    let operations: Vec<_> = rule.to.iter().filter_map(|to| to.operation.as_ref()).collect();
    let sources: Vec<_> = rule.from.iter().filter_map(|from| from.source.as_ref()).collect();
    let is_part_left = |is_empty: bool, has_any: bool| is_empty || has_any;
    is_part_left(operations.is_empty(), operations.into_iter().any(has_ports))
        && is_part_left(sources.is_empty(), sources.into_iter().any(has_connection_source))
        && rule.when.iter().all(|condition| {
            is_connection_key(&condition.key)
                && !(condition.values.is_empty() && condition.not_values.is_empty())
        })
}

fn has_ports(operation: &Operation) -> bool {
    operation.ports.iter().chain(&operation.not_ports).any(|port| port.parse::<u16>().is_ok())
}

fn has_connection_source(source: &Source) -> bool {
    let lists = [
        &source.principals,
        &source.not_principals,
        &source.namespaces,
        &source.not_namespaces,
        &source.ip_blocks,
        &source.not_ip_blocks,
        &source.service_accounts,
        &source.not_service_accounts,
    ];
    lists.into_iter().any(|list| !list.is_empty())
}
