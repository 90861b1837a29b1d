//! What to capture: the typed form of Istio's capture settings.

mod error;
mod value;

use std::net::Ipv4Addr;

use canopus_base::net::{IpNet, Ipv4Net};

pub use error::ConfigError;
pub(crate) use value::items;
pub use value::{InterfaceName, Owner, PortRange};

/// An address family. Each has its own iptables program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of a prefix.
    pub fn from_prefix(net: &IpNet) -> Self {
        if matches!(net, IpNet::V4(_)) { Self::V4 } else { Self::V6 }
    }

    /// The source address of connections from the proxy's inbound passthrough cluster.
    pub(crate) fn passthrough_source(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.6/32",
            Self::V6 => "::6/128",
        }
    }
}

/// How inbound connections reach the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterceptionMode {
    /// The destination is rewritten; the proxy asks the kernel for the original one.
    #[default]
    Redirect,
    /// Packets are routed to the proxy unchanged, so that it sees the client's address.
    Tproxy,
}

/// Which inbound TCP ports are captured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum InboundPorts {
    /// None.
    #[default]
    None,
    /// All but these.
    AllExcept(Vec<PortRange>),
    /// Only these ports.
    Only(Vec<PortRange>),
}

/// Which destinations of outbound TCP connections are captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutboundRanges {
    /// All.
    All,
    /// Only destinations in one of these prefixes.
    Only(Vec<IpNet>),
}

impl OutboundRanges {
    /// Whether loopback addresses are asked for by name.
    pub(crate) fn names_loopback(&self) -> bool {
        match self {
            Self::All => false,
            Self::Only(ranges) => ranges.iter().any(|range| range.addr().is_loopback()),
        }
    }
}

/// Which groups' outbound connections are captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnerGroups {
    /// Packets of all groups but these.
    AllExcept(Vec<Owner>),
    /// Packets of these groups only.
    Only(Vec<Owner>),
}

/// Which DNS queries are captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DnsCapture {
    /// All to port 53.
    All,
    /// Queries to these servers. Addresses are kept as written.
    Servers {
        /// IPv4 servers.
        v4: Vec<String>,
        /// IPv6 servers.
        v6: Vec<String>,
    },
}

impl DnsCapture {
    /// Whether some query of this family is captured.
    pub(crate) fn covers(&self, family: Family) -> bool {
        matches!(self, Self::All) || !self.servers(family).is_empty()
    }

    /// The servers of a family as single-address prefixes; none when all queries are captured.
    pub(crate) fn servers(&self, family: Family) -> Vec<String> {
        match (self, family) {
            (Self::All, _) => Vec::new(),
            (Self::Servers { v4, .. }, Family::V4) => {
                v4.iter().map(|server| format!("{server}/32")).collect()
            }
            (Self::Servers { v6, .. }, Family::V6) => {
                v6.iter().map(|server| format!("{server}/128")).collect()
            }
        }
    }
}

/// What is captured and where it is sent. Every value is safe to stand in a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureConfig {
    /// The proxy's port for outbound connections.
    pub proxy_port: u16,
    /// The proxy's port for inbound connections.
    pub inbound_capture_port: u16,
    /// The port of tunnels, which is never captured.
    pub inbound_tunnel_port: u16,
    /// The users the proxy runs as; their traffic is not captured again.
    pub proxy_uids: Vec<Owner>,
    /// The groups the proxy runs as.
    pub proxy_gids: Vec<Owner>,
    /// How inbound connections reach the proxy.
    pub interception_mode: InterceptionMode,
    /// The packet mark of connections that TPROXY captured.
    pub tproxy_mark: u32,
    /// The routing table that delivers marked packets locally.
    pub tproxy_route_table: u32,
    /// Which inbound ports are captured.
    pub inbound_ports: InboundPorts,
    /// Groups whose outbound connections are captured.
    pub owner_groups: OwnerGroups,
    /// Outbound ports that are captured whatever the destination.
    pub outbound_ports_include: Vec<PortRange>,
    /// Outbound ports that are never captured.
    pub outbound_ports_exclude: Vec<PortRange>,
    /// Destinations that are captured.
    pub outbound_ranges: OutboundRanges,
    /// Destinations that are never captured.
    pub outbound_ranges_exclude: Vec<IpNet>,
    /// Interfaces of virtual machines, whose inbound traffic is outbound traffic of the pod.
    pub virtual_interfaces: Vec<InterfaceName>,
    /// Interfaces whose traffic is never captured.
    pub excluded_interfaces: Vec<InterfaceName>,
    /// Which DNS queries are captured; `None` captures none.
    pub dns: Option<DnsCapture>,
    /// Drop packets that connection tracking finds invalid.
    pub drop_invalid: bool,
    /// Whether IPv6 is captured as well.
    pub ipv6: bool,
    /// The IPv4 destinations that mean the application's own container.
    pub loopback_v4: Ipv4Net,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self {
            proxy_port: 15001,
            inbound_capture_port: 15006,
            inbound_tunnel_port: 15008,
            proxy_uids: vec![Owner::id(1337)],
            proxy_gids: vec![Owner::id(1337)],
            interception_mode: InterceptionMode::Redirect,
            tproxy_mark: 1337,
            tproxy_route_table: 133,
            inbound_ports: InboundPorts::None,
            owner_groups: OwnerGroups::AllExcept(Vec::new()),
            outbound_ports_include: Vec::new(),
            outbound_ports_exclude: Vec::new(),
            outbound_ranges: OutboundRanges::Only(Vec::new()),
            outbound_ranges_exclude: Vec::new(),
            virtual_interfaces: Vec::new(),
            excluded_interfaces: Vec::new(),
            dns: None,
            drop_invalid: false,
            ipv6: false,
            loopback_v4: Ipv4Net::from(Ipv4Addr::LOCALHOST),
        }
    }
}

impl CaptureConfig {
    /// The families that are captured.
    pub fn families(&self) -> &'static [Family] {
        if self.ipv6 { &[Family::V4, Family::V6] } else { &[Family::V4] }
    }

    /// The destinations that mean the application's own container.
    pub(crate) fn loopback(&self, family: Family) -> String {
        match family {
            Family::V4 => self.loopback_v4.to_string(),
            Family::V6 => "::1/128".to_owned(),
        }
    }

    pub(crate) fn is_tproxy(&self) -> bool {
        self.interception_mode == InterceptionMode::Tproxy
    }

    /// Whether TPROXY needs its policy route.
    pub(crate) fn needs_tproxy_route(&self) -> bool {
        self.is_tproxy() && self.inbound_ports != InboundPorts::None
    }

    /// The prefixes of one family.
    pub(crate) fn ranges_in_family(ranges: &[IpNet], family: Family) -> impl Iterator<Item = &IpNet> {
        ranges.iter().filter(move |range| Family::from_prefix(range) == family)
    }
}
