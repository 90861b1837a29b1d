//! Addresses that listeners bind to, and the ranges their filter chains match.

use canopus_base::net::{IpNet, parse_prefix_or_ip};
use canopus_mesh::audience::Addressing;
use canopus_proto::envoy::config::core::v3::{
    Address, CidrRange, Pipe, SocketAddress, address, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::listener::v3::AdditionalAddress;
use canopus_proto::fields;
use canopus_proto::istio::mesh::v1alpha1::network::{NetworkEndpoints, network_endpoints::Ne};
use canopus_proto::wire::{Explicit, Field, Nested, ProtoWriter};

/// What the path of a socket begins with where an address could stand as well.
pub(crate) const UNIX_PREFIX: &str = "unix://";

/// The addresses of all interfaces, of the families a proxy has; IPv4 first. Never empty.
pub(crate) fn wildcards(addressing: &Addressing) -> Vec<String> {
    for_families(addressing, "0.0.0.0", "::")
}

/// The first of [`wildcards`].
pub(crate) fn wildcard(addressing: &Addressing) -> &'static str {
    if addressing.ipv6 && !addressing.ipv4 { "::" } else { "0.0.0.0" }
}

/// The loopback addresses, of the families a proxy has; IPv4 first. Never empty.
pub(crate) fn loopbacks(addressing: &Addressing) -> Vec<String> {
    for_families(addressing, "127.0.0.1", "::1")
}

fn for_families(addressing: &Addressing, v4: &str, v6: &str) -> Vec<String> {
    let families = match (addressing.ipv4, addressing.ipv6) {
        (true, true) => &[v4, v6][..],
        (false, true) => &[v6],
        _ => &[v4],
    };
    families.iter().map(|&address| address.to_owned()).collect()
}

/// The address of a listener: an IP and port, or without a port the path of a socket.
pub(crate) fn bind(address: &str, port: u32) -> Address {
    if port != 0 {
        return socket_address(address, port);
    }
    let path = address.strip_prefix(UNIX_PREFIX).unwrap_or(address).to_owned();
    Address { address: Some(address::Address::Pipe(Pipe { path, ..Default::default() })) }
}

/// Writes [`bind`] as a field of a message.
pub(crate) fn write<M>(
    message: &mut ProtoWriter<M>,
    field: Field<M, Nested<Address>, Explicit>,
    address: &str,
    port: u32,
) {
    if port == 0 {
        return message.message(field, &bind(address, port));
    }
    message.nested(field, |choice| {
        choice.nested(fields::address::SOCKET_ADDRESS, |socket| {
            socket.string(fields::socket_address::ADDRESS, address);
            socket.unsigned(fields::socket_address::PORT_VALUE, port);
        });
    });
}

/// An IP and port.
pub(crate) fn socket_address(address: &str, port: u32) -> Address {
    let socket = SocketAddress {
        address: address.into(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

/// The further addresses of a listener.
pub(crate) fn additional(addresses: &[String], port: u32) -> Vec<AdditionalAddress> {
    let given = addresses.iter().filter(|address| !address.is_empty());
    given
        .map(|address| AdditionalAddress { address: Some(bind(address, port)), ..Default::default() })
        .collect()
}

/// A range as Envoy has it.
pub(crate) fn cidr(prefix: IpNet) -> CidrRange {
    CidrRange {
        address_prefix: prefix.addr().to_string(),
        prefix_len: Some(u32::from(prefix.prefix_len()).into()),
    }
}

/// The range of an address or CIDR; `None` if it is neither.
pub(crate) fn range_of(text: &str) -> Option<CidrRange> {
    parse_prefix_or_ip(text).ok().map(cidr)
}

/// The range of addresses that belongs to a network, if that is how its endpoints are known.
pub(crate) fn network_prefix(endpoints: &NetworkEndpoints) -> Option<IpNet> {
    match endpoints.ne.as_ref()? {
        Ne::FromCidr(range) => parse_prefix_or_ip(range).ok(),
        Ne::FromRegistry(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;

    use super::*;

    #[test]
    fn address_is_written_as_the_message_it_stands_for() {
        for (address, port) in [("10.0.0.1", 80), ("::", 15_006), ("unix:///run/socket", 0)] {
            let mut written = ProtoWriter::default();
            write(&mut written, fields::additional_address::ADDRESS, address, port);
            let additional = AdditionalAddress { address: Some(bind(address, port)), ..Default::default() };
            assert_eq!(written.as_slice(), additional.encode_to_vec());
        }
    }
}
