//! The mesh as people and tools look at it: services, endpoints, scopes and policies with the objects behind each.
//!
//! A dump shows the results of the queries that configure proxies and the objects that these queries read, so it cannot
//! disagree with what proxies receive. `canopus world` prints a [`MeshDump`], and the daemon serves one as JSON.

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

/// What to dump; everything by default.
#[derive(Clone, Debug, Default)]
pub struct DumpSelection {
    /// The host of a service: a full name, a wildcard, or a short name.
    pub service: Option<String>,
    /// The namespace that defines a service.
    pub namespace: Option<String>,
    /// The proxy whose scope and policies to dump. Services are then those in its scope.
    pub proxy: Option<Proxy>,
    /// Whether to include what depends on the objects behind a service.
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

/// A dump of the mesh.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshDump {
    /// The engine revision.
    pub revision: u64,
    /// The services, by host and namespace.
    pub services: Vec<ServiceFacts>,
    /// The scope and policies of the selected proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyFacts>,
}

/// Dumps the selected part of the mesh.
pub fn dump_mesh(engine: &Engine, selection: &DumpSelection) -> Result<MeshDump, QueryError> {
    let snapshot = engine.snapshot();
    let view = selection.proxy.as_ref().map(|proxy| proxy::proxy_view(&snapshot, proxy)).transpose()?;
    let all = match &view {
        Some(view) => view.services().to_vec(),
        None => snapshot.get::<AllServices>(&())?.to_vec(),
    };
    let mut selected: Vec<_> = all.into_iter().filter(|service| selection.has(service)).collect();
    selected.sort_by(|a, b| (&a.host, &a.namespace).cmp(&(&b.host, &b.namespace)));
    let services = selected.iter().map(|service| service::facts(&snapshot, service));
    let services: Vec<_> = services.collect::<Result<_, _>>()?;
    let proxy = match (&selection.proxy, view) {
        (Some(proxy), Some(view)) => Some(proxy::facts(&snapshot, proxy, &view, selection)?),
        _ => None,
    };
    let mut dump = MeshDump { revision: snapshot.revision().number(), services, proxy };
    if selection.dependents {
        // Last, because dependents are known only after the queries above were evaluated.
        for service in &mut dump.services {
            service.dependents = Some(provenance::dependents(engine, &service.defined_by));
        }
    }
    Ok(dump)
}

#[cfg(test)]
mod tests;
