//! Addresses in resources.

use std::net::IpAddr;

use bytes::Bytes;
use canopus_base::net::{parse_ip, parse_prefix};
use canopus_mesh::network::HBONE_PORT;
use canopus_mesh::waypoint::{Waypoint, WaypointAddress};
use canopus_proto::istio::workload::gateway_address::Destination;
use canopus_proto::istio::workload::{GatewayAddress, NamespacedHostname, NetworkAddress};

/// The bytes of an address.
pub(crate) fn octets(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(v4) => Bytes::copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => Bytes::copy_from_slice(&v6.octets()),
    }
}

/// An address in a network.
pub(crate) fn in_network(network: &str, address: IpAddr) -> NetworkAddress {
    NetworkAddress { network: network.to_owned(), address: octets(address), length: None }
}

/// Parses an address or CIDR in a network.
pub(crate) fn range_in_network(network: &str, text: &str) -> Option<NetworkAddress> {
    if let Ok(address) = parse_ip(text) {
        return Some(in_network(network, address));
    }
    let range = parse_prefix(text).ok()?.trunc();
    let length = (range.prefix_len() != range.max_prefix_len()).then(|| u32::from(range.prefix_len()));
    Some(NetworkAddress { length, ..in_network(network, range.addr()) })
}

/// The address that clients connect to for a waypoint.
pub(crate) fn waypoint_address(waypoint: &Waypoint) -> Option<GatewayAddress> {
    let destination = match waypoint.address.as_ref()? {
        WaypointAddress::Host(namespace, host) => host_destination(namespace, host),
        WaypointAddress::Address(network, address) => Destination::Address(in_network(network, *address)),
    };
    Some(GatewayAddress { hbone_mtls_port: HBONE_PORT, destination: Some(destination) })
}

/// A destination by namespace and host.
pub(crate) fn host_destination(namespace: &str, host: &str) -> Destination {
    Destination::Hostname(NamespacedHostname { namespace: namespace.to_owned(), hostname: host.to_owned() })
}
