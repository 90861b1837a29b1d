//! The scope and policies of one proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::istio::{Gateway, ProxyConfig};
use canopus_api::node::NodeKind;
use canopus_api::{Kind, labels as known};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query, QueryError, Snapshot};
use serde::Serialize;

use super::DumpSelection;
use super::provenance::{ObjectRef, objects};
use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::audience::{Caller, SelectorLabels, View};
use crate::authorization::PoliciesOf;
use crate::destination_rule::outbound_rule;
use crate::envoy_filter::EnvoyFilters;
use crate::extension::Extensions;
use crate::gateway::MergedGateways;
use crate::list::List;
use crate::peer_authentication::{self, MutualTls, WorkloadPolicy};
use crate::proxy::Proxy;
use crate::proxy_workload::DescriptionOf;
use crate::scope::{Scope, scope};
use crate::service::{Service, ServiceKey};
use crate::virtual_service::{ResolvedVirtualService, VirtualService, for_gateway};
use crate::world::{ObjectIndex, Origin, all_objects, indexed_objects, settings};
use crate::{request_authentication, telemetry};

/// The scope and policies of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyFacts {
    /// Node ID of the proxy.
    pub id: String,
    /// The namespace whose configuration applies.
    pub namespace: Arc<str>,
    /// The labels of its workload.
    pub labels: Labels,
    /// The scope.
    pub scope: SidecarScope,
    /// The policies.
    pub policies: WorkloadPolicies,
}

/// What a proxy sees.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarScope {
    /// The Sidecar that narrows the scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<ObjectRef>,
    /// Whether traffic for hosts outside of the scope is let through.
    pub allows_any: bool,
    /// The hosts.
    pub hosts: Vec<Arc<str>>,
    /// The Gateways it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<ObjectRef>,
    /// The VirtualServices, those that take precedence first.
    pub virtual_services: Vec<BoundRoutes>,
    /// The DestinationRules, by host.
    pub destination_rules: Vec<HostRules>,
}

/// A VirtualService with its delegates.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundRoutes {
    /// The object.
    pub object: ObjectRef,
    /// Hosts of the VirtualService.
    pub hosts: Vec<String>,
    /// Gateways of the VirtualService.
    pub gateways: Vec<String>,
    /// Every object it was resolved from, including delegates.
    pub objects: BTreeSet<ObjectRef>,
}

/// The rule for connections to a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRules {
    /// The host.
    pub host: Arc<str>,
    /// The merged objects, the first one first.
    pub objects: Vec<ObjectRef>,
}

/// The policies of a proxy: the effective mutual TLS mode, and the objects that apply by kind, those that take precedence first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPolicies {
    /// The mode of mutual TLS on ports that are not listed.
    pub mutual_tls: &'static str,
    /// The modes of single ports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mutual_tls_ports: BTreeMap<u32, &'static str>,
    /// The objects by kind; every kind is listed.
    pub objects: BTreeMap<&'static str, Vec<ObjectRef>>,
}

/// The scope of a proxy with the objects behind it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProxyView {
    scope: Arc<Scope>,
    sidecar: Option<Origin>,
    gateways: Vec<Origin>,
    virtual_services: Vec<Arc<VirtualService>>,
    rules: Vec<(Arc<str>, Vec<Origin>)>,
}

impl ProxyView {
    /// The services in scope.
    pub(super) fn services(&self) -> &List<Service> {
        self.scope.services()
    }
}

/// What a proxy sees.
struct ProxyViewOf;

