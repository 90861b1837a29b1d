//! Services: duplicate hosts and duplicate addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use super::{Findings, Problem, Severity};
use crate::service::{
    AllServices, HostDefinitions, NO_ADDRESS, Service, ServiceKey, ServicesByHost, ServicesOf,
};

const DUPLICATE_HOST: Problem = (
    "CAN0201",
    Severity::Warning,
    "let one object of the namespace define the host, with all its ports and endpoints",
);
const DUPLICATE_ADDRESS: Problem =
    ("CAN0202", Severity::Warning, "give each its own address, or leave addresses to the control plane");

pub(super) fn check(ctx: &Ctx<'_>, findings: &mut Findings<'_>) {
    let services = ctx.get::<ServicesOf>(findings.origin);
    let hosts: BTreeSet<_> = services.iter().map(|service| service.host.clone()).collect();
    for host in hosts {
        duplicate_host(ctx, &host, findings);
    }
    for service in services.iter() {
        duplicate_addresses(ctx, service, findings);
    }
}

fn duplicate_host(ctx: &Ctx<'_>, host: &Arc<str>, findings: &mut Findings<'_>) {
    let origin = findings.origin;
    let by_namespace = ctx.get::<ServicesByHost>(host);
    let Some(winner) = by_namespace.get(origin.namespace()) else { return };
    let definitions = ctx.get::<HostDefinitions>(host);
    let defined_here = definitions.iter().any(|definition| definition.origins.contains(origin));
    if let Some(first) = winner.origins.first().filter(|_| defined_here && !winner.origins.contains(origin)) {
        let message = format!(
            "{} defines {host} in this namespace already: where one is needed, that one counts",
            first.key
        );
        findings.add(DUPLICATE_HOST, "spec.hosts", message);
    }
}

fn duplicate_addresses(ctx: &Ctx<'_>, service: &Service, findings: &mut Findings<'_>) {
    let owners = ctx.get::<AddressOwners>(&());
    for (address, port) in sockets(service) {
        let Some(first) = owners.get(&(address.clone(), port)) else { continue };
        if first.host != service.host {
            let message = format!(
                "{address}:{port} is also {}: connections to it reach the older of the two",
                first.host
            );
            findings.add(DUPLICATE_ADDRESS, "spec", message);
        }
    }
}

/// The addresses and ports of a service. HTTP ports are left out, because HTTP is routed by host.
fn sockets(service: &Service) -> impl Iterator<Item = (String, u32)> + '_ {
    let own = (service.address != NO_ADDRESS).then(|| service.address.clone());
    let addresses_in_clusters = service.cluster_addresses.values().flatten().cloned();
    let addresses: BTreeSet<String> = own.into_iter().chain(addresses_in_clusters).collect();
    let ports = service.ports.iter().filter(|port| !port.protocol.is_http());
    let ports: Vec<u32> = ports.map(|port| port.number).collect();
    addresses.into_iter().flat_map(move |address| {
        ports.clone().into_iter().map(move |port| (address.clone(), port)).collect::<Vec<_>>()
    })
}

/// The oldest service at each address and port.
struct AddressOwners;

impl Query for AddressOwners {
    const NAME: &'static str = "address_owners";
    type Key = ();
    type Value = BTreeMap<(String, u32), ServiceKey>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let mut owners = Self::Value::new();
        for service in ctx.get::<AllServices>(&()).iter() {
            for socket in sockets(service) {
                owners.entry(socket).or_insert_with(|| service.key());
            }
        }
        owners
    }
}
