//! GatewayClasses: which controller deploys their gateways, and what their listeners support.

use canopus_api::gateway_api::{AddressType, Gateway, GatewayClass, GatewaySpec};
use canopus_api::{Meta, annotations};
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT, Flags,
    PILOT_ENABLE_AMBIENT_WAYPOINTS, PILOT_GATEWAY_API_CONTROLLER_NAME,
    PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME, PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API,
};

use super::cluster_objects::ClusterObjects;

/// The kind of gateway that a class describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Ordinary gateways.
    Gateway,
    /// Gateways of another cluster, which another control plane deploys.
    Remote,
    /// Waypoints.
    Waypoint,
    /// Gateways between networks of an ambient mesh.
    EastWest,
}

/// The name of the controller of waypoints.
pub(super) const MESH_CONTROLLER: &str = "istio.io/mesh-controller";
const REMOTE_CONTROLLER: &str = "istio.io/unmanaged-gateway";
const EAST_WEST_CONTROLLER: &str = "istio.io/eastwest-controller";

impl Class {
    /// Finds a class by name: from its object, else one of the built-in classes.
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

    /// The class that one of our controllers deploys.
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

    /// The name of the controller that deploys its gateways, if that of ordinary gateways is called `gateways`.
    pub(super) fn controller(self, gateways: &str) -> &str {
        match self {
            Self::Gateway => gateways,
            Self::Remote => REMOTE_CONTROLLER,
            Self::Waypoint => MESH_CONTROLLER,
            Self::EastWest => EAST_WEST_CONTROLLER,
        }
    }

    /// Whether its gateways support ListenerSets.
    pub(super) fn takes_listener_sets(self) -> bool {
        self == Self::Gateway
    }

    /// Whether routes can attach to a listener on this port.
    pub(super) fn routes_on(self, port: u16) -> bool {
        match self {
            Self::Gateway => true,
            Self::Remote | Self::Waypoint => false,
            Self::EastWest => port != 15008,
        }
    }

    /// Whether its listeners accept HBONE.
    pub(super) fn takes_tunnels(self) -> bool {
        matches!(self, Self::Waypoint | Self::EastWest)
    }

    /// The type of address that the status reports for gateways without an external address; `None` reports both types.
    pub(super) fn address_type(self) -> Option<AddressType> {
        matches!(self, Self::Gateway | Self::Remote).then_some(AddressType::Hostname)
    }

    /// The name of the Deployment and Service of a gateway.
    fn deployed_name(self, meta: &Meta, spec: &GatewaySpec) -> String {
        match self {
            Self::Gateway | Self::Remote => format!("{}-{}", meta.name, spec.gateway_class_name),
            Self::Waypoint | Self::EastWest => meta.name.to_string(),
        }
    }

    /// The host of a managed gateway's Service.
    pub(super) fn managed_service(self, cluster: &ClusterObjects<'_>, gateway: &Gateway) -> String {
        let named = overridden(&gateway.meta, annotations::GATEWAY_NAME_OVERRIDE.name);
        let name = named.unwrap_or_else(|| self.deployed_name(&gateway.meta, &gateway.spec));
        cluster.service_host(&name, &gateway.meta.namespace)
    }

    /// The service account of a managed gateway's proxies; empty for others.
    pub(super) fn service_account(self, cluster: &ClusterObjects<'_>, gateway: &Gateway) -> String {
        if !is_managed(cluster, &gateway.spec) {
            return String::new();
        }
        overridden(&gateway.meta, annotations::GATEWAY_SERVICE_ACCOUNT.name)
            .unwrap_or_else(|| self.deployed_name(&gateway.meta, &gateway.spec))
    }
}

/// The value of an annotation that names something, unless it is empty.
pub(super) fn overridden(meta: &Meta, annotation: &str) -> Option<String> {
    meta.annotation(annotation).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// A class that exists wherever the control plane runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltInClass {
    /// The name of the GatewayClass.
    pub name: String,
    /// The controller of its gateways.
    pub controller: String,
    /// What it is for, in words for users.
    pub description: &'static str,
}

/// The classes that exist wherever the control plane runs, by name.
pub fn built_in_classes(flags: &Flags) -> Vec<BuiltInClass> {
    let default_class = flags.get(PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME);
    let own = [
        (Class::Gateway, default_class, "The default Istio GatewayClass"),
        (Class::EastWest, "istio-east-west", "The default GatewayClass for Istio East West Gateways"),
        (Class::Remote, "istio-remote", "Remote to this cluster. Does not deploy or affect configuration."),
        (Class::Waypoint, "istio-waypoint", "The default Istio waypoint GatewayClass"),
    ];
    let mut classes = Vec::new();
    for (class, name, description) in own {
        if class.is_enabled(flags) {
            let controller = class.controller(flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME)).to_owned();
            classes.push(BuiltInClass { name: name.to_owned(), controller, description });
        }
    }
    classes
}

/// Whether the control plane deploys a gateway, rather than binding it to an existing Service.
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
