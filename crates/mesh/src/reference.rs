//! What objects refer to by name: pure functions of one object, below the input layer, which indexes objects by them.

pub(crate) mod gateway_api;

use canopus_api::annotations::INTERNAL_ROUTE_SEMANTICS;
use canopus_api::istio::VirtualService;

/// The gateway name that stands for all sidecars.
pub const MESH: &str = "mesh";

/// Which API a VirtualService was written in. The API decides how hosts, gateways and paths are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semantics {
    /// Istio's own API: a user wrote the VirtualService.
    Istio,
    /// Derived from a Kubernetes Ingress.
    Ingress,
    /// Derived from a Gateway API route.
    GatewayApi,
}

/// Reads the annotation that derived VirtualServices carry.
pub(crate) fn semantics(object: &VirtualService) -> Semantics {
    match object.meta.annotation(INTERNAL_ROUTE_SEMANTICS.name) {
        Some("ingress") => Semantics::Ingress,
        Some("gateway") => Semantics::GatewayApi,
        _ => Semantics::Istio,
    }
}

/// The gateways that a VirtualService is bound to, each as `namespace/name`. [`MESH`] is left out.
pub(crate) fn bound_gateways(object: &VirtualService) -> Vec<String> {
    if object.spec.hosts.is_empty() {
        return Vec::new();
    }
    let written = object.spec.gateways.iter().filter(|gateway| *gateway != MESH);
    match semantics(object) {
        // The control plane derives these with qualified names.
        Semantics::GatewayApi => written.cloned().collect(),
        _ => written.map(|gateway| gateway_name(gateway, &object.meta.namespace)).collect(),
    }
}

/// Qualifies the name of a gateway as written in an object of `namespace`. The forms are `name`, `./name`, `other/name`, and
/// the old `name.other.svc.cluster.local`.
pub fn gateway_name(written: &str, namespace: &str) -> String {
    if let Some((other, name)) = written.split_once('/') {
        return if other == "." { format!("{namespace}/{name}") } else { written.to_owned() };
    }
    match written.split_once('.') {
        None => format!("{namespace}/{written}"),
        Some((name, rest)) => format!("{}/{name}", rest.split('.').next().unwrap_or(rest)),
    }
}
