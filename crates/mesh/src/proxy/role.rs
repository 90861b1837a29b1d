//! What a proxy is deployed for.

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;

/// The value of the `gateway.istio.io/managed` label on waypoints that the control plane deployed.
pub(crate) const MESH_CONTROLLER: &str = "istio.io-mesh-controller";
/// The value of the `gateway.istio.io/managed` label on gateways between the networks of an ambient mesh.
pub(crate) const EAST_WEST_CONTROLLER: &str = "istio.io-eastwest-controller";

/// What a proxy is deployed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// Sidecar, gateway, waypoint or ztunnel.
    pub kind: NodeKind,
    /// Whether it is a gateway into the mesh.
    pub is_ingress: bool,
    /// Whether it is a waypoint that the control plane deployed.
    pub is_managed_waypoint: bool,
    /// Whether it is a gateway between the networks of an ambient mesh.
    pub is_east_west_gateway: bool,
}

impl Role {
    /// Derives the role from the kind and labels of a proxy.
    pub fn new(kind: NodeKind, labels: &Labels) -> Self {
        let managed_by = labels.get(known::GATEWAY_MANAGED.name);
        let is_waypoint = kind == NodeKind::Waypoint;
        Self {
            kind,
            is_ingress: kind == NodeKind::Router
                && (managed_by == Some("istio.io-gateway-controller")
                    || labels.get("istio") == Some("ingressgateway")),
            is_managed_waypoint: is_waypoint && managed_by == Some(MESH_CONTROLLER),
            is_east_west_gateway: is_waypoint && managed_by == Some(EAST_WEST_CONTROLLER),
        }
    }
}
