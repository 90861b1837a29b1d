//! The addresses of a gateway, for its status.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::labels;
use canopus_proto::istio::networking::v1alpha3::Server;

use super::cluster_objects::ClusterObjects;
use crate::endpoint::{Endpoint, Endpoints};
use crate::service::{Service, ServicesByHost};

/// The type of Services that get an external address.
const LOAD_BALANCER: &str = "LoadBalancer";

/// The addresses of a gateway; every list is sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GatewayAddresses {
    /// Hosts with ports inside of the mesh.
    pub(super) internal: Vec<String>,
    /// The addresses of those hosts.
    pub(super) internal_addresses: Vec<String>,
    /// External addresses.
    pub(super) external: Vec<String>,
    /// Hosts that wait for an external address.
    pub(super) pending: Vec<String>,
    /// Messages about missing addresses.
    pub(super) warnings: Vec<String>,
    /// Whether missing addresses may still be assigned without a change of the objects.
    pub(super) is_usable: bool,
}

/// Resolves the addresses of a gateway from the services it is bound to and the ports of its servers.
pub(super) fn resolve(
    cluster: &ClusterObjects<'_>,
    namespace: &str,
    services: &[String],
    servers: &[Server],
) -> GatewayAddresses {
    let ports: BTreeSet<u32> =
        servers.iter().filter_map(|server| server.port.as_ref()).map(|port| port.number).collect();
    let mut search = Search { cluster, found: Found::default(), warnings: Vec::new(), is_usable: true };
    for host in services {
        let by_namespace = cluster.ctx.get::<ServicesByHost>(&host.as_str().into());
        match by_namespace.get(namespace) {
            Some(service) => ports.iter().for_each(|port| search.look(host, service, *port)),
            None => search.miss(host, namespace, by_namespace.keys().map(|namespace| &**namespace)),
        }
    }
    search.warnings.sort();
    let list = |set: BTreeSet<String>| set.into_iter().collect();
    GatewayAddresses {
        internal: list(search.found.internal),
        internal_addresses: list(search.found.addresses),
        external: list(search.found.external),
        pending: list(search.found.pending),
        warnings: search.warnings,
        is_usable: search.is_usable,
    }
}

#[derive(Default)]
struct Found {
    internal: BTreeSet<String>,
    addresses: BTreeSet<String>,
    external: BTreeSet<String>,
    pending: BTreeSet<String>,
}

struct Search<'a> {
    cluster: &'a ClusterObjects<'a>,
    found: Found,
    warnings: Vec<String>,
    is_usable: bool,
}

impl Search<'_> {
    fn miss<'n>(&mut self, host: &str, namespace: &str, elsewhere: impl Iterator<Item = &'n str>) {
        let elsewhere: Vec<_> = elsewhere.map(|namespace| format!("{namespace:?}")).collect();
        self.is_usable = false;
        self.warnings.push(if elsewhere.is_empty() {
            format!("hostname {host:?} not found")
        } else {
            format!(
                "hostname {host:?} not found in namespace {namespace:?}, but it was found in namespace(s) {}",
                elsewhere.join(", ")
            )
        });
    }

    fn look(&mut self, host: &str, service: &Service, number: u32) {
        let endpoints = self.cluster.ctx.get::<Endpoints>(&service.key());
        let port = service.port(number);
        let serves = |endpoint: &Endpoint| port.is_some_and(|port| endpoint.is_for(&port.name, port.number));
        if endpoints.iter().any(|endpoint| serves(endpoint)) {
            self.hit(host, service, number);
        } else if endpoints.is_empty() {
            self.warnings.push(format!("no instances found for hostname {host:?}"));
        } else {
            self.explain(host, service, number, &endpoints);
        }
    }

    fn hit(&mut self, host: &str, service: &Service, number: u32) {
        self.found.internal.insert(format!("{host}:{number}"));
        let own = service.cluster_addresses.get(&self.cluster.settings.cluster);
        match own.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => self.found.addresses.extend(addresses.iter().cloned()),
            None if service.address.is_empty() => {}
            None => _ = self.found.addresses.insert(service.address.clone()),
        }
        let Some(kube) = &service.kube else { return };
        let external: Vec<_> = kube.external_addresses.values().flatten().cloned().collect();
        if !external.is_empty() {
            self.found.external.extend(external);
        } else if &*kube.kind == LOAD_BALANCER && self.found.pending.insert(host.to_owned()) {
            self.warnings.push(format!("address pending for hostname {host:?}"));
        }
    }

    /// Explains why a service with endpoints has none for a port.
    fn explain(&mut self, host: &str, service: &Service, number: u32, endpoints: &[Arc<Endpoint>]) {
        let on_workload = service.ports.iter().filter(|port| {
            let of_port = endpoints.iter().filter(|endpoint| endpoint.is_for(&port.name, port.number));
            of_port.into_iter().any(|endpoint| endpoint.port == number)
        });
        let hints: BTreeSet<_> = on_workload.map(|port| port.number.to_string()).collect();
        if !hints.is_empty() {
            let hints: Vec<_> = hints.into_iter().collect();
            self.is_usable = false;
            self.warnings.push(format!(
                "port {number} not found for hostname {host:?} (hint: the service port should be specified, not the \
                 workload port. Did you mean one of these ports: [{}]?)",
                hints.join(" ")
            ));
            return;
        }
        // The control plane will add the port to a Service that it manages.
        let will_come =
            service.labels.contains_key(labels::GATEWAY_MANAGED.name) && service.port(number).is_some();
        if !will_come {
            self.is_usable = false;
            self.warnings.push(format!("port {number} not found for hostname {host:?}"));
        }
    }
}
