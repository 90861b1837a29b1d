//! Gateways and ListenerSets: each listener becomes a derived Gateway that routes are bound to.

use std::sync::Arc;

use canopus_api::gateway_api::{AddressType, Gateway, Listener, ListenerSet, ListenerStatus, RouteGroupKind};
use canopus_api::{Kind, Meta, ObjectKey, annotations, istio};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::{Gateway as GatewaySpec, Server};
use canopus_runtime::flags::PILOT_ENABLE_GATEWAY_API;

use super::GENERATED;
use super::class::{Class, is_managed};
use super::cluster_objects::ClusterObjects;
use super::conflict::{self, Conflicts};
use super::fault::{Fault, reason};
use super::listener::{self, Owner};
use crate::world::{ObjectIndex, Objects, Origin};

/// A listener, or the mesh, as a parent of routes.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteParent {
    /// `namespace/name` of the derived Gateway, or `mesh`.
    pub internal_name: Arc<str>,
    /// The kinds of routes it allows.
    pub kinds: Vec<RouteGroupKind>,
    /// The allowed hosts, each as `namespace/host` with the namespace that routes must be in.
    pub hosts: Vec<String>,
    /// The host of the listener; empty for all.
    pub hostname: Box<str>,
    /// The name of the listener.
    pub section: Box<str>,
    /// Port of the listener.
    pub port: u16,
    /// Protocol of the listener.
    pub protocol: Box<str>,
}

/// A listener that routes can attach to.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachableListener {
    /// The parent that routes refer to.
    pub parent: RouteParent,
    /// The derived Gateway.
    pub gateway: Arc<istio::Gateway>,
    /// Whether the derived Gateway is served. An invalid one is kept so that route statuses can refer to it.
    pub is_valid: bool,
}

/// The listeners of a Gateway or ListenerSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenedListeners {
    /// The hosts of the Services whose proxies run the gateway.
    pub services: Vec<String>,
    /// The listeners that routes can attach to.
    pub listeners: Vec<AttachableListener>,
    /// Every server, whether or not routes can attach to it.
    pub servers: Vec<Server>,
    /// The status of each listener, without the number of attached routes.
    pub statuses: Vec<ListenerStatus>,
    /// The number of valid listeners.
    pub valid: usize,
    /// The fault that concerns the whole object.
    pub fault: Option<Fault>,
}

/// The listeners of a Gateway or ListenerSet; `None` if another controller handles it.
pub struct ListenersOpenedBy;

impl Query for ListenersOpenedBy {
    const NAME: &'static str = "listeners_opened_by";
    /// The Gateway or ListenerSet.
    type Key = Origin;
    type Value = Option<Arc<OpenedListeners>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        let opened = match origin.key.kind {
            Kind::KubernetesGateway => {
                by_gateway(&cluster, &*cluster.object(origin.namespace(), origin.name())?)?
            }
            Kind::ListenerSet => by_set(&cluster, &*cluster.object(origin.namespace(), origin.name())?)?,
            _ => return None,
        };
        Some(Arc::new(opened))
    }
}

/// The Gateways derived from listeners.
pub(crate) fn gateways(ctx: &Ctx<'_>) -> Vec<Arc<istio::Gateway>> {
    let cluster = ClusterObjects::new(ctx);
    if !cluster.settings.flags.get(PILOT_ENABLE_GATEWAY_API) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for kind in [Kind::KubernetesGateway, Kind::ListenerSet] {
        for origin in ctx.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
            if origin.cluster != cluster.settings.cluster {
                continue;
            }
            let opened = ctx.get::<ListenersOpenedBy>(origin);
            let listeners = opened.iter().flat_map(|opened| &opened.listeners);
            found.extend(
                listeners.filter(|listener| listener.is_valid).map(|listener| listener.gateway.clone()),
            );
        }
    }
    found
}

