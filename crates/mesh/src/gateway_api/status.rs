//! Statuses of Gateway API objects. They are computed here and written by the elected leader.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::gateway_api::{
    AddressType, FrontendValidationMode, Gateway, GatewayClass, GatewayClassStatus, GatewayFrontendTls,
    GatewayStatus, GatewayStatusAddress, GatewayTls, ListenerSet, ListenerSetStatus, ListenerStatus,
    PolicyStatus, RouteParentStatus, RouteStatus,
};
use canopus_api::inference::InferencePoolStatus;
use canopus_api::{Kind, ObjectKey, annotations};
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::Server;
use canopus_runtime::flags::{ENABLE_GATEWAY_API_INFERENCE_EXTENSION, PILOT_ENABLE_GATEWAY_API};

use super::address::{self, GatewayAddresses};
use super::class::Class;
use super::client_certificate;
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::conflict;
use super::fault::{Fault, reason};
use super::gateway::{ListenersOpenedBy, OpenedListeners, parent_gateway};
use super::inference;
use super::policy::PolicyOf;
use super::route::RouteOf;
use super::udp;
use crate::reference::gateway_api::referenced_kind;
use crate::world::{Origin, object};

/// The status of an object, of whichever kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Status of a GatewayClass.
    Class(GatewayClassStatus),
    /// Status of a Gateway.
    Gateway(GatewayStatus),
    /// Status of a ListenerSet.
    ListenerSet(ListenerSetStatus),
    /// Status of a route of any kind, or of an XBackend.
    Route(RouteStatus),
    /// Status of a policy of any kind.
    Policy(PolicyStatus),
    /// Status of an InferencePool.
    Pool(InferencePoolStatus),
}

/// The desired status of an object; `None` if another controller owns it.
///
/// Conditions whose status changed have no transition time: queries read no clock, so the writer sets it.
pub struct StatusOf;

impl Query for StatusOf {
    const NAME: &'static str = "status_of";
    type Key = Origin;
    type Value = Option<Arc<Status>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        if !cluster.settings.flags.get(PILOT_ENABLE_GATEWAY_API) || origin.cluster != cluster.settings.cluster
        {
            return None;
        }
        let status = match origin.key.kind {
            Kind::GatewayClass => class_status(&cluster, &*object(ctx, origin)?)?,
            Kind::KubernetesGateway => gateway_status(&cluster, origin, &*object(ctx, origin)?)?,
            Kind::ListenerSet => listener_set_status(&cluster, origin, &*object(ctx, origin)?)?,
            Kind::HttpRoute | Kind::GrpcRoute | Kind::TcpRoute | Kind::TlsRoute => {
                Status::Route(RouteStatus { parents: ctx.get::<RouteOf>(origin).parents.clone() })
            }
            Kind::UdpRoute => {
                Status::Route(RouteStatus { parents: udp::parents(&cluster, &*object(ctx, origin)?) })
            }
            Kind::BackendTlsPolicy | Kind::BackendTrafficPolicy => {
                Status::Policy(PolicyStatus { ancestors: ctx.get::<PolicyOf>(origin).ancestors.clone() })
            }
            Kind::ExternalBackend => backend_status(ctx, origin),
            Kind::InferencePool if cluster.settings.flags.get(ENABLE_GATEWAY_API_INFERENCE_EXTENSION) => {
                Status::Pool(inference::status(&cluster, origin, &*object(ctx, origin)?))
            }
            _ => return None,
        };
        Some(Arc::new(status))
    }
}

fn class_status(cluster: &ClusterObjects<'_>, class: &GatewayClass) -> Option<Status> {
    Class::made_by(&class.spec.controller_name, &cluster.settings.flags)?;
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", "Handled by Istio controller");
    let mut status = class.status.clone();
    status.conditions = conditions.write(class.meta.generation, &class.status.conditions);
    Some(Status::Class(status))
}

