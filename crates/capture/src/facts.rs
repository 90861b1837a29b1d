//! What the machine tells: its addresses, its DNS servers, the proxy's user.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use nix::unistd::User;

/// Facts that complete the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostFacts {
    /// The addresses of all interfaces, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// The servers of `/etc/resolv.conf`, as written there.
    pub nameservers: Vec<String>,
    /// The number of the proxy's user, if there is such a user.
    pub proxy_user: Option<u32>,
}

/// Why facts cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The kernel does not list addresses.
    #[error("cannot list local addresses: {0}")]
    Addresses(#[source] io::Error),
    /// The resolver's configuration cannot be read.
    #[error("{RESOLV_CONF}: {0}; DNS capture needs it unless --capture-all-dns is set")]
    Resolver(#[source] io::Error),
}

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Longer resolver configurations are cut: a resolver reads three servers of them.
const RESOLV_CONF_MAX: u64 = 1 << 20;

impl HostFacts {
    /// Reads them from the current network namespace. DNS servers are read only if they are needed, because a missing
    /// file matters only then.
    pub fn read(proxy_user: &str, needs_nameservers: bool) -> Result<Self, FactsError> {
        let nameservers =
            if needs_nameservers { read_nameservers().map_err(FactsError::Resolver)? } else { Vec::new() };
        Ok(Self {
            addresses: local_addresses().map_err(FactsError::Addresses)?,
            nameservers,
            proxy_user: User::from_name(proxy_user).ok().flatten().map(|user| user.uid.as_raw()),
        })
    }

    /// The address of the machine, and whether IPv6 is to be captured.
    ///
    /// The first address that others can reach tells the family. With dual stack, IPv6 is captured if any is IPv6.
    pub(crate) fn local_address(&self, is_dual_stack: bool) -> Option<(IpAddr, bool)> {
        let mut reachable = self.addresses.iter().map(IpAddr::to_canonical).filter(is_reachable);
        let first = reachable.next()?;
        Some((first, first.is_ipv6() || (is_dual_stack && reachable.any(|address| address.is_ipv6()))))
    }
}

fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || (address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => address.is_unicast_link_local() || (address.segments()[0] & 0xff0f == 0xff02),
    };
    !address.is_loopback() && !is_link_local
}

fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let ip = |address: SockaddrStorage| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
        (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
        _ => None,
    };
    Ok(getifaddrs()?.filter_map(|interface| interface.address.and_then(ip)).collect())
}

fn read_nameservers() -> io::Result<Vec<String>> {
    let mut text = Vec::new();
    File::open(RESOLV_CONF)?.take(RESOLV_CONF_MAX).read_to_end(&mut text)?;
    Ok(nameservers(&String::from_utf8_lossy(&text)))
}

fn nameservers(text: &str) -> Vec<String> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "nameserver").then(|| words.next().map(str::to_owned))?
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(addresses: &[&str]) -> HostFacts {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        HostFacts { addresses, ..HostFacts::default() }
    }

    #[test]
    fn family_is_that_of_the_first_reachable_address() {
        let v4_first = facts(&["127.0.0.1", "169.254.1.1", "10.0.0.1", "fd00::1"]);
        assert_eq!(v4_first.local_address(false), Some(("10.0.0.1".parse().unwrap(), false)));
        assert_eq!(v4_first.local_address(true), Some(("10.0.0.1".parse().unwrap(), true)));
        assert!(facts(&["::1", "fe80::1", "fd00::1"]).local_address(false).unwrap().1);
        assert_eq!(facts(&["::1", "fe80::1", "127.0.0.1"]).local_address(true), None);
    }

    #[test]
    fn resolver_configuration_yields_its_servers_alone() {
        let text = "# nameserver 1.1.1.1\nsearch a.b\nnameserver 10.0.0.10\n  nameserver\tfd00::10 # x\nnameserver\n";
        assert_eq!(nameservers(text), ["10.0.0.10", "fd00::10"]);
    }
}