impl Query for ProxyViewOf {
    const NAME: &'static str = "proxy_view";
    type Key = Proxy;
    type Value = ProxyView;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> ProxyView {
        let view = &View::new(ctx, proxy);
        let caller = Caller::new(ctx, view);
        let scope = scope(ctx, &caller.scope);
        let gateways = if proxy.is_gateway() { gateways(ctx, view) } else { Vec::new() };
        let virtual_services = match gateways.is_empty() {
            true => scope.listeners.iter().flat_map(|listener| listener.virtual_services.to_vec()).collect(),
            false => gateways
                .iter()
                .flat_map(|(name, _)| for_gateway(ctx, &view.namespace, name).to_vec())
                .collect(),
        };
        let rule = |service: &Arc<Service>| {
            let key: ServiceKey = service.key();
            Some((service.host.clone(), outbound_rule(ctx, &caller, &key)?.from.clone()))
        };
        ProxyView {
            rules: scope.services().iter().filter_map(rule).collect(),
            sidecar: caller.scope.sidecar().cloned(),
            gateways: gateways.into_iter().flat_map(|(_, origins)| origins).collect(),
            virtual_services: each_once(virtual_services),
            scope,
        }
    }
}

/// The Gateways a proxy runs: `namespace/name`, and the objects of that name.
fn gateways(ctx: &Ctx<'_>, view: &View) -> Vec<(Arc<str>, Vec<Origin>)> {
    let names = ctx.get::<MergedGateways>(&view.gateway_runner(ctx)).gateway_names();
    let objects = all_objects::<Gateway>(ctx);
    let of_name = |name: Arc<str>| {
        let is_named = |origin: &&Origin| *name == format!("{}/{}", origin.namespace(), origin.name());
        let origins = objects.iter().map(|(origin, _)| origin).filter(is_named).cloned().collect();
        (name, origins)
    };
    names.into_iter().map(of_name).collect()
}

/// Drops duplicates: several listeners may import the same VirtualService.
fn each_once(all: Vec<Arc<VirtualService>>) -> Vec<Arc<VirtualService>> {
    let mut known = BTreeSet::new();
    all.into_iter().filter(|one| known.insert(one.origin.clone())).collect()
}

/// The policy objects that apply to a proxy, those that take precedence first.
struct PoliciesFor;

impl Query for PoliciesFor {
    const NAME: &'static str = "policies_for";
    type Key = Proxy;
    type Value = Vec<Origin>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        let view = &View::new(ctx, proxy);
        let target = whole_target(view);
        let access = ctx.get::<PoliciesOf>(&target);
        let access = [&access.custom, &access.deny, &access.allow, &access.audit].into_iter().flatten();
        let mut found = peer_authentication::deciding_policies(ctx, &view.namespace, &target.labels);
        found.extend(
            request_authentication::selected_policies(ctx, &target).into_iter().map(|(origin, _)| origin),
        );
        found.extend(access.map(|policy| policy.origin.clone()));
        found.extend(telemetry::selected_telemetry(ctx, &target, None).into_iter().map(|(origin, _)| origin));
        found.extend(ctx.get::<EnvoyFilters>(&target).iter().map(|(origin, _)| origin.clone()));
        let extensions = ctx.get::<Extensions>(&(target.clone(), None));
        found.extend(extensions.values().flatten().map(|extension| extension.origin.clone()));
        found.extend(proxy_configs(ctx, &target));
        found.extend(Caller::new(ctx, view).scope.sidecar().cloned());
        found
    }
}

/// The policy target of a proxy with all labels, to match policies of every kind.
fn whole_target(view: &View) -> PolicyTarget {
    PolicyTarget {
        namespace: view.namespace.clone(),
        gateway: view.labels.get(known::GATEWAY_NAME.name).map(Arc::from),
        labels: SelectorLabels::unreduced(&view.labels),
        is_waypoint: view.role.kind == NodeKind::Waypoint,
        service: None,
    }
}

