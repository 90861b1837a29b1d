//! Every rule there is: for documentation, and for those who look a rule up by its name.

use super::{
    Code, address, authorization_policy, connection_pool, destination, destination_rule, duration,
    envoy_filter, export_to, extension_provider, gateway, header, host, labels, locality, mesh_config,
    mesh_networks, metadata, outlier_detection, peer_authentication, percent, port, proxy_config, regex,
    request_authentication, retry, selector, service_entry, sidecar, telemetry, tls, traffic_extension,
    traffic_policy, virtual_service, wasm_plugin, workload_entry, workload_group,
};

/// The rules of each module.
static MODULES: &[&[&Code]] = &[
    address::CODES,
    authorization_policy::CODES,
    authorization_policy::RULE_CODES,
    connection_pool::CODES,
    destination::CODES,
    destination_rule::CODES,
    duration::CODES,
    envoy_filter::CODES,
    envoy_filter::PATCH_CODES,
    export_to::CODES,
    extension_provider::CODES,
    gateway::CODES,
    header::CODES,
    header::VALUE_CODES,
    host::CODES,
    labels::CODES,
    locality::CODES,
    mesh_config::CODES,
    mesh_config::CONNECTION_SETTINGS_CODES,
    mesh_config::PROXY_CODES,
    mesh_config::TLS_CODES,
    mesh_networks::CODES,
    metadata::CODES,
    outlier_detection::CODES,
    peer_authentication::CODES,
    percent::CODES,
    port::CODES,
    proxy_config::CODES,
    regex::CODES,
    request_authentication::CODES,
    retry::CODES,
    selector::CODES,
    service_entry::CODES,
    service_entry::RESOLUTION_CODES,
    sidecar::CODES,
    sidecar::EGRESS_CODES,
    sidecar::INGRESS_CODES,
    telemetry::CODES,
    tls::CLIENT_CODES,
    tls::SERVER_CODES,
    traffic_extension::CODES,
    traffic_policy::CODES,
    traffic_policy::LOAD_BALANCER_CODES,
    virtual_service::CODES,
    virtual_service::L4_CODES,
    virtual_service::OVERLAP_CODES,
    virtual_service::UNREACHABLE_CODES,
    wasm_plugin::CODES,
    workload_entry::CODES,
    workload_group::CODES,
];

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Code> {
    MODULES.iter().chain(virtual_service::http::CODES).flat_map(|codes| codes.iter().copied())
}

/// The rule of this name.
pub fn find(id: &str) -> Option<&'static Code> {
    all().find(|code| code.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_a_remedy() {
        let mut names = BTreeSet::new();
        for code in all() {
            assert!(names.insert(code.id), "{code} twice");
            assert!(
                code.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{code}"
            );
            assert!(!code.remedy.is_empty() && !code.remedy.ends_with('.'), "{code}");
            assert_eq!(find(code.id), Some(code));
        }
    }
}
