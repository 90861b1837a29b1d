//! What goes wrong for those who are connected, counted each time it begins.
//!
//! Istio counts such things whenever it generates, so that its counters rise with every push. Here what goes on for the same
//! proxy counts once. It is noticed when somebody asks, so nothing of this is on the push path.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::credential::{Credential, Source};
use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query, QueryError, Snapshot};
use canopus_envoy::audience::{Audiences, AudiencesOf};
use canopus_envoy::lost_servers::LostServers;
use canopus_envoy::secret::Secrets;
use canopus_mesh::credential::{SecretAccess, account};
use canopus_mesh::gateway::MergedGateways;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::proxy_workload::{entry_of_proxy, pod_of_proxy};
use canopus_mesh::service::Registry as Definer;
use canopus_mesh::target::Targets;
use canopus_runtime::metrics::catalogue::{
    PILOT_K8S_PROXIES_WITH_NO_SERVICE_TARGETS, PILOT_SDS_CERTIFICATE_ERRORS_TOTAL,
    PILOT_TOTAL_REJECTED_CONFIGS, PROVIDER_LOOKUP_CLUSTER_FAILURES,
};
use canopus_runtime::metrics::{Counter, Family, Registry};
use canopus_xds::types;
use parking_lot::Mutex;

use super::certificate;
use super::clients::names;
use crate::push::{Connection, ConnectionId};

/// Counts what goes wrong.
pub(super) struct Mishaps {
    rejected: Family<Counter, 2>,
    lost: Family<Counter, 1>,
    idle: Family<Counter, 1>,
    certificates: Family<Counter, 0>,
    /// The counts at the last scrape.
    known: Mutex<BTreeSet<(ConnectionId, Mishap)>>,
}

/// A fault that concerns one proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mishap {
    /// A server of a Gateway, by its position, is left out.
    Rejected { gateway: Arc<str>, server: usize },
    /// A server that is there for this is no service of the mesh.
    Lost(&'static str),
    /// The proxy's workload belongs to no Kubernetes Service, for this reason.
    Idle(&'static str),
    /// A certificate is not there, or not for this proxy, or cannot be used.
    Certificate(Arc<str>),
}

impl Mishaps {
    /// Counts in this registry.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            rejected: registry.family(PILOT_TOTAL_REJECTED_CONFIGS),
            lost: registry.family(PROVIDER_LOOKUP_CLUSTER_FAILURES),
            idle: registry.family(PILOT_K8S_PROXIES_WITH_NO_SERVICE_TARGETS),
            certificates: registry.family(PILOT_SDS_CERTIFICATE_ERRORS_TOTAL),
            known: Mutex::default(),
        }
    }

    /// Looks at every connection, and counts what did not go wrong before.
    pub(super) fn look(&self, world: &Snapshot, connections: &[Arc<Connection>]) {
        let mut found = BTreeSet::new();
        for connection in connections {
            // A query that fails is reported where proxies need its result.
            let mishaps = mishaps(world, connection).unwrap_or_default();
            found.extend(mishaps.into_iter().map(|mishap| (connection.id, mishap)));
        }
        let mut known = self.known.lock();
        for (_, mishap) in found.difference(&known) {
            self.count(mishap);
        }
        *known = found;
    }

    fn count(&self, mishap: &Mishap) {
        match mishap {
            Mishap::Rejected { gateway, .. } => self.rejected.with([gateway, "gateway"]).inc(),
            Mishap::Lost(purpose) => self.lost.with([purpose]).inc(),
            Mishap::Idle(reason) => self.idle.with([reason]).inc(),
            Mishap::Certificate(_) => self.certificates.with([]).inc(),
        }
    }
}

fn mishaps(world: &Snapshot, connection: &Connection) -> Result<Vec<Mishap>, QueryError> {
    let proxy = &connection.proxy;
    if matches!(proxy.id.kind, NodeKind::Ztunnel | NodeKind::Agentgateway) {
        return Ok(Vec::new());
    }
    let mut found: Vec<Mishap> = idleness(world, proxy)?.map(Mishap::Idle).into_iter().collect();
    if proxy.is_proxyless() {
        return Ok(found);
    }
    let audiences = world.get::<AudiencesOf>(proxy)?;
    if let Some(audience) = audiences.listeners.arriving() {
        found.extend(world.get::<LostServers>(audience)?.iter().map(|purpose| Mishap::Lost(purpose)));
    }
    if let Some(runner) = audiences.gateway() {
        found.extend(world.get::<MergedGateways>(runner)?.rejected.iter().map(|rejection| {
            Mishap::Rejected { gateway: Arc::clone(&rejection.gateway), server: rejection.server }
        }));
    }
    for name in names(connection, types::SECRET).iter().flat_map(|names| names.iter()) {
        if is_bad(world, &audiences, name)? {
            found.push(Mishap::Certificate(Arc::from(&**name)));
        }
    }
    Ok(found)
}

/// Why a proxy stands for no service of Kubernetes; `None` if it does, or need not.
fn idleness(world: &Snapshot, proxy: &Proxy) -> Result<Option<&'static str>, QueryError> {
    let targets = world.get::<Targets>(proxy)?;
    let works = targets.iter().any(|target| target.service.registry == Definer::Kubernetes);
    if works || proxy.id.addresses.is_empty() {
        return Ok(None);
    }
    Ok(*world.get::<WhyIdle>(proxy)?)
}

/// Why a proxy that stands for no service of Kubernetes does not; `None` if a WorkloadEntry says what it is.
struct WhyIdle;

impl Query for WhyIdle {
    const NAME: &'static str = "why_idle";
    type Key = Proxy;
    type Value = Option<&'static str>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        if entry_of_proxy(ctx, proxy).is_some() {
            return None;
        }
        let is_pod = pod_of_proxy(ctx, proxy).is_some() && !proxy.is_vm();
        Some(if is_pod { "no_matching_services" } else { "no_matching_metadata" })
    }
}

/// Whether a proxy asks for a certificate in vain, or gets one that is of no use.
fn is_bad(world: &Snapshot, audiences: &Audiences, name: &str) -> Result<bool, QueryError> {
    // Parity: who has not proved to be somebody gets nothing, and that is not counted.
    let reader = audiences.secret_reader();
    let Some(identity) = reader.identity() else { return Ok(false) };
    match Credential::parse(name, &identity.namespace) {
        Ok(Credential::Invalid) => return Ok(false),
        // Whether it may have the Secret is still being asked.
        Ok(Credential::Object { source: Source::Secret, .. })
            if account(reader).is_some_and(|account| world.read::<SecretAccess>(&account).is_none()) =>
        {
            return Ok(false);
        }
        _ => {}
    }
    let secret = world.get::<Secrets>(&(audiences.secrets.clone(), name.to_owned()))?;
    Ok(secret.as_ref().as_ref().is_none_or(|secret| !certificate::is_usable(secret.body.clone())))
}