/// The ProxyConfigs of the mesh, the namespace and the workload.
fn proxy_configs(ctx: &Ctx<'_>, target: &PolicyTarget) -> Vec<Origin> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let subject = target.subject(ctx);
    let mut namespaces = vec![root];
    namespaces.extend((*target.namespace != *root).then_some(&*target.namespace));
    let in_namespace = |namespace: &str| {
        indexed_objects::<ProxyConfig>(ctx, &ObjectIndex::Namespace(Kind::ProxyConfig, namespace.into()))
    };
    let all = namespaces.into_iter().flat_map(in_namespace);
    let is_meant = |(origin, object): &(Origin, Arc<ProxyConfig>)| {
        let selector = object.spec.selector.as_ref().map(|selector| &selector.match_labels);
        subject.is_targeted_by(&PolicyAttachment { namespace: origin.namespace(), selector, targets: &[] })
    };
    all.filter(is_meant).map(|(origin, _)| origin).collect()
}

/// The kinds of [`PoliciesFor`].
const KINDS: [Kind; 9] = [
    Kind::PeerAuthentication,
    Kind::RequestAuthentication,
    Kind::AuthorizationPolicy,
    Kind::Telemetry,
    Kind::EnvoyFilter,
    Kind::WasmPlugin,
    Kind::TrafficExtension,
    Kind::ProxyConfig,
    Kind::Sidecar,
];

/// What a proxy sees.
pub(super) fn proxy_view(world: &Snapshot, proxy: &Proxy) -> Result<Arc<ProxyView>, QueryError> {
    world.get::<ProxyViewOf>(proxy)
}

/// The facts about a proxy.
pub(super) fn facts(
    world: &Snapshot,
    proxy: &Proxy,
    view: &ProxyView,
    selection: &DumpSelection,
) -> Result<ProxyFacts, QueryError> {
    let described = world.get::<DescriptionOf>(proxy)?;
    let hosts: BTreeSet<&str> = view
        .services()
        .iter()
        .filter(|service| selection.has(service))
        .map(|service| &*service.host)
        .collect();
    let virtual_services = view.virtual_services.iter().map(|routes| BoundRoutes {
        object: (&routes.origin).into(),
        hosts: routes.spec.hosts.clone(),
        gateways: routes.gateways().map(str::to_owned).collect(),
        objects: objects::<ResolvedVirtualService>(world, &routes.origin),
    });
    let rules = view.rules.iter().filter(|(host, _)| hosts.contains(&**host));
    let rules = rules.map(|(host, from)| HostRules {
        host: host.clone(),
        objects: from.iter().map(ObjectRef::from).collect(),
    });
    let scope = SidecarScope {
        sidecar: view.sidecar.as_ref().map(ObjectRef::from),
        allows_any: view.scope.allows_any(),
        hosts: hosts.iter().map(|host| Arc::from(*host)).collect(),
        gateways: view.gateways.iter().map(ObjectRef::from).collect(),
        virtual_services: virtual_services.collect(),
        destination_rules: rules.collect(),
    };
    Ok(ProxyFacts {
        id: proxy.node_id.clone(),
        namespace: proxy.namespace().into(),
        labels: described.labels.clone(),
        scope,
        policies: policies(world, proxy, &described.labels)?,
    })
}

fn policies(world: &Snapshot, proxy: &Proxy, labels: &Labels) -> Result<WorkloadPolicies, QueryError> {
    let peers =
        world.get::<WorkloadPolicy>(&(proxy.namespace().into(), SelectorLabels::unreduced(labels)))?;
    let mut objects: BTreeMap<_, Vec<ObjectRef>> =
        KINDS.into_iter().map(|kind| (kind.info().kind, Vec::new())).collect();
    for origin in world.get::<PoliciesFor>(proxy)?.iter() {
        objects.entry(origin.key.kind.info().kind).or_default().push(origin.into());
    }
    Ok(WorkloadPolicies {
        mutual_tls: mode(peers.mode),
        mutual_tls_ports: peers.ports.iter().map(|(port, of_port)| (*port, mode(*of_port))).collect(),
        objects,
    })
}

fn mode(mode: MutualTls) -> &'static str {
    match mode {
        MutualTls::Disable => "DISABLE",
        MutualTls::Permissive => "PERMISSIVE",
        MutualTls::Strict => "STRICT",
    }
}
