//! Endpoints: the addresses and ports of the instances of a service.
//!
//! [`Endpoints`] is the query for one service. It reads the EndpointSlices, pods and WorkloadEntries behind a Kubernetes
//! Service (`kube`), and the listed or selected workloads of a ServiceEntry (`entry`), from every cluster. An EndpointSlice
//! that changes makes it run again for the one service that the slice is labelled with.
//!
//! The result is the same whoever asks: it has endpoints of all networks, zones and health states. Which of them one proxy
//! should use is decided in `canopus-envoy`'s `endpoint`. What all endpoints of a port have in common ([`CommonTraits`]) is a
//! query of its own, because clusters depend on it and it rarely changes when endpoints do.

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

/// An instance of a service on one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IP addresses, a host name, or the path of a Unix socket. Dual-stack instances have several.
    pub addresses: Vec<Arc<str>>,
    /// The port; 0 for a Unix socket.
    pub port: u32,
    /// The name of the service port.
    pub port_name: Arc<str>,
    /// The number of the service port, for endpoints of ServiceEntries.
    pub port_number: Option<u32>,
    /// The load balancing weight; 0 if unset.
    pub weight: u32,
    /// The health of the instance.
    pub health: Health,
    /// The workload that listens there.
    pub workload: Arc<EndpointWorkload>,
    /// The registry that reports it.
    pub registry: Registry,
}

/// The workload at an endpoint. Endpoints of all its ports share the value.
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
    /// The labels that subsets select by.
    pub labels: Labels,
    /// `region/zone/subzone` as the registry reports it.
    pub locality: Arc<str>,
    /// The SPIFFE identity; empty if none is known.
    pub service_account: Arc<str>,
    /// The TLS mode: `istio` or `disabled`.
    pub tls_mode: Arc<str>,
    /// Whether it accepts HBONE tunnels.
    pub takes_tunnels: bool,
    /// The Kubernetes node.
    pub node: Arc<str>,
    /// The host name below a headless service, and the name of that service.
    pub host_name: Option<(Arc<str>, Arc<str>)>,
    /// The object that describes the workload, if there is one.
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

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// No health was reported.
    #[default]
    Unknown,
    /// Ready.
    Healthy,
    /// The endpoint is not ready.
    Unhealthy,
    /// Terminating, but still serving persistent sessions.
    Draining,
    /// Terminating.
    Terminating,
}

impl Endpoint {
    /// The first address.
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// Whether it is an endpoint of this service port.
    pub fn is_for(&self, name: &str, number: u32) -> bool {
        match self.port_number {
            Some(own) => own == number,
            None => *self.port_name == *name,
        }
    }
}

/// All endpoints of a service on all ports: those of ServiceEntries first, then cluster by cluster.
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

/// Properties that all endpoints of a port share. They change far less often than the endpoints do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonTraits {
    /// Whether there are endpoints and all accept mutual TLS.
    pub mutual_tls: bool,
    /// Whether there are endpoints and all accept HBONE tunnels.
    pub tunnels: bool,
}

/// The [`CommonTraits`] of a service port.
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

/// What clients need to know about all endpoints of a service. It changes far less often than the endpoints do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The identities of the endpoints and those that the service names, in every alias of the trust domain; sorted.
    pub accounts: Arc<Vec<String>>,
    /// Whether some endpoint accepts HBONE tunnels.
    pub tunnels: bool,
    /// The mutual TLS mode that policies of the namespace and the mesh set.
    pub mutual_tls: MutualTls,
}

/// The [`Servers`] of a service.
pub struct ServersOf;

impl Query for ServersOf {
    const NAME: &'static str = "servers";
    type Key = ServiceKey;
    type Value = Servers;

    fn run(ctx: &Ctx<'_>, key: &ServiceKey) -> Servers {
        let endpoints = ctx.get::<Endpoints>(key);
        let presented = endpoints.iter().map(|endpoint| endpoint.workload.service_account.to_string());
        let named = crate::service::service(ctx, key).map(|service| service.service_accounts.clone());
        let accounts: BTreeSet<_> =
            presented.filter(|account| !account.is_empty()).chain(named.unwrap_or_default()).collect();
        let aliases = &settings(ctx).mesh.trust_domain_aliases;
        let accounts = spiffe::expand(accounts.iter().map(String::as_str), aliases);
        Servers {
            accounts: Arc::new(accounts.into_iter().collect()),
            tunnels: endpoints.iter().any(|endpoint| endpoint.workload.takes_tunnels),
            mutual_tls: ctx.get::<NamespaceMode>(&key.namespace).unwrap_or(MutualTls::Permissive),
        }
    }
}
