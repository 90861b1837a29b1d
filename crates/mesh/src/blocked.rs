//! Addresses that are never fetched from on behalf of users, because machines keep secrets there.

use std::net::IpAddr;

use canopus_base::net::{NetError, parse_prefix};
use ipnet::IpNet;

/// Cloud metadata services outside of the link-local ranges, which are always blocked.
const CLOUD_METADATA: [&str; 2] = ["100.100.100.200/32", "fd00:ec2::/32"];

/// A set of blocked addresses.
#[derive(Clone, Debug)]
pub struct Blocked(Vec<IpNet>);

impl Blocked {
    /// Blocks link-local and metadata addresses and the given CIDRs. Also returns the errors of CIDRs that cannot be parsed.
    pub fn new(ranges: &[String]) -> (Self, Vec<NetError>) {
        let mut errors = Vec::new();
        let named = CLOUD_METADATA.into_iter().chain(ranges.iter().map(String::as_str));
        let read = named.filter_map(|text| parse_prefix(text).map_err(|error| errors.push(error)).ok());
        (Self(read.collect()), errors)
    }

    /// Whether an address is blocked.
    pub fn contains(&self, address: IpAddr) -> bool {
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
