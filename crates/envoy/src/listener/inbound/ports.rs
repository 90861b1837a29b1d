//! The ports of a workload that have filter chains of their own: those of its services, or those its Sidecar lists.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use canopus_base::protocol::Protocol;
use canopus_mesh::scope::{self, ScopeSettings};
use canopus_mesh::target::Target;
use canopus_proto::istio::networking::v1alpha3::{CaptureMode, IstioIngressListener, ServerTlsSettings};
use canopus_runtime::flags::{
    ENABLE_TLS_ON_SIDECAR_INGRESS, PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE,
};

use super::Audience;
use crate::address;
use crate::audience::Interception;
use crate::env::Env;
use crate::listener::outbound::Binding;
use crate::listener::port::Wanted;

/// One port of a service that a workload stands for, as far as its listeners depend on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServicePort {
    /// The service's host.
    pub(crate) host: Arc<str>,
    /// Name and namespace, if it is a service of Kubernetes.
    pub(crate) kubernetes: Option<(Arc<str>, Arc<str>)>,
    /// The port callers use.
    pub(crate) port: u32,
    pub(crate) name: Arc<str>,
    /// What is spoken on it.
    pub(crate) protocol: Protocol,
    /// The port of the workload.
    pub(crate) target: u32,
}

impl From<&Target> for ServicePort {
    fn from(target: &Target) -> Self {
        let service = &target.service;
        let kubernetes = || (service.name.clone(), service.namespace.clone());
        Self {
            host: service.host.clone(),
            kubernetes: service.is_kubernetes().then(kubernetes),
            port: target.port.number,
            name: target.port.name.clone(),
            protocol: target.port.protocol,
            target: target.target_port,
        }
    }
}

/// A port of the workload that has chains of its own.
#[derive(Clone, Debug)]
pub(super) struct InboundPort {
    /// The port of the workload; 0 for all that are not known.
    pub(super) target: u32,
    /// The port callers use.
    pub(super) port: u32,
    /// The name of that port.
    pub(super) name: Arc<str>,
    /// What is spoken on it.
    pub(super) protocol: Protocol,
    /// The host callers use, or a name that stands for it in telemetry.
    pub(super) host: Arc<str>,
    /// Name and namespace of the Kubernetes service.
    pub(super) kubernetes: Option<(Arc<str>, Arc<str>)>,
    /// Where it is bound, or what its chains are named after.
    pub(super) binding: Binding,
    /// TLS that the user wants terminated here.
    pub(super) tls: Option<ServerTlsSettings>,
    /// Name and namespace of the Sidecar that lists it.
    pub(super) sidecar: Option<(String, String)>,
}

/// The ports with chains of their own, by number.
pub(super) fn inbound_ports(env: &Env<'_>, audience: &Audience) -> Vec<InboundPort> {
    let terms = scope::scope_settings(env.ctx, env.audience.scope());
    let mut ports = BTreeMap::new();
    for own in service_ports(env, audience, &terms) {
        // If services share a port of the workload, the oldest decides.
        ports.entry(own.target).or_insert_with(|| service_port(env, own));
    }
    for listener in ingress(&terms) {
        let Some(port) = sidecar_ports(env, audience, &terms, listener) else { continue };
        ports.entry(port.target).or_insert(port);
    }
    ports.into_values().collect()
}

/// What the Sidecar lists; nothing if the services decide.
fn ingress(terms: &ScopeSettings) -> &[IstioIngressListener] {
    let spec = terms.spec().filter(|_| terms.has_ingress());
    spec.map_or(&[], |spec| &spec.ingress)
}

fn number(listener: &IstioIngressListener) -> Option<u32> {
    listener.port.as_ref().map(|port| port.number)
}

/// Whether a port counts as known, so that it has no chains of those that are not.
pub(super) fn is_known(terms: &ScopeSettings, audience: &Audience, port: u32) -> bool {
    match terms.spec() {
        Some(spec) if terms.has_ingress() => spec.ingress.iter().any(|own| number(own) == Some(port)),
        _ => audience.ports.iter().any(|own| own.target == port),
    }
}

