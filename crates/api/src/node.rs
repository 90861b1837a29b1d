//! What a proxy says about itself when it connects: its node id, its metadata and its version.

mod metadata;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use canopus_base::net::parse_ip;

pub use metadata::{MetadataError, NodeMetadata, PodPort, PodPorts, RawMetadata, StringBool, StringList};

/// The part a proxy plays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeKind {
    /// Beside one workload.
    Sidecar,
    /// On its own, at an edge of the mesh.
    Router,
    /// On its own, in front of the services of an ambient namespace.
    Waypoint,
    /// On a Kubernetes node, for the layer-4 traffic of all its ambient workloads.
    Ztunnel,
    /// The gateway for agent protocols.
    Agentgateway,
}

/// A proxy's node id, `kind~address~id~domain`, with the addresses its metadata adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeId {
    /// The part it plays.
    pub kind: NodeKind,
    /// IP addresses from the metadata, else the one in the node ID. Never empty.
    pub addresses: Vec<IpAddr>,
    /// Usually `pod.namespace`.
    pub id: String,
    /// The DNS domain its short names are in, usually `namespace.svc.cluster.local`.
    pub domain: String,
}

/// Why a node id is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeIdError {
    /// The ID does not have four parts separated by `~`.
    #[error("missing parts in the service node {node:?}")]
    Parts {
        /// The node id.
        node: String,
    },
    /// The first part names no kind of proxy.
    #[error(
        "invalid node type (valid types: [sidecar router waypoint ztunnel]) in the service node {node:?}"
    )]
    Kind {
        /// The node id.
        node: String,
    },
    /// Neither the metadata nor the node ID has an address.
    #[error("no valid IP address in the service node id or metadata")]
    Address,
}

impl NodeKind {
    /// The kind as node ids spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::Router => "router",
            Self::Waypoint => "waypoint",
            Self::Ztunnel => "ztunnel",
            Self::Agentgateway => "agentgateway",
        }
    }

    /// The kind of this name, which is case-sensitive.
    pub fn parse(name: &str) -> Option<Self> {
        use NodeKind::{Agentgateway, Router, Sidecar, Waypoint, Ztunnel};
        [Sidecar, Router, Waypoint, Ztunnel, Agentgateway].into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NodeId {
    /// Reads a node id. The metadata's addresses count only if every one of them is an address.
    pub fn parse(node: &str, metadata: &NodeMetadata) -> Result<Self, NodeIdError> {
        let [kind, address, id, domain] = node.split('~').collect::<Vec<_>>()[..] else {
            return Err(NodeIdError::Parts { node: node.into() });
        };
        let kind = NodeKind::parse(kind).ok_or_else(|| NodeIdError::Kind { node: node.into() })?;
        let addresses = all_addresses(&metadata.instance_ips.0)
            .or_else(|| Some(vec![parse_ip(address).ok()?]))
            .ok_or(NodeIdError::Address)?;
        Ok(Self { kind, addresses, id: id.into(), domain: domain.into() })
    }
}

fn all_addresses(texts: &[String]) -> Option<Vec<IpAddr>> {
    let addresses: Vec<_> = texts.iter().filter_map(|text| parse_ip(text).ok()).collect();
    (!texts.is_empty() && addresses.len() == texts.len()).then_some(addresses)
}

/// The Istio version a proxy was built from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// A version to compare with, of which trailing numbers may be left open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionPrefix {
    /// The first number.
    pub major: u32,
    /// The second number, if it matters.
    pub minor: Option<u32>,
    /// The third number, if it and the second matter.
    pub patch: Option<u32>,
}

/// Stands for a number that is not given: later than any release.
const LATEST: u32 = 65535;

impl Version {
    /// Later than any release: what a proxy of a development build counts as.
    pub const MAX: Self = Self { major: LATEST, minor: LATEST, patch: LATEST };

    /// Reads the version at the start of a text such as `1.32.0-rc.1`; [`MAX`](Self::MAX) if there is none.
    ///
    /// A version without a third number counts as the latest patch of its minor release.
    pub fn parse(text: &str) -> Self {
        let text = text.strip_prefix("release-").unwrap_or(text);
        Self::parse_release(text).unwrap_or(Self::MAX)
    }

    fn parse_release(text: &str) -> Option<Self> {
        // Parity: a zero ends the first number, so that 10.1 is no version and counts as the latest.
        let (major, rest) = leading(text, |b| matches!(b, b'1'..=b'9'))?;
        let (minor, rest) = leading(rest.strip_prefix('.')?, |b| b.is_ascii_digit())?;
        let patch = rest
            .strip_prefix('.')
            .and_then(|rest| leading(rest, |b| b.is_ascii_digit()))
            .map_or(LATEST, |(patch, _)| patch);
        Some(Self { major, minor, patch })
    }

    /// Compares only the numbers that `other` gives.
    pub fn compare(self, other: VersionPrefix) -> Ordering {
        let minor = || other.minor.map_or(Ordering::Equal, |minor| self.minor.cmp(&minor));
        let patch = || match (other.minor, other.patch) {
            (Some(_), Some(patch)) => self.patch.cmp(&patch),
            _ => Ordering::Equal,
        };
        self.major.cmp(&other.major).then_with(minor).then_with(patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The number at the start of `text` and what follows it; a number too large to hold is the largest.
fn leading(text: &str, is_digit: impl Fn(u8) -> bool) -> Option<(u32, &str)> {
    let end = text.bytes().position(|b| !is_digit(b)).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(u32::MAX), rest))
}

/// The locality `region/zone/subzone` of a label, which Kubernetes lets users write only with dots.
pub fn locality_of_label(label: &str) -> String {
    if label.contains('/') { label.to_owned() } else { label.replace('.', "/") }
}