fn backend_status(ctx: &Ctx<'_>, origin: &Origin) -> Status {
    let facts = ctx.get::<PolicyOf>(origin);
    let parents = facts.ancestors.iter().map(|ancestor| RouteParentStatus {
        parent_ref: ancestor.ancestor_ref.clone(),
        controller_name: ancestor.controller_name.clone(),
        conditions: ancestor.conditions.clone(),
    });
    Status::Route(RouteStatus { parents: parents.collect() })
}

fn gateway_status(cluster: &ClusterObjects<'_>, origin: &Origin, gateway: &Gateway) -> Option<Status> {
    let class = Class::named(cluster, &gateway.spec.gateway_class_name)?;
    if class == Class::Remote {
        return Some(Status::Gateway(remote_gateway_status(gateway)));
    }
    let opened = cluster.ctx.get::<ListenersOpenedBy>(origin);
    let opened = opened.as_ref().as_ref()?;
    let is_refused = opened.services.is_empty() && opened.fault.is_some();
    let sets = if is_refused { Vec::new() } else { sets_on(cluster, origin) };
    let servers: Vec<Server> =
        opened.servers.iter().chain(sets.iter().flat_map(|set| &set.servers)).cloned().collect();
    let reach = address::resolve(cluster, &gateway.meta.namespace, &opened.services, &servers);

    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", "Resource accepted");
    conditions.expect("Programmed", "Programmed", "Resource programmed");
    conditions.expect("ResolvedRefs", "ResolvedRefs", "All references resolved");
    let fault = opened.fault.clone().or_else(|| bad_parameters(cluster, gateway));
    accept(&mut conditions, gateway, opened.valid, fault.as_ref());
    if let Some(Err(fault)) = client_certificate::named_by(cluster, gateway) {
        conditions.fail("ResolvedRefs", &fault);
    }
    let mut present = gateway.status.conditions.clone();
    match is_lenient(gateway.spec.tls.as_ref()) {
        Some(true) => conditions.expect(
            INSECURE_FRONTEND,
            "ConfigurationChanged",
            "Gateway is operating in AllowInsecureFallback mode for frontend validation",
        ),
        Some(false) => present.retain(|condition| &*condition.r#type != INSECURE_FRONTEND),
        None => {}
    }
    program(&mut conditions, &opened.services, &reach);

    let mut status = gateway.status.clone();
    if !sets.is_empty() {
        status.attached_listener_sets = i32::try_from(sets.len()).ok();
    }
    let addresses = addresses(gateway, class, &reach);
    if !addresses.is_empty() {
        status.addresses = addresses;
    }
    status.listeners = if is_refused {
        let known = |status: &&ListenerStatus| {
            gateway.spec.listeners.iter().any(|listener| listener.name == status.name)
        };
        gateway.status.listeners.iter().filter(known).cloned().collect()
    } else {
        counted(cluster, &origin.key, &opened.statuses)
    };
    status.conditions = conditions.write(gateway.meta.generation, &present);
    Some(Status::Gateway(status))
}

/// The condition that some port admits clients whose certificate is invalid.
const INSECURE_FRONTEND: &str = "InsecureFrontendValidationMode";

/// The status of a remote gateway repeats the addresses of its spec.
fn remote_gateway_status(gateway: &Gateway) -> GatewayStatus {
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", "Resource accepted");
    conditions.expect("Programmed", "Programmed", "This Gateway is remote; Istio will not program it");
    let addresses = gateway.spec.addresses.iter().map(|address| GatewayStatusAddress {
        r#type: address.r#type.clone(),
        value: address.value.clone().unwrap_or_default(),
    });
    GatewayStatus {
        addresses: addresses.collect(),
        listeners: Vec::new(),
        conditions: conditions.write(gateway.meta.generation, &gateway.status.conditions),
        ..gateway.status.clone()
    }
}

/// The ListenerSets of a gateway that have valid listeners.
fn sets_on(cluster: &ClusterObjects<'_>, gateway: &Origin) -> Vec<OpenedListeners> {
    let sets =
        cluster.referrers(&gateway.key).into_iter().filter(|origin| origin.key.kind == Kind::ListenerSet);
    let opened = sets.filter_map(|origin| cluster.ctx.get::<ListenersOpenedBy>(&origin).as_ref().clone());
    let usable = opened.map(|opened| {
        let servers = opened.listeners.iter().flat_map(|listener| listener.gateway.spec.servers.clone());
        OpenedListeners { servers: servers.collect(), ..opened.as_ref().clone() }
    });
    usable.filter(|opened| !opened.listeners.is_empty()).collect()
}

fn accept(conditions: &mut Conditions, gateway: &Gateway, valid: usize, fault: Option<&Fault>) {
    if let Some(fault) = fault {
        conditions.fail("Accepted", fault);
    } else if valid < gateway.spec.listeners.len() {
        if valid == 0 {
            let message = "None of the Gateway's listeners are valid";
            conditions.fail("Accepted", &Fault::new(reason::LISTENERS_NOT_VALID, message));
        } else {
            let message = "One or more of the Gateway's listeners are invalid";
            conditions.expect("Accepted", reason::LISTENERS_NOT_VALID, message);
        }
    }
}

/// Sets the `Programmed` condition from the addresses of the gateway.
fn program(conditions: &mut Conditions, services: &[String], reach: &GatewayAddresses) {
    let assigned = joined(&reach.internal);
    if !reach.internal.is_empty() {
        let message = format!("Resource programmed, assigned to service(s) {assigned}");
        conditions.expect("Programmed", "Programmed", message);
    }
    if services.is_empty() {
        let message = "Failed to assign to any requested addresses";
        conditions.fail("Programmed", &Fault::new(reason::UNSUPPORTED_ADDRESS, message));
    } else if !reach.warnings.is_empty() {
        let warnings = reach.warnings.join("; ");
        let message = if reach.internal.is_empty() {
            format!("Failed to assign to any requested addresses: {warnings}")
        } else {
            format!(
                "Assigned to service(s) {assigned}, but failed to assign to all requested addresses: {warnings}"
            )
        };
        let reason = if reach.is_usable { reason::ADDRESS_NOT_ASSIGNED } else { reason::ADDRESS_NOT_USABLE };
        conditions.fail("Programmed", &Fault::new(reason, message));
    }
}

/// Joins texts with commas and "and".
fn joined(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [first, second] => format!("{first} and {second}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
    }
}

/// The addresses for the status: external ones if there are any, else those inside of the mesh.
fn addresses(gateway: &Gateway, class: Class, reach: &GatewayAddresses) -> Vec<GatewayStatusAddress> {
    let mut found = reach.external.clone();
    if found.is_empty() {
        let asked = gateway.meta.annotation(annotations::ADDRESS_TYPE.name).map(AddressType::from);
        let wanted = asked.or(class.address_type());
        if wanted != Some(AddressType::Hostname) {
            found.clone_from(&reach.internal_addresses);
        }
        if wanted != Some(AddressType::IpAddress) {
            for host in reach.internal.iter().filter_map(|host| host.rsplit_once(':')).map(|(host, _)| host) {
                if !reach.pending.iter().any(|pending| pending == host)
                    && !found.iter().any(|seen| seen == host)
                {
                    found.push(host.to_owned());
                }
            }
        }
    }
    let address = |value: String| GatewayStatusAddress {
        r#type: if parse_ip(&value).is_ok() { AddressType::IpAddress } else { AddressType::Hostname },
        value: value.into(),
    };
    found.into_iter().map(address).collect()
}

/// Adds the number of attached routes to the statuses of listeners.
fn counted(
    cluster: &ClusterObjects<'_>,
    owner: &ObjectKey,
    statuses: &[ListenerStatus],
) -> Vec<ListenerStatus> {
    let mut counts: BTreeMap<Box<str>, i32> = BTreeMap::new();
    let routes = [Kind::HttpRoute, Kind::GrpcRoute, Kind::TcpRoute, Kind::TlsRoute];
    for origin in cluster.referrers(owner).iter().filter(|origin| routes.contains(&origin.key.kind)) {
        let facts = cluster.ctx.get::<RouteOf>(origin);
        let mut sections: Vec<_> = facts
            .attached
            .iter()
            .filter(|(key, _)| key == owner)
            .map(|(_, section)| section.clone())
            .collect();
        // A route counts once, however often it refers to a listener.
        sections.sort();
        sections.dedup();
        for section in sections {
            *counts.entry(section).or_default() += 1;
        }
    }
    let count = |status: &ListenerStatus| ListenerStatus {
        attached_routes: counts.get(&status.name).copied().unwrap_or_default(),
        ..status.clone()
    };
    statuses.iter().map(count).collect()
}

/// Whether some port admits clients whose certificate is invalid; `None` if clients are not validated.
fn is_lenient(tls: Option<&GatewayTls>) -> Option<bool> {
    let GatewayFrontendTls { default, per_port } = tls?.frontend.as_ref()?;
    let mut all = std::iter::once(default).chain(per_port.iter().map(|port| &port.tls));
    Some(all.any(|tls| {
        let mode = tls.validation.as_ref().map(|validation| &validation.mode);
        mode == Some(&FrontendValidationMode::AllowInsecureFallback)
    }))
}

fn bad_parameters(cluster: &ClusterObjects<'_>, gateway: &Gateway) -> Option<Fault> {
    let parameters = gateway.spec.infrastructure.as_ref()?.parameters_ref.as_ref()?;
    let namespace = &gateway.meta.namespace;
    let message = if referenced_kind(&parameters.group, &parameters.kind) != Some(Kind::ConfigMap) {
        format!(
            "Unsupported parametersRef group/kind {}/{}, only ConfigMap is supported",
            parameters.group, parameters.kind
        )
    } else if !cluster.exists(Kind::ConfigMap, namespace, &parameters.name) {
        format!("parametersRef ConfigMap {namespace}/{} does not exist", parameters.name)
    } else {
        return None;
    };
    Some(Fault::new(reason::INVALID_PARAMETERS, message))
}

fn listener_set_status(cluster: &ClusterObjects<'_>, origin: &Origin, set: &ListenerSet) -> Option<Status> {
    let gateway = parent_gateway(cluster, set)?;
    let class = Class::named(cluster, &gateway.spec.gateway_class_name)?;
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", "Resource accepted");
    conditions.expect("Programmed", "Programmed", "Resource programmed");
    let written = |conditions: &Conditions, listeners| {
        let conditions = conditions.write(set.meta.generation, &set.status.conditions);
        Some(Status::ListenerSet(ListenerSetStatus { conditions, listeners }))
    };
    let refusal = if !class.takes_listener_sets() {
        let class = &gateway.spec.gateway_class_name;
        Some(format!("The {class:?} GatewayClass does not support ListenerSet"))
    } else if !conflict::allows(cluster, &gateway, &set.meta.namespace) {
        let message = "The parent Gateway does not allow this reference; check the 'spec.allowedRoutes'";
        Some(message.to_owned())
    } else {
        None
    };
    if let Some(message) = refusal {
        let fault = Fault::new(reason::NOT_ALLOWED, message);
        conditions.fail("Accepted", &fault);
        conditions.fail("Programmed", &fault);
        return written(&conditions, Vec::new());
    }
    let opened = cluster.ctx.get::<ListenersOpenedBy>(origin);
    let opened = opened.as_ref().as_ref()?;
    let is_refused = opened.services.is_empty() && opened.fault.is_some();
    let reach = address::resolve(cluster, &gateway.meta.namespace, &opened.services, &opened.servers);
    let none_valid = (opened.valid == 0 && !is_refused)
        .then(|| Fault::new(reason::LISTENERS_NOT_VALID, "None of the ListenerSet's listeners are valid"));
    if let Some(fault) = &opened.fault {
        let message = format!("Parent not accepted: {}", fault.message);
        conditions.fail("Accepted", &Fault::new(fault.reason, message));
    } else if let Some(fault) = &none_valid {
        conditions.fail("Accepted", fault);
    }
    program(&mut conditions, &opened.services, &reach);
    if let Some(fault) = &none_valid {
        conditions.fail("Programmed", fault);
    }
    written(&conditions, counted(cluster, &origin.key, &opened.statuses))
}
