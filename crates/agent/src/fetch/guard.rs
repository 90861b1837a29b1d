//! Which addresses configuration may have the agent connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use canopus_base::net::parse_prefix_or_ip;
use ipnet::IpNet;

/// Metadata services of clouds that are not link-local.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// Ports of proxies, agents and control planes, which serve no modules.
const MESH_PORTS: [u16; 13] =
    [15000, 15001, 15004, 15006, 15008, 15010, 15012, 15014, 15017, 15020, 15021, 15053, 15090];

/// Why an address is not connected to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The address belongs to this machine.
    #[error(
        "connection blocked: {0} is a loopback address; set CANOPUS_WASM_ALLOW_LOOPBACK if that is meant"
    )]
    Loopback(IpAddr),
    /// The address is link-local, as those of metadata services are.
    #[error("connection blocked: resolved IP {0} is link-local")]
    LinkLocal(IpAddr),
    /// The address is a metadata service of a cloud.
    #[error("connection blocked: resolved IP {0} is a known cloud metadata address")]
    Metadata(IpAddr),
    /// The address cannot be a server's.
    #[error("connection blocked: {0} is not the address of a server")]
    NotAServer(IpAddr),
    /// The port belongs to the mesh itself.
    #[error(
        "connection blocked: port {0} belongs to the mesh; set CANOPUS_WASM_ALLOW_LOOPBACK if that is meant"
    )]
    MeshPort(u16),
    /// The address is in a forbidden range.
    #[error("connection blocked: resolved IP {address} is in blocked CIDR range {range}")]
    Range {
        /// The address.
        address: IpAddr,
        /// The range.
        range: IpNet,
    },
}

/// Rules for addresses.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allows_local: bool,
    allows_everything: bool,
    blocked: Vec<IpNet>,
}

impl AddressGuard {
    /// Blocks these ranges besides; `allows_local` lets loopback addresses and ports of the mesh through.
    pub fn new(blocked: &[String], allows_local: bool) -> Result<Self, String> {
        let parse = |text: &String| {
            parse_prefix_or_ip(text.trim()).map_err(|error| {
                format!("BLOCKED_CIDRS_IN_WASM_FETCH: {text:?}: {error}; expected ranges such as 10.0.0.0/8")
            })
        };
        let blocked =
            blocked.iter().filter(|text| !text.trim().is_empty()).map(parse).collect::<Result<_, _>>()?;
        Ok(Self { allows_local, allows_everything: false, blocked })
    }

    /// Lets everything through, for servers that the operator of this machine has named.
    pub fn open() -> Self {
        Self { allows_everything: true, ..Self::default() }
    }

    /// Whether an address may be connected to.
    pub fn check(&self, address: SocketAddr) -> Result<(), Blocked> {
        if self.allows_everything {
            return Ok(());
        }
        let ip = address.ip().to_canonical();
        let link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        if link_local {
            return Err(Blocked::LinkLocal(ip));
        }
        if METADATA.contains(&ip) {
            return Err(Blocked::Metadata(ip));
        }
        if ip.is_unspecified() || ip.is_multicast() || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast()) {
            return Err(Blocked::NotAServer(ip));
        }
        if !self.allows_local && ip.is_loopback() {
            return Err(Blocked::Loopback(ip));
        }
        if !self.allows_local && MESH_PORTS.contains(&address.port()) {
            return Err(Blocked::MeshPort(address.port()));
        }
        match self.blocked.iter().find(|range| range.contains(&ip)) {
            Some(range) => Err(Blocked::Range { address: ip, range: *range }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_addresses_are_blocked_in_every_spelling() {
        let guard = AddressGuard::new(&["10.9.0.0/16".to_owned(), String::new()], false).unwrap();
        let check =
            |address: &str| guard.check(address.parse().unwrap()).map_err(|blocked| blocked.to_string());
        for allowed in ["10.0.0.1:80", "192.0.2.1:443", "[fd00::1]:5000"] {
            assert_eq!(check(allowed), Ok(()), "{allowed}");
        }
        for blocked in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[fe80::1]:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "10.0.0.1:15012",
            "10.9.1.1:80",
        ] {
            assert!(check(blocked).is_err(), "{blocked}");
        }
        let local = AddressGuard::new(&[], true).unwrap();
        assert!(local.check("127.0.0.1:15012".parse().unwrap()).is_ok());
        assert!(local.check("169.254.169.254:80".parse().unwrap()).is_err());
        assert!(
            AddressGuard::new(&["ten".to_owned()], false)
                .unwrap_err()
                .contains("BLOCKED_CIDRS_IN_WASM_FETCH")
        );
    }
}
