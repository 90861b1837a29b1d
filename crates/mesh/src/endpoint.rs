//! Endpoints: where the instances of a service listen.

mod address;
mod entry;
pub(crate) mod kube;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::labels::Labels;
use canopus_base::spiffe;
use canopus_engine::{Ctx, Query};

use crate::peer_authentication::{MutualTls, NamespaceMode};
use crate::service::{Port, Registry, ServiceKey};
use crate::workload::{TLS_DISABLED, Workload};
use crate::world::{Origin, settings};

pub(crate) use address::entry_endpoints_at;

/// Where one instance of a service listens on one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IP addresses, a host name, or the path of a socket; more than one for dual-stack instances.
    pub addresses: Vec<Arc<str>>,
    /// Port number; 0 for the path of a socket.
    pub port: u32,
    /// The service's port it stands for, by name.
    pub port_name: Arc<str>,
    /// The service's port it stands for, by number, if it comes from a ServiceEntry.
    pub port_number: Option<u32>,
    /// Share of the load; 0 if not said.
    pub weight: u32,
    /// Whether it can take traffic.
    pub health: Health,
    /// What runs there.
    pub workload: Arc<EndpointWorkload>,
    /// Who knows of it.
    pub registry: Registry,
}

/// What runs at an endpoint. The endpoints of all ports share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointWorkload {
    /// The name in telemetry.
    pub name: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The cluster.
    pub cluster: Arc<str>,
    /// The network; empty if none is known.
    pub network: Arc<str>,
    /// Labels by which subsets choose.
    pub labels: Labels,
    /// `region/zone/subzone`, as the registry has it.
    pub locality: Arc<str>,
    /// The SPIFFE identity; empty if none is known.
    pub service_account: Arc<str>,
    /// How connections are taken: `istio`, `disabled`.
    pub tls_mode: Arc<str>,
    /// Whether it takes HBONE tunnels.
    pub takes_tunnels: bool,
    /// The Kubernetes node.
    pub node: Arc<str>,
    /// The name below a headless service, and that service.
    pub host_name: Option<(Arc<str>, Arc<str>)>,
    /// The object behind it, if there is one.
    pub origin: Option<Origin>,
}

impl From<&Workload> for EndpointWorkload {
    fn from(workload: &Workload) -> Self {
        Self {
            name: workload.workload_name.clone(),
            namespace: workload.namespace.clone(),
            cluster: workload.cluster.clone(),
            network: workload.network.clone(),
            labels: workload.labels.clone(),
            locality: workload.locality.clone(),
            service_account: workload.service_account.clone(),
            tls_mode: workload.tls_mode.clone(),
            takes_tunnels: workload.takes_tunnels,
            node: workload.node.clone(),
            host_name: workload.host_name.clone(),
            origin: Some(workload.origin.clone()),
        }
    }
}

/// Whether an endpoint can take traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Nobody looks after it.
    #[default]
    Unknown,
    /// It can.
    Healthy,
    /// It cannot.
    Unhealthy,
    /// It keeps the sessions it has.
    Draining,
    /// It is about to go.
    Terminating,
}

impl Endpoint {
    /// The first address.
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// Whether it stands for this port of its service.
    pub fn is_for(&self, name: &str, number: u32) -> bool {
        match self.port_number {
            Some(own) => own == number,
            None => *self.port_name == *name,
        }
    }
}

/// All endpoints of a service, of all its ports: those of ServiceEntries first, then cluster by cluster.
pub struct Endpoints;

impl Query for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = ServiceKey;
    type Value = Vec<Arc<Endpoint>>;

    fn run(ctx: &Ctx<'_>, key: &ServiceKey) -> Self::Value {
        let mut endpoints = entry::endpoints(ctx, key);
        endpoints.extend(kube::endpoints(ctx, key));
        endpoints
    }
}

/// What all endpoints of a port have in common. It changes far less often than they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonTraits {
    /// Whether there are endpoints, and none takes plain connections only.
    pub mutual_tls: bool,
    /// Whether there are endpoints, and all take HBONE tunnels.
    pub tunnels: bool,
}

/// What all endpoints of a port have in common.
pub struct CommonTraitsOf;

impl Query for CommonTraitsOf {
    const NAME: &'static str = "common_endpoint_traits";
    /// The service and its port.
    type Key = (ServiceKey, Port);
    type Value = CommonTraits;

    fn run(ctx: &Ctx<'_>, (key, port): &Self::Key) -> CommonTraits {
        let endpoints = ctx.get::<Endpoints>(key);
        let mut workloads =
            endpoints.iter().filter(|e| e.is_for(&port.name, port.number)).map(|e| &e.workload).peekable();
        if workloads.peek().is_none() {
            return CommonTraits::default();
        }
        workloads.fold(CommonTraits { mutual_tls: true, tunnels: true }, |common, workload| CommonTraits {
            mutual_tls: common.mutual_tls && *workload.tls_mode != *TLS_DISABLED,
            tunnels: common.tunnels && workload.takes_tunnels,
        })
    }
}

/// What clients have to know of all endpoints of a service together. It changes far less often than they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Their identities, with those the service itself names, in every alias of the trust domain; sorted.
    pub accounts: Arc<Vec<String>>,
    /// Whether some of them take HBONE tunnels.
    pub tunnels: bool,
    /// Whether they take mutual TLS, as far as policies of their namespace and of the mesh say.
    pub mutual_tls: MutualTls,
}

/// What clients have to know of all endpoints of a service together.
pub struct ServersOf;

impl Query for ServersOf {
    const NAME: &'static str = "servers";
    type Key = ServiceKey;
    type Value = Servers;

    fn run(ctx: &Ctx<'_>, key: &ServiceKey) -> Servers {
        let endpoints = ctx.get::<Endpoints>(key);
        let of_endpoints = endpoints.iter().map(|endpoint| endpoint.workload.service_account.to_string());
        let named = crate::service::service(ctx, key).map(|service| service.service_accounts.clone());
        let accounts: BTreeSet<_> =
            of_endpoints.filter(|account| !account.is_empty()).chain(named.unwrap_or_default()).collect();
        let aliases = &settings(ctx).mesh.trust_domain_aliases;
        let accounts = spiffe::expand(accounts.iter().map(String::as_str), aliases);
        Servers {
            accounts: Arc::new(accounts.into_iter().collect()),
            tunnels: endpoints.iter().any(|endpoint| endpoint.workload.takes_tunnels),
            mutual_tls: ctx.get::<NamespaceMode>(&key.namespace).unwrap_or(MutualTls::Permissive),
        }
    }
}
