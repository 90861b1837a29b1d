//! Workload entries, by themselves and as the endpoints of a service entry.

use std::collections::BTreeSet;

use canopus_base::net::parse_ip;
use canopus_proto::istio::networking::v1alpha3::WorkloadEntry as Spec;

use super::code::codes;
use super::scope::Scope;
use super::{address, host, labels, port};
use crate::istio::WorkloadEntry;
use crate::text::quoted;

codes! {
    NO_ADDRESS: error "workload-without-address", "give an address, or the network it is reached through";
    NO_ADDRESS_BUT_NETWORK: warning "workload-without-address-but-network",
        "make sure that the network has a gateway, or give an address";
    SOCKET_WITH_PORTS: error "workload-socket-with-ports", "remove the ports";
    NOT_AN_IP: error "workload-address-not-an-ip", "give an IP address, or use resolution DNS";
    NOT_AN_ADDRESS: error "workload-address-invalid", "give an IP address or a host name";
    UNKNOWN_PORT: error "workload-port-not-in-service", "use the name of a port of the ServiceEntry";
    SOCKET_OF_MANY_PORTS: error "workload-socket-of-many-ports", "give the ServiceEntry exactly one port";
}

/// Checks a WorkloadEntry.
pub fn check(entry: &WorkloadEntry, mut scope: Scope<'_>) {
    workload(&entry.spec, Of::Itself, scope.field("spec"));
}

/// The kind of object that lists a workload.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    /// No list: it is an object of its own.
    Itself,
    /// A service entry with these ports, whose endpoints have addresses rather than names.
    Service(&'a BTreeSet<&'a str>),
}

/// Checks a workload.
pub fn workload(workload: &Spec, of: Of<'_>, mut scope: Scope<'_>) {
    let Spec { address, network, .. } = workload;
    if address.is_empty() {
        let mut scope_of_address = scope.field("address");
        if network.is_empty() {
            scope_of_address.add(NO_ADDRESS.says("address is required"));
            return rest(workload, of, scope.ours());
        }
        let message = format!("address is unset with network {}", quoted(network));
        scope_of_address.add(NO_ADDRESS_BUT_NETWORK.says(message));
    }
    rest(workload, of, scope);
}

fn rest(workload: &Spec, of: Of<'_>, mut scope: Scope<'_>) {
    let socket = workload.address.strip_prefix(address::UNIX);
    match socket {
        Some(socket) => {
            let mut scope = scope.field("address");
            scope.require(address::unix_socket(socket));
            scope.add_if(!workload.ports.is_empty(), || {
                let address = &workload.address;
                SOCKET_WITH_PORTS
                    .says(format!("unix endpoint {address} must not include ports"))
                    .with_value(address)
            });
        }
        None => network_address(&workload.address, of, scope.field("address")),
    }
    let service_ports = match of {
        Of::Itself => None,
        Of::Service(ports) => Some(ports),
    };
    ports(workload, service_ports, scope.again());
    labels::check("labels", &workload.labels, scope.again());
    if socket.is_some() && service_ports.is_some_and(|ports| ports.len() != 1) {
        let message = "exactly 1 service port required for unix endpoints";
        scope.field("address").add(SOCKET_OF_MANY_PORTS.says(message));
    }
}

fn network_address(address: &str, of: Of<'_>, mut scope: Scope<'_>) {
    if address.is_empty() || parse_ip(address).is_ok() {
        return;
    }
    match of {
        Of::Service(_) => {
            let message = format!("endpoint address {} is not a valid IP address", quoted(address));
            scope.add(NOT_AN_IP.says(message).with_value(address));
        }
        Of::Itself => name_or_address(address, scope),
    }
}

/// An address, or the name of a host.
pub(super) fn name_or_address(address: &str, mut scope: Scope<'_>) {
    if parse_ip(address).is_err() && host::fqdn(address).is_err() {
        let message = format!("endpoint address {} is not a valid FQDN or an IP address", quoted(address));
        scope.add(NOT_AN_ADDRESS.says(message).with_value(address));
    }
}

/// The ports of a workload, which its service has too.
pub(super) fn ports(workload: &Spec, of_service: Option<&BTreeSet<&str>>, mut scope: Scope<'_>) {
    scope.each_entry("ports", &workload.ports, |name, number, mut scope| {
        scope.add_if(of_service.is_some_and(|ports| !ports.contains(name)), || {
            UNKNOWN_PORT
                .says(format!("endpoint port {number} is not defined by the service entry"))
                .with_value(name)
        });
        scope.require(port::name(name));
        scope.require(port::number(*number));
    });
}
