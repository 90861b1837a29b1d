//! Addresses that the control plane does not connect to on behalf of users.

use std::net::IpAddr;

use canopus_base::net::parse_prefix;
use canopus_runtime::flags::{BLOCKED_CIDRS_IN_JWKS_URIS, Flags};
use ipnet::IpNet;
use tracing::warn;

/// Where clouds tell their machines secrets, outside of the link-local ranges that are never connected to.
const CLOUD_METADATA: [&str; 2] = ["100.100.100.200/32", "fd00:ec2::/32"];

/// The addresses that are not connected to.
#[derive(Clone, Debug)]
pub(super) struct Blocked(Vec<IpNet>);

impl Blocked {
    /// Those that nobody needs, and those that the flag names.
    pub(super) fn new(flags: &Flags) -> Self {
        let named = flags.get(BLOCKED_CIDRS_IN_JWKS_URIS).iter().map(String::as_str);
        let ranges = CLOUD_METADATA.into_iter().chain(named).filter_map(|text| match parse_prefix(text) {
            Ok(range) => Some(range),
            Err(error) => {
                warn!(%error, "BLOCKED_CIDRS_IN_JWKS_URIS");
                None
            }
        });
        Self(ranges.collect())
    }

    /// Whether an address is one of them.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => {
                address.is_unicast_link_local() || address.segments()[0] & 0xff0f == 0xff02
            }
        };
        is_link_local || self.0.iter().any(|range| range.contains(&address))
    }
}
