//! Which addresses a proxy can use.

use std::net::IpAddr;
use std::sync::Arc;

use canopus_base::net::parse_ip;

/// Which addresses a proxy can use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addressing {
    /// Whether it has an IPv4 address.
    pub ipv4: bool,
    /// Whether it has an IPv6 address.
    pub ipv6: bool,
    /// The cluster the proxy runs in. It uses the addresses that services have in this cluster.
    pub cluster: Arc<str>,
    /// Whether its agent answers DNS, so that addresses allocated for services without one reach the proxy.
    pub uses_allocated: bool,
}

impl Addressing {
    /// Whether the proxy has an address of the same IP family. Host names count as supported.
    pub fn supports(&self, address: &str) -> bool {
        match parse_ip(address.split('/').next().unwrap_or(address)) {
            Ok(IpAddr::V4(_)) => self.ipv4,
            Ok(IpAddr::V6(_)) => self.ipv6,
            Err(_) => true,
        }
    }

    /// Whether `cluster` is the proxy's own. An empty name matches every cluster.
    pub fn is_in_cluster(&self, cluster: &str) -> bool {
        cluster.is_empty() || self.cluster.is_empty() || *self.cluster == *cluster
    }
}

/// Whether `network` is the proxy's `own`. An empty name matches every network.
pub fn is_in_network(own: &str, network: &str) -> bool {
    network.is_empty() || own.is_empty() || own == network
}
