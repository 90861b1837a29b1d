//! Classes of gateways: who makes them, and what may be asked of them.

use canopus_api::gateway_api::{AddressType, Gateway, GatewayClass, GatewaySpec};
use canopus_api::{Meta, annotations};
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT, Flags,
    PILOT_ENABLE_AMBIENT_WAYPOINTS, PILOT_GATEWAY_API_CONTROLLER_NAME,
    PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME, PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API,
};

use super::cluster_objects::ClusterObjects;

/// What gateways of a class are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Ordinary gateways.
    Gateway,
    /// Gateways of another cluster, which somebody else makes.
    Remote,
    /// Waypoints.
    Waypoint,
    /// Gateways between networks of an ambient mesh.
    EastWest,
}

/// The names of the controllers that make waypoints and their like.
pub(super) const MESH_CONTROLLER: &str = "istio.io/mesh-controller";
const REMOTE_CONTROLLER: &str = "istio.io/unmanaged-gateway";
const EAST_WEST_CONTROLLER: &str = "istio.io/eastwest-controller";

impl Class {
    /// The class of a name: as its object says, else one of those that exist without an object.
    pub(super) fn named(cluster: &ClusterObjects<'_>, name: &str) -> Option<Self> {
        let flags = &cluster.settings.flags;
        let object = cluster.object::<GatewayClass>("", name);
        let controller = object.and_then(|class| Self::made_by(&class.spec.controller_name, flags));
        controller.or_else(|| {
            let built_in = match name {
                "istio-remote" => Self::Remote,
                "istio-waypoint" => Self::Waypoint,
                "istio-east-west" => Self::EastWest,
                _ if name == flags.get(PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME) => Self::Gateway,
                _ => return None,
            };
            built_in.is_enabled(flags).then_some(built_in)
        })
    }

    /// What a controller makes, if it is one of ours.
    pub(super) fn made_by(controller: &str, flags: &Flags) -> Option<Self> {
        let class = match controller {
            MESH_CONTROLLER => Self::Waypoint,
            REMOTE_CONTROLLER => Self::Remote,
            EAST_WEST_CONTROLLER => Self::EastWest,
            _ if controller == flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME) => Self::Gateway,
            _ => return None,
        };
        class.is_enabled(flags).then_some(class)
    }

    fn is_enabled(self, flags: &Flags) -> bool {
        match self {
            Self::Gateway => true,
            Self::Remote => flags.get(PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API),
            Self::Waypoint => flags.get(PILOT_ENABLE_AMBIENT_WAYPOINTS),
            Self::EastWest => flags.get(AMBIENT_ENABLE_MULTI_NETWORK),
        }
    }

    /// Whether listeners may be added to its gateways.
    pub(super) fn takes_listener_sets(self) -> bool {
        self == Self::Gateway
    }

    /// Whether the gateway's listener on a port becomes servers that routes attach to.
    pub(super) fn routes_on(self, port: u16) -> bool {
        match self {
            Self::Gateway => true,
            Self::Remote | Self::Waypoint => false,
            Self::EastWest => port != 15008,
        }
    }

    /// Whether it speaks HBONE.
    pub(super) fn takes_tunnels(self) -> bool {
        matches!(self, Self::Waypoint | Self::EastWest)
    }

    /// The sort of address that is reported for gateways that are not reached from outside; both if it says none.
    pub(super) fn address_type(self) -> Option<AddressType> {
        matches!(self, Self::Gateway | Self::Remote).then_some(AddressType::Hostname)
    }

    /// The name of what is deployed for a gateway.
    fn deployed_name(self, meta: &Meta, spec: &GatewaySpec) -> String {
        match self {
            Self::Gateway | Self::Remote => format!("{}-{}", meta.name, spec.gateway_class_name),
            Self::Waypoint | Self::EastWest => meta.name.to_string(),
        }
    }

    /// The host of the service that a managed gateway gets.
    pub(super) fn managed_service(self, cluster: &ClusterObjects<'_>, gateway: &Gateway) -> String {
        let named = overridden(&gateway.meta, annotations::GATEWAY_NAME_OVERRIDE.name);
        let name = named.unwrap_or_else(|| self.deployed_name(&gateway.meta, &gateway.spec));
        cluster.service_host(&name, &gateway.meta.namespace)
    }

    /// The service account that the proxies of a managed gateway run as; for others it is not known.
    pub(super) fn service_account(self, cluster: &ClusterObjects<'_>, gateway: &Gateway) -> String {
        if !is_managed(cluster, &gateway.spec) {
            return String::new();
        }
        overridden(&gateway.meta, annotations::GATEWAY_SERVICE_ACCOUNT.name)
            .unwrap_or_else(|| self.deployed_name(&gateway.meta, &gateway.spec))
    }
}

fn overridden(meta: &Meta, annotation: &str) -> Option<String> {
    meta.annotation(annotation).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Whether a gateway is deployed for the user, rather than bound to a service that is there.
pub(super) fn is_managed(cluster: &ClusterObjects<'_>, spec: &GatewaySpec) -> bool {
    if !cluster.settings.flags.get(ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT) {
        return true;
    }
    match spec.addresses.as_slice() {
        [] => true,
        [one] => one.r#type == AddressType::IpAddress,
        _ => false,
    }
}
