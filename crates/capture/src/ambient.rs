//! What ambient capture is told: of the node, and of a single pod.
//!
//! The rules themselves are in [`crate::iptables::ambient_pod`] and [`crate::nftables::ambient_pod`]. A pod's rules send
//! its traffic to ztunnel's sockets in the same network namespace; the node's rules give probes of the kubelet a source
//! address of their own, by which pods let them through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::{Family, InterfaceName};

/// Settings of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmbientConfig {
    /// Whether IPv6 is captured as well.
    pub ipv6: bool,
    /// Capture DNS queries of pods that do not say otherwise.
    pub redirect_dns: bool,
    /// The source address of the kubelet's probes.
    pub probe_source_v4: Ipv4Addr,
    /// The same, for IPv6.
    pub probe_source_v6: Ipv6Addr,
}

impl Default for AmbientConfig {
    fn default() -> Self {
        Self {
            ipv6: false,
            redirect_dns: false,
            probe_source_v4: Ipv4Addr::new(169, 254, 7, 127),
            probe_source_v6: Ipv6Addr::new(0xfd16, 0x9254, 0x7127, 0x1337, 0xffff, 0xffff, 0xffff, 0xffff),
        }
    }
}

impl AmbientConfig {
    /// The families that are captured.
    pub fn families(&self) -> &'static [Family] {
        if self.ipv6 { &[Family::V4, Family::V6] } else { &[Family::V4] }
    }

    pub(crate) fn probe_source(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.probe_source_v4.into(),
            Family::V6 => self.probe_source_v6.into(),
        }
    }

    pub(crate) fn captures_dns(&self, pod: &PodOverrides) -> bool {
        pod.dns_capture.unwrap_or(self.redirect_dns)
    }
}

/// What a pod's annotations say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodOverrides {
    /// Interfaces whose inbound traffic is outbound traffic of the pod.
    pub virtual_interfaces: Vec<InterfaceName>,
    /// Do not capture inbound traffic.
    pub ingress_mode: bool,
    /// Capture DNS queries or not, whatever the node does.
    pub dns_capture: Option<bool>,
}

/// ztunnel's port for outbound connections.
pub(crate) const OUTBOUND_PORT: u16 = 15001;
/// ztunnel's port for inbound connections that are not tunnelled.
pub(crate) const INBOUND_PLAINTEXT_PORT: u16 = 15006;
/// ztunnel's port for tunnels, to which clients connect themselves.
pub(crate) const INBOUND_PORT: u16 = 15008;

/// The mark ztunnel puts on its own packets.
pub(crate) const ZTUNNEL_MARK: &str = "0x539";
/// The mark of connections that ztunnel's packets belong to.
pub(crate) const CONNECTION_MARK: &str = "0x111";
/// The bits of a mark that are ours.
pub(crate) const MARK_MASK: &str = "0xfff";

/// The set of addresses of the node's pods, before the family's suffix.
pub(crate) const PROBE_SET: &str = "istio-inpod-probes";

/// The address that means the pod itself.
pub(crate) fn loopback(family: Family) -> &'static str {
    match family {
        Family::V4 => "127.0.0.1/32",
        Family::V6 => "::1/128",
    }
}

/// The name of the set of pod addresses.
pub fn probe_set(family: Family) -> String {
    match family {
        Family::V4 => format!("{PROBE_SET}-v4"),
        Family::V6 => format!("{PROBE_SET}-v6"),
    }
}
