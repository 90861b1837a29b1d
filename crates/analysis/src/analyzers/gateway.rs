//! Gateways: their ports, certificates, secrets, and conflicts with each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use canopus_api::Kind;
use canopus_api::istio::Gateway;
use canopus_api::kube::{Pod, Secret, SecretData, Service};
use canopus_api::value::IntOrString;
use canopus_base::labels::Labels;
use canopus_identity::certificate::Certificate;
use canopus_proto::istio::networking::v1alpha3::ServerTlsSettings;
use rustls_pki_types::UnixTime;

use super::host::short_or_full_name;
use super::selector;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// Ports of Gateways that no Service in front of their pods has.
pub(crate) fn ports(world: &World, findings: &mut Findings) {
    for (resource, gateway) in world.each::<Gateway>() {
        let wanted = &gateway.spec.selector;
        let pods: Vec<_> = selected_pods(world, wanted).collect();
        if pods.is_empty() {
            add_missing_selector(resource, wanted, findings);
            continue;
        }
        let known = service_ports(world, &pods);
        for server in &gateway.spec.servers {
            let Some(port) = &server.port else { continue };
            if !known.contains(&port.number) {
                let parameters = [(&port.number).into(), selector::text(wanted).into()];
                let path = ["spec", "selector", selector::first_key(wanted)];
                findings.add_at(
                    &catalogue::GATEWAY_PORT_NOT_DEFINED_ON_SERVICE,
                    resource,
                    &path,
                    &parameters,
                );
            }
        }
    }
}

fn selected_pods<'a>(
    world: &'a World,
    wanted: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = (&'a Arc<Resource>, &'a Labels)> {
    let pods = world.each::<Pod>().map(|(resource, pod)| (resource, &pod.meta.labels));
    pods.filter(|(_, labels)| selector::selects(wanted, labels))
}

fn add_missing_selector(resource: &Resource, wanted: &BTreeMap<String, String>, findings: &mut Findings) {
    let path = ["spec", "selector", selector::first_key(wanted)];
    let parameters = ["selector".into(), selector::text(wanted).into()];
    findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &path, &parameters);
}

/// The ports, of their own and of the pods, of all Services in front of the pods.
fn service_ports(world: &World, pods: &[(&Arc<Resource>, &Labels)]) -> Vec<u32> {
    let mut ports = Vec::new();
    for (resource, service) in world.each::<Service>() {
        let selects = |(pod, labels): &(&Arc<Resource>, &Labels)| {
            pod.namespace() == resource.namespace() && service.spec.selector.subset_of(labels)
        };
        if !pods.iter().any(selects) {
            continue;
        }
        for port in service.spec.ports.iter().filter(|port| port.protocol.to_string() == "TCP") {
            let target = match &port.target_port {
                Some(IntOrString::Int(number)) => u32::try_from(*number).ok(),
                Some(IntOrString::String(name)) => name.parse().ok(),
                None => None,
            };
            ports.push(port.port.into());
            ports.extend(target.filter(|target| *target != 0));
        }
    }
    ports
}

/// Gateways of the same pods with the same certificate: connections of HTTP/2 may be used for the other's hosts.
pub(crate) fn duplicate_certificates(world: &World, findings: &mut Findings) {
    for (current, gateway) in world.each::<Gateway>() {
        for (other, rival) in world.each::<Gateway>() {
            let is_same = current.full_name() == other.full_name();
            let fits =
                gateway.spec.selector.iter().all(|(key, value)| rival.spec.selector.get(key) == Some(value));
            if is_same || !fits {
                continue;
            }
            let own = gateway.spec.servers.iter().filter_map(|server| server.tls.as_ref());
            for own in own {
                let theirs = rival.spec.servers.iter().filter_map(|server| server.tls.as_ref());
                for _ in theirs.filter(|theirs| is_same_certificate(own, theirs)) {
                    let names = vec![current.full_name().into_owned(), other.full_name().into_owned()];
                    let kind = &catalogue::GATEWAY_DUPLICATE_CERTIFICATE;
                    findings.add_at(kind, current, &["metadata", "name"], &[names.into()]);
                }
            }
        }
    }
}

fn is_same_certificate(a: &ServerTlsSettings, b: &ServerTlsSettings) -> bool {
    let is_same = |a: &str, b: &str| !a.is_empty() && a == b;
    match (a.credential_name.is_empty(), b.credential_name.is_empty()) {
        (false, false) => a.credential_name == b.credential_name,
        (true, true) => {
            is_same(&a.server_certificate, &b.server_certificate) && is_same(&a.private_key, &b.private_key)
        }
        _ => false,
    }
}

