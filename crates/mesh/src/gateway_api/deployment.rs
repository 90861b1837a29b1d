//! What is deployed for a Gateway: from which template, under which names, with which ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::annotations;
use canopus_api::gateway_api::{Gateway, GatewayClass, Listener};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::{
    PILOT_ENABLE_AGENTGATEWAY, PILOT_ENABLE_AMBIENT_WAYPOINTS, PILOT_ENABLE_GATEWAY_API,
    PILOT_ENABLE_QUIC_LISTENERS, PILOT_GATEWAY_API_CONTROLLER_NAME,
};

use super::class::{Class, is_managed, overridden};
use super::cluster_objects::ClusterObjects;
use super::conflict::accepted_listener_sets;
use crate::revision::is_for_this_revision;
use crate::world::Origin;

/// The version of the logic that deploys gateways here. Of two control planes the one with the larger number deploys a
/// gateway; an annotation of the Gateway says which it is.
pub const CONTROLLER_VERSION: i64 = 5;

/// The port at which proxies report whether they are ready.
const STATUS_PORT: u16 = 15021;

/// The longest name of a port of a Service.
const MAX_PORT_NAME: usize = 63;

/// What is deployed for a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayDeployment {
    /// The template in the injector's configuration.
    pub template: &'static str,
    /// The controller of the gateway's class.
    pub controller: String,
    /// Value of the pod label that names the controller.
    pub controller_label: &'static str,
    /// The name of the Deployment and the Service.
    pub name: String,
    /// The name of the ServiceAccount.
    pub service_account: String,
    /// The type of the Service.
    pub service_type: String,
    /// The ports of the Service.
    pub ports: Vec<DeployedPort>,
    /// Whether the gateway connects networks of an ambient mesh.
    pub is_east_west: bool,
    /// Whether the Gateway does not say yet that this version of the logic deploys it.
    pub takes_over: bool,
}

/// A port of the Service of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployedPort {
    /// The name, unique in the Service.
    pub name: String,
    /// The number.
    pub number: u16,
    /// Whether it is a UDP port.
    pub is_udp: bool,
    /// The protocol of its listener, in lower case.
    pub application_protocol: String,
}

/// What is deployed for a gateway; `None` if somebody else deploys it, or nobody.
pub struct DeploymentOf;

impl Query for DeploymentOf {
    const NAME: &'static str = "gateway_deployment_of";
    type Key = Origin;
    type Value = Option<Arc<GatewayDeployment>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        let flags = &cluster.settings.flags;
        if !flags.get(PILOT_ENABLE_GATEWAY_API) || origin.cluster != cluster.settings.cluster {
            return None;
        }
        let gateway = cluster.object::<Gateway>(origin.namespace(), origin.name())?;
        let deployer = Deployer::find(&cluster, &gateway)?;
        if !is_managed(&cluster, &gateway.spec) || !is_for_this_revision(ctx, &gateway.meta) {
            return None;
        }
        let takes_over = match gateway.meta.annotation(annotations::GATEWAY_CONTROLLER_VERSION.name) {
            None => true,
            // A version that is not a number belongs to a later scheme than this one.
            Some(version) => match version.parse::<i64>() {
                Ok(version) if version <= CONTROLLER_VERSION => version < CONTROLLER_VERSION,
                _ => return None,
            },
        };
        let meta = &gateway.meta;
        let default_name = if deployer.has_suffix {
            format!("{}-{}", meta.name, gateway.spec.gateway_class_name)
        } else {
            meta.name.to_string()
        };
        let name_or = |annotation| overridden(meta, annotation).unwrap_or_else(|| default_name.clone());
        let service_type = meta.annotation(annotations::SERVICE_TYPE.name).unwrap_or(deployer.service_type);
        let sets = accepted_listener_sets(&cluster, &gateway);
        let listeners = gateway.spec.listeners.iter().chain(sets.iter().flat_map(|set| &set.spec.listeners));
        Some(Arc::new(GatewayDeployment {
            template: deployer.template,
            controller: deployer.controller,
            controller_label: deployer.label,
            name: name_or(annotations::GATEWAY_NAME_OVERRIDE.name),
            service_account: name_or(annotations::GATEWAY_SERVICE_ACCOUNT.name),
            service_type: service_type.to_owned(),
            ports: ports(listeners, flags.get(PILOT_ENABLE_QUIC_LISTENERS)),
            is_east_west: deployer.is_east_west,
            takes_over,
        }))
    }
}

/// How the gateways of a class are deployed.
struct Deployer {
    template: &'static str,
    controller: String,
    label: &'static str,
    /// Whether the name of the class is part of the names of what is deployed.
    has_suffix: bool,
    service_type: &'static str,
    is_east_west: bool,
}

const AGENTGATEWAY_CONTROLLER: &str = "istio.io/agentgateway-controller";
const AGENTGATEWAY_WAYPOINT_CONTROLLER: &str = "istio.io/agentgateway-waypoint-controller";

