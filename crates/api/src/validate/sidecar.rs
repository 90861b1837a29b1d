//! Sidecars: what a proxy listens for, and what it may reach.

mod egress;
mod ingress;

use canopus_proto::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode as MeshMode;
use canopus_proto::istio::networking::v1alpha3::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::{OutboundTrafficPolicy, Sidecar as Spec, SidecarPort};

use super::code::codes;
use super::scope::Scope;
use super::{address, connection_pool, destination, host, port, selector};
use crate::istio::Sidecar;

pub(super) use egress::CODES as EGRESS_CODES;
pub(super) use ingress::CODES as INGRESS_CODES;

codes! {
    EMPTY: error "sidecar-empty", "give at least one of egress, ingress, outboundTrafficPolicy and inboundConnectionPool";
    TARGET_PORT: error "sidecar-target-port", "remove targetPort";
    DYNAMIC_DNS: error "sidecar-dynamic-dns", "set ALLOW_ANY_DYNAMIC_DNS in the mesh configuration";
    PROXY_WITHOUT_ALLOW_ANY: error "sidecar-egress-proxy-without-allow-any", "use mode ALLOW_ANY, or remove egressProxy";
    PROXY_WITHOUT_PORT: error "sidecar-egress-proxy-without-port", "give the port of egressProxy";
    DUPLICATE_PORT: error "sidecar-port-twice", "use each port for one listener";
}

/// Checks a Sidecar.
pub fn check(sidecar: &Sidecar, mut scope: Scope<'_>) {
    let mut scope = scope.field("spec");
    let bad_selector = scope.fails(|mut scope| {
        scope.optional("workloadSelector", sidecar.spec.workload_selector.as_ref(), |selector, scope| {
            // Parity: the warning is lost when the rest is empty.
            let scope = if is_empty(&sidecar.spec) { scope.without_warnings() } else { scope };
            selector::networking(selector, "sidecar", scope);
        });
    });
    // Parity: Istio looks no further than a selector it refuses.
    rest(sidecar, if bad_selector { scope.ours() } else { scope });
}

fn is_empty(spec: &Spec) -> bool {
    spec.egress.is_empty()
        && spec.ingress.is_empty()
        && spec.outbound_traffic_policy.is_none()
        && spec.inbound_connection_pool.is_none()
}

fn rest(sidecar: &Sidecar, mut scope: Scope<'_>) {
    let spec = &sidecar.spec;
    if is_empty(spec) {
        return scope.add(EMPTY.says("sidecar: empty configuration provided"));
    }
    ingress::check(&spec.ingress, scope.field("ingress"));
    scope.optional("inboundConnectionPool", spec.inbound_connection_pool.as_ref(), connection_pool::check);
    egress::check(&spec.egress, &sidecar.meta.namespace, scope.field("egress"));
    scope.optional("outboundTrafficPolicy", spec.outbound_traffic_policy.as_ref(), outbound);
}

fn outbound(policy: &OutboundTrafficPolicy, mut scope: Scope<'_>) {
    // The two enums are the same but for the mode that only a mesh has.
    if policy.mode == MeshMode::AllowAnyDynamicDns as i32 {
        let message =
            "sidecar: ALLOW_ANY_DYNAMIC_DNS mode is only supported in MeshConfig, not in Sidecar resource";
        return scope.field("mode").add(DYNAMIC_DNS.says(message));
    }
    let Some(proxy) = &policy.egress_proxy else { return };
    if policy.mode != Mode::AllowAny as i32 {
        let message = "sidecar: egress_proxy must be set only with ALLOW_ANY outbound_traffic_policy mode";
        return scope.field("egressProxy").add(PROXY_WITHOUT_ALLOW_ANY.says(message));
    }
    let mut scope = scope.field("egressProxy");
    scope.field("host").require(host::fqdn(&proxy.host));
    if proxy.port.is_none() {
        return scope
            .field("port")
            .add(PROXY_WITHOUT_PORT.says("sidecar: egress_proxy port must be non-nil"));
    }
    destination::check(proxy, scope);
}

/// What listeners of both directions say of their port, besides its number.
fn port_words(port: &SidecarPort, mut scope: Scope<'_>) {
    if !port.name.is_empty() {
        scope.field("name").require(port::name(&port.name));
    }
    scope.field("protocol").require(port::protocol(&port.protocol));
}

fn target_port(port: &SidecarPort, mut scope: Scope<'_>) {
    #[expect(deprecated, reason = "this is where its use is found")]
    let target_port = port.target_port;
    scope.field("targetPort").add_if(target_port > 0, || {
        TARGET_PORT.says("targetPort has no impact on Sidecars").with_value(target_port)
    });
}

/// A listener on a port of the network, and perhaps on one address only.
fn on_network(port: &SidecarPort, bind: &str, mut scope: Scope<'_>) {
    scope.field("port").field("number").require(port::number(port.number));
    if !bind.is_empty() {
        scope.field("bind").require(address::ip(bind));
    }
}

fn same_port(port: &SidecarPort, mut scope: Scope<'_>) {
    let message = "sidecar: ports on IP bound listeners must be unique";
    scope.field("port").field("number").add(DUPLICATE_PORT.says(message).with_value(port.number));
}