/// Whether services disagree on what is spoken on a port of the workload.
pub(super) fn disagree(env: &Env<'_>, audience: &Audience) -> bool {
    let terms = scope::scope_settings(env.ctx, env.audience.scope());
    let mut oldest: BTreeMap<u32, &ServicePort> = BTreeMap::new();
    service_ports(env, audience, &terms).into_iter().any(|own| {
        let first = *oldest.entry(own.target).or_insert(own);
        first.host != own.host && first.protocol != own.protocol
    })
}

/// The ports of services that count, the oldest service first: those that the Sidecar does not list.
fn service_ports<'a>(env: &Env<'_>, audience: &'a Audience, terms: &ScopeSettings) -> Vec<&'a ServicePort> {
    let count = if terms.has_ingress() {
        env.flag(PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE)
    } else {
        // Without redirection the workload listens on these ports itself.
        env.audience.sockets.interception != Interception::None
    };
    if !count {
        return Vec::new();
    }
    let listed: BTreeSet<u32> = ingress(terms).iter().filter_map(number).collect();
    let wildcards = address::wildcards(&env.audience.addressing);
    let to_port = is_bound(CaptureMode::Default, env);
    let is_allowed = |own: &&ServicePort| {
        let wanted = Wanted { bind: &wildcards[0], port: own.target, protocol: own.protocol, to_port };
        !listed.contains(&own.target)
            && wanted.is_allowed(&env.audience.sockets, &wildcards[0], Some(env.mesh()))
    };
    audience.ports.iter().filter(is_allowed).collect()
}

fn service_port(env: &Env<'_>, own: &ServicePort) -> InboundPort {
    let to_port = is_bound(CaptureMode::Default, env);
    InboundPort {
        target: own.target,
        port: own.port,
        name: own.name.clone(),
        protocol: own.protocol,
        host: own.host.clone(),
        kubernetes: own.kubernetes.clone(),
        binding: Binding { addresses: address::wildcards(&env.audience.addressing), to_port },
        tls: None,
        sidecar: None,
    }
}

/// A port that a Sidecar lists; `None` if the proxy may not have it.
fn sidecar_ports(
    env: &Env<'_>,
    audience: &Audience,
    terms: &ScopeSettings,
    listener: &IstioIngressListener,
) -> Option<InboundPort> {
    let written = listener.port.as_ref()?;
    let mut protocol = Protocol::parse(&written.protocol);
    let to_port = is_bound(listener.capture_mode(), env);
    let wildcards = address::wildcards(&env.audience.addressing);
    let wanted = Wanted { bind: &listener.bind, port: written.number, protocol, to_port };
    if !wanted.is_allowed(&env.audience.sockets, &wildcards[0], None) {
        return None;
    }
    let addresses = match listener.bind.as_str() {
        "" => audience.own.iter().find(|own| is_unicast(own)).map_or(wildcards, |own| vec![own.to_string()]),
        bind => vec![bind.to_owned()],
    };
    let tls = listener.tls.clone().filter(|_| env.flag(ENABLE_TLS_ON_SIDECAR_INGRESS));
    if tls.is_some() {
        protocol = protocol.after_tls_termination();
    }
    let name = terms.sidecar.as_ref().map(|sidecar| sidecar.meta.name.to_string()).unwrap_or_default();
    Some(InboundPort {
        target: written.number,
        port: written.number,
        name: written.name.as_str().into(),
        protocol,
        host: format!("{name}.{}", terms.namespace).into(),
        kubernetes: None,
        binding: Binding { addresses, to_port },
        tls,
        sidecar: Some((name, terms.namespace.to_string())),
    })
}

/// Whether an address is neither of this host alone nor of a link nor of a group.
fn is_unicast(address: &IpAddr) -> bool {
    let special = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !special && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// Whether a port is a socket of the operating system.
fn is_bound(capture: CaptureMode, env: &Env<'_>) -> bool {
    match capture {
        CaptureMode::Default => env.audience.sockets.interception == Interception::None,
        CaptureMode::None => true,
        CaptureMode::Iptables => false,
    }
}