impl Deployer {
    fn find(cluster: &ClusterObjects<'_>, gateway: &Gateway) -> Option<Self> {
        let flags = &cluster.settings.flags;
        let name = &*gateway.spec.gateway_class_name;
        // Unlike for conversion, a class that is there and somebody else's is never taken for a built-in one.
        let controller = match cluster.object::<GatewayClass>("", name) {
            Some(class) => class.spec.controller_name.to_string(),
            None => built_in_controller(cluster, name)?,
        };
        let agentgateway = flags.get(PILOT_ENABLE_AGENTGATEWAY);
        let waypoints = flags.get(PILOT_ENABLE_AMBIENT_WAYPOINTS);
        let (template, label, has_suffix, service_type) = match &*controller {
            AGENTGATEWAY_CONTROLLER if agentgateway => {
                ("agentgateway", "istio.io-gateway-controller", false, "LoadBalancer")
            }
            AGENTGATEWAY_WAYPOINT_CONTROLLER if agentgateway && waypoints => {
                ("agentgateway-waypoint", "istio.io-agentgateway-waypoint-controller", false, "ClusterIP")
            }
            controller => match Class::made_by(controller, flags)? {
                Class::Remote => return None,
                Class::Gateway => ("kube-gateway", "istio.io-gateway-controller", true, "LoadBalancer"),
                Class::Waypoint => ("waypoint", "istio.io-mesh-controller", false, "ClusterIP"),
                Class::EastWest => ("waypoint", "istio.io-eastwest-controller", false, "LoadBalancer"),
            },
        };
        let is_east_west = Class::made_by(&controller, flags) == Some(Class::EastWest);
        Some(Self { template, controller, label, has_suffix, service_type, is_east_west })
    }
}

/// The controller of a class that has no object.
fn built_in_controller(cluster: &ClusterObjects<'_>, class: &str) -> Option<String> {
    let flags = &cluster.settings.flags;
    let controller = match class {
        "istio-agentgateway" => AGENTGATEWAY_CONTROLLER,
        "istio-agentgateway-waypoint" => AGENTGATEWAY_WAYPOINT_CONTROLLER,
        _ => Class::named(cluster, class)?.controller(flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME)),
    };
    Some(controller.to_owned())
}

/// The ports of a Service: that of the status, then each port of the listeners once.
fn ports<'a>(listeners: impl Iterator<Item = &'a Listener>, quic: bool) -> Vec<DeployedPort> {
    const STATUS: &str = "status-port";
    let mut names = BTreeSet::from([STATUS.to_owned()]);
    let mut numbers = BTreeSet::new();
    let mut ports = vec![DeployedPort {
        name: STATUS.to_owned(),
        number: STATUS_PORT,
        is_udp: false,
        application_protocol: "tcp".to_owned(),
    }];
    for (position, listener) in listeners.enumerate() {
        let number = listener.port;
        if !numbers.insert(number) {
            continue;
        }
        let application_protocol = listener.protocol.to_lowercase();
        let name = match &*listener.name {
            "" => format!("{application_protocol}-{position}"),
            name => name.replace('.', "-"),
        };
        let name = unique_name(&name, number, &mut names);
        let port = DeployedPort {
            name: name.clone(),
            number,
            is_udp: false,
            application_protocol: application_protocol.clone(),
        };
        ports.push(port);
        if quic && application_protocol == "https" {
            let name = unique_name(&format!("{name}-quic"), number, &mut names);
            ports.push(DeployedPort { name, number, is_udp: true, application_protocol });
        }
    }
    ports
}

/// A name that is short enough and not in use: names of listeners may be long, and differ in characters that names of
/// ports do not have.
fn unique_name(name: &str, number: u16, used: &mut BTreeSet<String>) -> String {
    let cut = |length: usize| name.chars().take(length).collect::<String>();
    let mut candidate = cut(MAX_PORT_NAME);
    let mut suffix = format!("-{number}");
    while !used.insert(candidate.clone()) {
        candidate = format!("{}{suffix}", cut(MAX_PORT_NAME.saturating_sub(suffix.len())));
        suffix.push('x');
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(name: &str, port: u16, protocol: &str) -> Listener {
        Listener { name: name.into(), port, protocol: protocol.into(), ..Listener::default() }
    }

    fn names(listeners: &[Listener], quic: bool) -> Vec<String> {
        let ports = ports(listeners.iter(), quic);
        ports
            .iter()
            .map(|port| format!("{}:{}{}", port.name, port.number, if port.is_udp { "/udp" } else { "" }))
            .collect()
    }

    #[test]
    fn each_port_is_named_once_whatever_listeners_are_called() {
        let listeners =
            [listener("a.b", 80, "HTTP"), listener("a-b", 81, "HTTP"), listener("other", 80, "HTTP")];
        assert_eq!(names(&listeners, false), ["status-port:15021", "a-b:80", "a-b-81:81"]);
        assert_eq!(names(&[listener("status-port", 82, "TCP")], false)[1], "status-port-82:82");
        assert_eq!(names(&[listener("", 83, "TCP")], false)[1], "tcp-0:83");
        let long = "x".repeat(70);
        let long = names(&[listener(&long, 80, "HTTP"), listener(&long, 81, "HTTP")], false);
        assert_eq!(long[1].len(), 63 + ":80".len());
        assert!(long[2].ends_with("x-81:81"), "{long:?}");
    }

    #[test]
    fn https_has_a_udp_port_when_quic_is_on() {
        let listeners = [listener("web", 443, "HTTPS"), listener("plain", 80, "HTTP")];
        assert_eq!(names(&listeners, true), ["status-port:15021", "web:443", "web-quic:443/udp", "plain:80"]);
    }
}
