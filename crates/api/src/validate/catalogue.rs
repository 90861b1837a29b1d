//! Every rule there is: for documentation, and for those who look a rule up by its name.

use super::{
    Code, address, connection_pool, destination, destination_rule, duration, export_to, gateway, header,
    host, labels, locality, metadata, outlier_detection, percent, port, regex, retry, selector,
    service_entry, sidecar, tls, traffic_policy, virtual_service, workload_entry, workload_group,
};

/// The rules of each module.
static MODULES: &[&[&Code]] = &[
    address::CODES,
    connection_pool::CODES,
    destination::CODES,
    destination_rule::CODES,
    duration::CODES,
    export_to::CODES,
    gateway::CODES,
    header::CODES,
    header::VALUE_CODES,
    host::CODES,
    labels::CODES,
    locality::CODES,
    metadata::CODES,
    outlier_detection::CODES,
    percent::CODES,
    port::CODES,
    regex::CODES,
    retry::CODES,
    selector::CODES,
    service_entry::CODES,
    service_entry::RESOLUTION_CODES,
    sidecar::CODES,
    sidecar::EGRESS_CODES,
    sidecar::INGRESS_CODES,
    tls::CLIENT_CODES,
    tls::SERVER_CODES,
    traffic_policy::CODES,
    traffic_policy::LOAD_BALANCER_CODES,
    virtual_service::CODES,
    virtual_service::L4_CODES,
    virtual_service::OVERLAP_CODES,
    virtual_service::UNREACHABLE_CODES,
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