/// Secrets of Gateways that are missing or hold no valid certificate.
pub(crate) fn secrets(world: &World, findings: &mut Findings) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(now);
    for (resource, gateway) in world.each::<Gateway>() {
        let Some((pod, _)) = selected_pods(world, &gateway.spec.selector).next() else {
            add_missing_selector(resource, &gateway.spec.selector, findings);
            continue;
        };
        for (index, server) in gateway.spec.servers.iter().enumerate() {
            let credential = server.tls.as_ref().map(|tls| tls.credential_name.as_str()).unwrap_or_default();
            if credential.is_empty() {
                continue;
            }
            let index = index.to_string();
            let path = ["spec", "servers", &index, "tls", "credentialName"];
            let (namespace, name) = short_or_full_name(pod.namespace(), credential);
            match world.get::<Secret>(namespace, name) {
                None => {
                    let parameters = ["credentialName".into(), credential.into()];
                    findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &path, &parameters);
                }
                Some(secret) if !is_usable(&secret.spec, now) => {
                    let parameters = [resource.name().into(), pod.namespace().into()];
                    findings.add_at(&catalogue::INVALID_GATEWAY_CREDENTIAL, resource, &path, &parameters);
                }
                Some(_) => {}
            }
        }
    }
}

/// Whether a secret has a key and a certificate that is valid now.
fn is_usable(secret: &SecretData, now: UnixTime) -> bool {
    let value = |key: &str| secret.get(key).filter(|value| !value.is_empty());
    let certificate = match (value("cert"), value("key")) {
        (Some(certificate), Some(_)) => Some(certificate),
        _ => value("tls.crt").filter(|_| value("tls.key").is_some()),
    };
    let certificates = certificate.and_then(|text| Certificate::all_from_pem(text).ok()).unwrap_or_default();
    certificates.first().is_some_and(|certificate| certificate.is_valid_at(now))
}

/// A server of a Gateway, as others may conflict with it.
struct Claim<'a> {
    gateway: String,
    selector: &'a BTreeMap<String, String>,
    port: u32,
    hosts: Vec<&'a str>,
    bind: &'a str,
}

/// Servers of different Gateways for the same pods, port and host.
pub(crate) fn conflicts(world: &World, findings: &mut Findings) {
    let mut claims: BTreeMap<(String, u32, String), Claim<'_>> = BTreeMap::new();
    for (resource, gateway) in world.each::<Gateway>() {
        for server in &gateway.spec.servers {
            let claim = Claim {
                gateway: resource.full_name().into_owned(),
                selector: &gateway.spec.selector,
                port: server.port.as_ref().map(|port| port.number).unwrap_or_default(),
                hosts: server.hosts.iter().map(String::as_str).collect(),
                bind: &server.bind,
            };
            // Parity: of several servers of one Gateway on one port, the last counts.
            claims.insert((selector::text(claim.selector), claim.port, claim.gateway.clone()), claim);
        }
    }
    for (resource, gateway) in world.each::<Gateway>() {
        let wanted = &gateway.spec.selector;
        let rivals: Vec<&Claim<'_>> =
            claims.values().filter(|claim| may_share_pods(world, wanted, claim.selector)).collect();
        if !wanted.is_empty() && rivals.is_empty() {
            add_missing_selector(resource, wanted, findings);
            continue;
        }
        let own = resource.full_name();
        for server in &gateway.spec.servers {
            let port = server.port.as_ref().map(|port| port.number).unwrap_or_default();
            let conflicting = rivals.iter().filter(|claim| {
                claim.port == port
                    && claim.gateway != own
                    && claim.bind == server.bind
                    && server.hosts.iter().any(|host| claim.hosts.contains(&host.as_str()))
            });
            let mut names: Vec<&str> = conflicting.map(|claim| claim.gateway.as_str()).collect();
            names.sort_unstable();
            if !names.is_empty() {
                let parameters = [
                    names.join(",").into(),
                    selector::text(wanted).into(),
                    (&port).into(),
                    server.hosts.join(",").into(),
                ];
                findings.add(&catalogue::CONFLICTING_GATEWAYS, resource, &parameters);
            }
        }
    }
}

/// Whether two selectors are equal, or one contains the other and a pod fits both.
fn may_share_pods(world: &World, a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> bool {
    if a == b {
        return true;
    }
    let (a_text, b_text) = (selector::text(a), selector::text(b));
    (a_text.contains(&b_text) || b_text.contains(&a_text))
        && world
            .objects_of_kind(Kind::Pod)
            .iter()
            .any(|pod| selector::selects(a, pod.labels()) && selector::selects(b, pod.labels()))
}
