//! The facts of a world for people and programs to look at, each with the objects behind it.
//!
//! What is printed are the answers of the same queries that configure proxies, and the objects are those the queries read:
//! there is no second account of either. `canopus world` prints a [`World`], and the daemon serves one as JSON.

mod provenance;
mod proxy;
mod service;

use canopus_base::host;
use canopus_engine::{Engine, QueryError};
use serde::Serialize;

use crate::proxy::Proxy;
use crate::service::{AllServices, Service};

pub use provenance::{Affected, ObjectRef};
pub use proxy::{BoundRoutes, HostRules, ProxyFacts, SidecarScope, WorkloadPolicies};
pub use service::{EndpointFacts, PortFacts, ServiceFacts};

/// What is to be looked at; everything if nothing is said.
#[derive(Clone, Debug, Default)]
pub struct DumpSelection {
    /// The host of a service: in full, as a wildcard, or its short name.
    pub service: Option<String>,
    /// The namespace that defines a service.
    pub namespace: Option<String>,
    /// The proxy whose scope and policies are wanted; services are then those it sees.
    pub proxy: Option<Proxy>,
    /// Whether it is said what depends on the objects behind a fact.
    pub dependents: bool,
}

impl DumpSelection {
    fn has(&self, service: &Service) -> bool {
        let of_host = |wanted: &String| {
            let is_short = !wanted.contains('.') && *wanted == *service.name;
            *wanted == *service.host
                || is_short
                || (host::is_wildcard(wanted) && host::matches(wanted, &service.host))
        };
        self.service.as_ref().is_none_or(of_host)
            && self.namespace.as_ref().is_none_or(|wanted| *wanted == *service.namespace)
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshDump {
    /// How many batches of changes made this world.
    pub revision: u64,
    /// The services, by host and namespace.
    pub services: Vec<ServiceFacts>,
    /// What the proxy sees and is subject to, if one was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyFacts>,
}

/// Looks at a world.
pub fn dump_mesh(engine: &Engine, selection: &DumpSelection) -> Result<MeshDump, QueryError> {
    let snapshot = engine.snapshot();
    let seen = selection.proxy.as_ref().map(|proxy| proxy::proxy_view(&snapshot, proxy)).transpose()?;
    let all = match &seen {
        Some(seen) => seen.services().to_vec(),
        None => snapshot.get::<AllServices>(&())?.to_vec(),
    };
    let mut selected: Vec<_> = all.into_iter().filter(|service| selection.has(service)).collect();
    selected.sort_by(|a, b| (&a.host, &a.namespace).cmp(&(&b.host, &b.namespace)));
    let services = selected.iter().map(|service| service::facts(&snapshot, service));
    let services: Vec<_> = services.collect::<Result<_, _>>()?;
    let proxy = match (&selection.proxy, seen) {
        (Some(proxy), Some(seen)) => Some(proxy::facts(&snapshot, proxy, &seen, selection)?),
        _ => None,
    };
    let mut world = MeshDump { revision: snapshot.revision().number(), services, proxy };
    if selection.dependents {
        // Asked last, so that what was evaluated for the answer is known by now.
        for service in &mut world.services {
            service.dependents = Some(provenance::dependents(engine, &service.defined_by));
        }
    }
    Ok(world)
}

#[cfg(test)]
mod tests;