fn by_gateway(cluster: &ClusterObjects<'_>, gateway: &Gateway) -> Option<OpenedListeners> {
    let class = Class::named(cluster, &gateway.spec.gateway_class_name)?;
    if class == Class::Remote {
        return None;
    }
    let (services, fault) = services(cluster, gateway, class);
    if services.is_empty() && fault.is_some() {
        return Some(OpenedListeners { fault, ..Default::default() });
    }
    let opener = Opener {
        cluster,
        owner: Owner { kind: Kind::KubernetesGateway, meta: &gateway.meta },
        gateway,
        class,
        services: &services,
    };
    let opened = opener.open(&gateway.spec.listeners, &gateway.status.listeners);
    Some(OpenedListeners { fault, ..opened })
}

fn by_set(cluster: &ClusterObjects<'_>, set: &ListenerSet) -> Option<OpenedListeners> {
    let gateway = parent_gateway(cluster, set)?;
    let class = Class::named(cluster, &gateway.spec.gateway_class_name)?;
    if !class.takes_listener_sets() || !conflict::allows(cluster, &gateway, &set.meta.namespace) {
        return None;
    }
    let (services, fault) = services(cluster, &gateway, class);
    if services.is_empty() && fault.is_some() {
        return Some(OpenedListeners { fault, ..Default::default() });
    }
    let opener = Opener {
        cluster,
        owner: Owner { kind: Kind::ListenerSet, meta: &set.meta },
        gateway: &gateway,
        class,
        services: &services,
    };
    let mut opened = opener.open(&set.spec.listeners, &set.status.listeners);
    opened.listeners.retain(|listener| listener.is_valid);
    Some(OpenedListeners { fault, ..opened })
}

/// The Gateway that a ListenerSet is attached to.
pub(super) fn parent_gateway(cluster: &ClusterObjects<'_>, set: &ListenerSet) -> Option<Arc<Gateway>> {
    let parent = &set.spec.parent_ref;
    if crate::reference::gateway_api::referenced_kind(&parent.group, &parent.kind)
        != Some(Kind::KubernetesGateway)
    {
        return None;
    }
    cluster.object::<Gateway>(parent.namespace.as_deref().unwrap_or(&set.meta.namespace), &parent.name)
}

/// The hosts of the Services whose proxies run a gateway, and the fault of its addresses.
fn services(cluster: &ClusterObjects<'_>, gateway: &Gateway, class: Class) -> (Vec<String>, Option<Fault>) {
    if is_managed(cluster, &gateway.spec) {
        return (vec![class.managed_service(cluster, gateway)], None);
    }
    let (mut services, mut skipped) = (Vec::new(), Vec::new());
    for address in &gateway.spec.addresses {
        let value = address.value.as_deref().unwrap_or_default();
        if address.r#type != AddressType::Hostname {
            skipped.push(value);
        } else if value.contains('.') {
            services.push(value.to_owned());
        } else {
            services.push(cluster.service_host(value, &gateway.meta.namespace));
        }
    }
    let fault = if !skipped.is_empty() {
        let message = format!("only Hostname is supported, ignoring [{}]", skipped.join(" "));
        Some(Fault::new(reason::UNSUPPORTED_ADDRESS, message))
    } else if gateway.meta.annotation(annotations::SERVICE_TYPE.name).is_some() {
        let message = format!(
            "annotation {} is deprecated, use Spec.Infrastructure.Routeability",
            annotations::SERVICE_TYPE.name
        );
        Some(Fault::new(reason::DEPRECATED_FIELD, message))
    } else {
        None
    };
    (services, fault)
}

/// Converts the listeners of one object.
struct Opener<'a> {
    cluster: &'a ClusterObjects<'a>,
    owner: Owner<'a>,
    /// The Gateway that the listeners belong to: the object itself, or the parent of the ListenerSet.
    gateway: &'a Gateway,
    class: Class,
    services: &'a [String],
}

