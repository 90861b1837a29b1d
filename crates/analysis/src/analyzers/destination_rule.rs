//! DestinationRules: servers whose certificates are not verified, unknown hosts, subsets without pods.

use canopus_api::Kind;
use canopus_api::istio::DestinationRule;
use canopus_api::kube::Pod;
use canopus_base::labels::Labels;
use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode;

use super::host::Hosts;
use super::selector;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
const SUBZONE: &str = "topology.istio.io/subzone";
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) fn certificates(world: &World, findings: &mut Findings) {
    for (resource, rule) in world.each::<DestinationRule>() {
        let Some(policy) = &rule.spec.traffic_policy else { continue };
        let has_selector = rule.spec.workload_selector.is_some();
        let unverified = |tls: Option<&ClientTlsSettings>| unverified_mode(tls, has_selector);
        let host = &rule.spec.host;
        if let Some(mode) = unverified(policy.tls.as_ref()) {
            let parameters =
                [(&resource.full_name()).into(), resource.namespace().into(), mode.into(), host.into()];
            let path = ["spec", "trafficPolicy", "tls", "caCertificates"];
            let kind = &catalogue::NO_SERVER_CERTIFICATE_VERIFICATION_DESTINATION_LEVEL;
            findings.add_at(kind, resource, &path, &parameters);
        }
        for (index, settings) in policy.port_level_settings.iter().enumerate() {
            let Some(mode) = unverified(settings.tls.as_ref()) else { continue };
            let port = settings.port.as_ref().map(|port| format!("number:{}", port.number));
            let parameters = [
                (&resource.full_name()).into(),
                resource.namespace().into(),
                mode.into(),
                host.into(),
                port.unwrap_or_default().into(),
            ];
            let index = index.to_string();
            let path = ["spec", "trafficPolicy", "portLevelSettings", &index, "tls", "caCertificates"];
            let kind = &catalogue::NO_SERVER_CERTIFICATE_VERIFICATION_PORT_LEVEL;
            findings.add_at(kind, resource, &path, &parameters);
        }
    }
}

/// The TLS mode, if with it nobody checks who the server is.
fn unverified_mode(tls: Option<&ClientTlsSettings>, has_selector: bool) -> Option<&'static str> {
    let tls = tls?;
    let mode = tls.mode();
    let may_verify = matches!(mode, TlSmode::Simple | TlSmode::Mutual);
    let is_verified = !tls.ca_certificates.is_empty() || (!tls.credential_name.is_empty() && has_selector);
    (may_verify && !is_verified).then(|| mode.as_str_name())
}

pub(crate) fn subsets(world: &World, findings: &mut Findings) {
    let hosts = Hosts::collect(world);
    let pods: Vec<Labels> = world.each::<Pod>().map(|(_, pod)| augmented_labels(world, pod)).collect();
    for (resource, rule) in world.each::<DestinationRule>() {
        let spec = &rule.spec;
        let Some(host) = hosts.find(resource.namespace(), &spec.export_to, &spec.host) else {
            findings.add(&catalogue::UNKNOWN_DESTINATION_RULE_HOST, resource, &[(&spec.host).into()]);
            continue;
        };
        for subset in &spec.subsets {
            let mut wanted = host.selector.clone();
            wanted.extend(subset.labels.clone());
            if !pods.iter().any(|labels| selector::selects(&wanted, labels)) {
                let kind = &catalogue::DESTINATION_RULE_SUBSET_NOT_SELECT_PODS;
                findings.add(kind, resource, &[(&subset.name).into()]);
            }
        }
    }
}

/// A pod's labels with those that its node gives it.
fn augmented_labels(world: &World, pod: &Pod) -> Labels {
    let mut labels = pod.meta.labels.clone();
    let node = &pod.spec.node_name;
    let locality = world.find(Kind::Node, "", node).map(|node| locality(node));
    let [region, zone, subzone] = locality.unwrap_or_default();
    for (key, value) in [(REGION, region), (ZONE, zone), (SUBZONE, subzone), (HOSTNAME, node)] {
        if !value.is_empty() {
            labels.insert(key, value);
        }
    }
    labels
}

/// Region, zone and subzone; each counts only below the one before.
fn locality(node: &Resource) -> [&str; 3] {
    let label = |key| node.labels().get(key).unwrap_or_default();
    let (region, zone, subzone) = (label(REGION), label(ZONE), label(SUBZONE));
    match (region.is_empty(), zone.is_empty()) {
        (true, _) => ["", "", ""],
        (false, true) => [region, "", ""],
        (false, false) => [region, zone, subzone],
    }
}
