//! Services by namespace and by host. A changed service re-runs the queries of its namespace and host only.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_ENABLE_IP_AUTOALLOCATE;

use super::allocation::{self, Allocated};
use super::{Exposure, KubernetesService, Service, ServiceKey, ServicesOf, exposure, kube};
use crate::world::{MeshSettings, ObjectIndex, Objects, Origin, settings};

/// Sorts services as Istio does wherever the older one wins: by age, then name, then namespace.
pub(crate) fn oldest_first(services: &mut [Arc<Service>]) {
    services.sort_by(|a, b| (a.created, &a.name, &a.namespace).cmp(&(b.created, &b.name, &b.namespace)));
}

/// Facts that a service gets from other services: its `ExternalName` aliases, and an allocated address.
pub(super) struct CrossServiceFacts {
    aliases: Arc<BTreeMap<Arc<str>, Vec<ServiceKey>>>,
    allocated: Option<Arc<Allocated>>,
}

impl CrossServiceFacts {
    pub(super) fn load(ctx: &Ctx<'_>) -> Self {
        let settings = settings(ctx);
        let in_status = settings.flags.get(PILOT_ENABLE_IP_AUTOALLOCATE) && settings.stores_statuses;
        Self {
            aliases: ctx.get::<Aliases>(&()),
            allocated: (!in_status).then(|| ctx.get::<Allocations>(&())),
        }
    }

    pub(super) fn apply_to(&self, mut service: Arc<Service>) -> Arc<Service> {
        if let Some(aliases) = self.aliases.get(&service.host) {
            Arc::make_mut(&mut service).aliases.clone_from(aliases);
        }
        match &self.allocated {
            Some(allocated) => allocation::give(allocated, service),
            None => service,
        }
    }
}

/// The `ExternalName` aliases of each host.
struct Aliases;

impl Query for Aliases {
    const NAME: &'static str = "service_aliases";
    type Key = ();
    type Value = BTreeMap<Arc<str>, Vec<ServiceKey>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let origins = ctx.members::<Objects>(&ObjectIndex::ExternalNames);
        let services: Vec<_> = origins
            .iter()
            .map(|origin| (origin.namespace().into(), origin.name().into()))
            .filter_map(|key| ctx.get::<KubernetesService>(&key).as_ref().clone())
            .collect();
        kube::aliases(&services)
    }
}

/// Addresses allocated from host names, for meshes in which no controller writes them into the status of ServiceEntries.
struct Allocations;

impl Query for Allocations {
    const NAME: &'static str = "address_allocations";
    type Key = ();
    type Value = Allocated;

    fn run(ctx: &Ctx<'_>, (): &()) -> Allocated {
        let entries = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::ServiceEntry));
        let mut services: Vec<_> =
            entries.iter().flat_map(|origin| ctx.get::<ServicesOf>(origin).to_vec()).collect();
        oldest_first(&mut services);
        allocation::allocate(&services)
    }
}

/// The services of a namespace, oldest first.
pub struct ServicesIn;

impl Query for ServicesIn {
    const NAME: &'static str = "services_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let additions = CrossServiceFacts::load(ctx);
        let service = |name| ctx.get::<KubernetesService>(&(namespace.clone(), name)).as_ref().clone();
        let kube = kubernetes_names_in(ctx, namespace).into_iter().filter_map(service);
        let entries = entries_in(ctx, namespace);
        let entries = entries.iter().flat_map(|origin| ctx.get::<ServicesOf>(origin).to_vec());
        let mut services: Vec<_> = kube.chain(entries).map(|service| additions.apply_to(service)).collect();
        oldest_first(&mut services);
        services
    }
}

/// The names of the Kubernetes services of a namespace, sorted.
pub(super) fn kubernetes_names_in(ctx: &Ctx<'_>, namespace: &str) -> Vec<Arc<str>> {
    let origins = ctx.members::<Objects>(&ObjectIndex::Namespace(Kind::Service, namespace.into()));
    let mut names: Vec<&str> = origins.iter().map(Origin::name).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(Arc::from).collect()
}

/// The ServiceEntries of a namespace.
pub(super) fn entries_in(ctx: &Ctx<'_>, namespace: &str) -> Arc<[Origin]> {
    ctx.members::<Objects>(&ObjectIndex::Namespace(Kind::ServiceEntry, namespace.into()))
}