impl Opener<'_> {
    fn open(&self, listeners: &[Listener], present: &[ListenerStatus]) -> OpenedListeners {
        let conflicts = match self.class {
            Class::Gateway => conflict::conflicts(self.cluster, self.gateway),
            _ => Conflicts::new(),
        };
        let generation = self.owner.meta.generation;
        let mut opened = OpenedListeners { services: self.services.to_vec(), ..Default::default() };
        for (position, listener) in listeners.iter().enumerate() {
            let meta = self.owner.meta;
            let key = (self.owner.kind, meta.namespace.clone(), meta.name.clone(), listener.name.clone());
            let present = present.get(position);
            if let Some(why) = conflicts.get(&key) {
                let conditions = listener::conflicted(why);
                opened.statuses.push(listener::status(listener, conditions, generation, present));
                continue;
            }
            let built = listener::build(self.cluster, self.owner, &self.gateway.spec, listener, self.class);
            opened.statuses.push(listener::status(listener, built.conditions, generation, present));
            opened.valid += usize::from(built.is_valid);
            let Some(server) = built.server else { continue };
            opened.servers.push(server.clone());
            if self.class.routes_on(listener.port) {
                opened.listeners.push(self.attachable(listener, server, built.is_valid));
            }
        }
        opened
    }

    fn attachable(&self, listener: &Listener, server: Server, is_valid: bool) -> AttachableListener {
        let meta = self.owner.meta;
        let name = format!("{}~{GENERATED}~{}", meta.name, listener.name);
        let parent = RouteParent {
            internal_name: format!("{}/{name}", meta.namespace).into(),
            kinds: listener::supported_kinds(listener).0,
            hosts: server.hosts.clone(),
            hostname: listener.hostname.clone().unwrap_or_default(),
            section: listener.name.clone(),
            port: server.port.as_ref().map_or(0, |port| u16::try_from(port.number).unwrap_or_default()),
            protocol: listener.protocol.clone(),
        };
        let spec = GatewaySpec { servers: vec![server], ..Default::default() };
        let meta = Meta {
            creation_timestamp: meta.creation_timestamp,
            annotations: self.annotations(listener).into_iter().collect(),
            ..Meta::new(&meta.namespace, &name)
        };
        let gateway = Arc::new(istio::Gateway { meta, spec, status: Default::default() });
        AttachableListener { parent, gateway, is_valid }
    }

    fn annotations(&self, listener: &Listener) -> Vec<(String, String)> {
        let meta = self.owner.meta;
        let kind = self.owner.kind.info().kind;
        let account = self.class.service_account(self.cluster, self.gateway);
        let parents = format!("{kind}/{}/{}.{}", meta.name, listener.name, meta.namespace);
        let mut annotations = vec![
            (annotations::INTERNAL_PARENTS.name.to_owned(), parents),
            (annotations::INTERNAL_GATEWAY_SEMANTICS.name.to_owned(), "gateway".to_owned()),
            (annotations::INTERNAL_GATEWAY_SERVICE.name.to_owned(), self.services.join(",")),
            (annotations::INTERNAL_SERVICE_ACCOUNT_NAME.name.to_owned(), account),
        ];
        if self.owner.kind == Kind::ListenerSet {
            let of_gateway = self.gateway.meta.namespace.to_string();
            annotations.push((annotations::INTERNAL_PARENT_NAMESPACE.name.to_owned(), of_gateway));
        }
        annotations
    }
}

/// The listeners of a Gateway or ListenerSet that routes can attach to.
pub(super) fn parents(cluster: &ClusterObjects<'_>, key: &ObjectKey) -> Vec<RouteParent> {
    let opened =
        cluster.ctx.get::<ListenersOpenedBy>(&Origin::new(cluster.settings.cluster.clone(), key.clone()));
    let listeners = opened.iter().flat_map(|opened| &opened.listeners);
    listeners.map(|listener| listener.parent.clone()).collect()
}