/// The services of some namespaces, oldest first.
fn services_in_namespaces<'a>(
    ctx: &Ctx<'_>,
    namespaces: impl IntoIterator<Item = &'a Arc<str>>,
) -> Vec<Arc<Service>> {
    let mut services = Vec::new();
    for namespace in namespaces {
        services.extend_from_slice(&ctx.get::<ServicesIn>(namespace));
    }
    oldest_first(&mut services);
    services
}

/// The services of a host, by namespace.
///
/// Of several in a namespace the oldest wins, but a Kubernetes Service wins over ServiceEntries.
pub struct ServicesByHost;

impl Query for ServicesByHost {
    const NAME: &'static str = "services_by_host";
    type Key = Arc<str>;
    type Value = BTreeMap<Arc<str>, Arc<Service>>;

    fn run(ctx: &Ctx<'_>, host: &Arc<str>) -> Self::Value {
        let mut by_namespace = Self::Value::new();
        for service in ctx.get::<HostDefinitions>(host).iter() {
            let present = by_namespace.get(&service.namespace);
            if present.is_none_or(|present| !present.is_kubernetes() && service.is_kubernetes()) {
                by_namespace.insert(service.namespace.clone(), service.clone());
            }
        }
        by_namespace
    }
}

/// Every definition of a host, oldest first.
pub(crate) struct HostDefinitions;

impl Query for HostDefinitions {
    const NAME: &'static str = "definitions_of_host";
    type Key = Arc<str>;
    type Value = Vec<Arc<Service>>;

    fn run(ctx: &Ctx<'_>, host: &Arc<str>) -> Self::Value {
        let kubernetes = kubernetes_name(&settings(ctx), host)
            .and_then(|key| ctx.get::<KubernetesService>(&key).as_ref().clone());
        let entries = ctx.members::<Objects>(&ObjectIndex::ServiceEntryHost(host.as_ref().into()));
        let entries = entries.iter().flat_map(|origin| ctx.get::<ServicesOf>(origin).to_vec());
        let entries = entries.filter(|service| service.host == *host);
        let mut services: Vec<_> = kubernetes.into_iter().chain(entries).collect();
        if services.is_empty() {
            return services;
        }
        let additions = CrossServiceFacts::load(ctx);
        services = services.into_iter().map(|service| additions.apply_to(service)).collect();
        oldest_first(&mut services);
        services
    }
}

/// Splits the host of a Kubernetes service into namespace and name.
fn kubernetes_name(settings: &MeshSettings, host: &str) -> Option<(Arc<str>, Arc<str>)> {
    let qualified = host.strip_suffix(&*settings.domain)?.strip_suffix(".svc.")?;
    let (name, namespace) = qualified.rsplit_once('.')?;
    Some((namespace.into(), name.into()))
}

/// The services of some namespaces that another namespace may see, in the order of [`ServicesVisibleTo`](super::ServicesVisibleTo).
pub(crate) fn visible_in(ctx: &Ctx<'_>, namespace: &str, owners: &[Arc<str>]) -> Vec<Arc<Service>> {
    visible(&settings(ctx), &services_in_namespaces(ctx, owners), namespace)
}

fn visible(settings: &MeshSettings, services: &[Arc<Service>], namespace: &str) -> Vec<Arc<Service>> {
    let mut exported = Vec::new();
    let mut public = Vec::with_capacity(services.len());
    for service in services {
        match exposure(settings, service, namespace) {
            Exposure::Public => public.push(service.clone()),
            Exposure::Exported => exported.push(service.clone()),
            Exposure::Hidden => {}
        }
    }
    if exported.is_empty() {
        return public;
    }
    exported.extend(public);
    exported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_a_kubernetes_service_says_its_namespace_and_name() {
        let settings = MeshSettings::default();
        let named = |host: &str| {
            kubernetes_name(&settings, host).map(|(namespace, name)| format!("{namespace}/{name}"))
        };
        assert_eq!(named("a.ns.svc.cluster.local").as_deref(), Some("ns/a"));
        assert_eq!(named("a.b.ns.svc.cluster.local").as_deref(), Some("ns/a.b"));
        for foreign in ["a.com", "ns.svc.cluster.local", "a.ns.svc.other.net", "", "svc.cluster.local"] {
            assert_eq!(named(foreign), None, "{foreign}");
        }
    }
}
