//! Addresses for the hosts of ServiceEntries that have none, to be written into the status of the entries.
//!
//! Unlike addresses allocated by hashing (`allocation`), these are stored: an entry keeps the address in its status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use canopus_api::istio::ServiceEntry;
use canopus_base::host;
use canopus_base::net::{IpNet, parse_ip, parse_prefix};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::ServiceEntryAddress;
use canopus_proto::istio::networking::v1alpha3::service_entry::Resolution;
use canopus_runtime::flags::{PILOT_IP_AUTOALLOCATE_IPV4_PREFIX, PILOT_IP_AUTOALLOCATE_IPV6_PREFIX};

use super::entry::wants_allocation;
use crate::world::{Origin, all_objects, oldest_first, settings};

/// The desired status addresses of the ServiceEntries whose status differs from it.
pub struct PlannedAddresses;

impl Query for PlannedAddresses {
    const NAME: &'static str = "planned_service_entry_addresses";
    type Key = ();
    type Value = BTreeMap<Origin, Vec<ServiceEntryAddress>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let mut v4 = Pool::new(settings.flags.get(PILOT_IP_AUTOALLOCATE_IPV4_PREFIX));
        let mut v6 = Pool::new(settings.flags.get(PILOT_IP_AUTOALLOCATE_IPV6_PREFIX));
        let mut entries = all_objects::<ServiceEntry>(ctx);
        oldest_first(&mut entries);
        // Addresses that users wrote are reserved first, then allocated ones, oldest entry first.
        for (_, entry) in &entries {
            let written = entry.spec.addresses.iter().filter_map(|address| parse_ip(address).ok());
            for address in written {
                v4.take(address);
                v6.take(address);
            }
        }
        let mut kept: BTreeMap<&Origin, Vec<(String, IpAddr)>> = BTreeMap::new();
        for (origin, entry) in entries.iter().filter(|(_, entry)| wants_allocation(ctx, entry)) {
            let given: Vec<_> = status_addresses(entry).collect();
            let is_free = given.iter().all(|(_, address)| !v4.is_taken(*address) && !v6.is_taken(*address));
            if is_free {
                given.iter().for_each(|(_, address)| {
                    v4.take(*address);
                    v6.take(*address);
                });
                kept.insert(origin, given);
            }
        }
        let mut planned = Self::Value::new();
        for (origin, entry) in &entries {
            let addresses = if wants_allocation(ctx, entry) {
                let known = kept.get(origin).map_or(&[][..], Vec::as_slice);
                addresses(entry, known, [&mut v4, &mut v6])
            } else {
                Vec::new()
            };
            if addresses != entry.status.addresses {
                planned.insert(origin.clone(), addresses);
            }
        }
        planned
    }
}

/// The addresses in the status of an entry.
fn status_addresses(entry: &ServiceEntry) -> impl Iterator<Item = (String, IpAddr)> {
    let given = entry.status.addresses.iter();
    given.filter_map(|given| Some((given.host.clone(), parse_ip(&given.value).ok()?)))
}

/// The addresses for the hosts of an entry: those they have, else the next of each pool.
fn addresses(
    entry: &ServiceEntry,
    known: &[(String, IpAddr)],
    mut pools: [&mut Pool; 2],
) -> Vec<ServiceEntryAddress> {
    let dynamic = entry.spec.resolution() == Resolution::DynamicDns;
    let mut seen = BTreeSet::new();
    let hosts = entry.spec.hosts.iter().filter(|name| dynamic || !host::is_wildcard(name));
    let mut planned = Vec::new();
    for host in hosts.filter(|host| seen.insert(host.as_str())) {
        let own = known.iter().filter(|(name, _)| name == host).map(|(_, address)| *address);
        let mut found: Vec<_> = own.collect();
        if found.is_empty() {
            found = pools.iter_mut().filter_map(|pool| pool.next()).collect();
        }
        planned.extend(
            found
                .iter()
                .map(|address| ServiceEntryAddress { value: address.to_string(), host: host.clone() }),
        );
    }
    planned
}

/// A range of addresses to allocate from.
struct Pool {
    range: Option<IpNet>,
    taken: BTreeSet<IpAddr>,
    last: Option<IpAddr>,
}

impl Pool {
    fn new(range: &str) -> Self {
        Self { range: parse_prefix(range).ok(), taken: BTreeSet::new(), last: None }
    }

    fn take(&mut self, address: IpAddr) {
        if self.range.is_some_and(|range| range.contains(&address)) {
            self.taken.insert(address);
        }
    }

    fn is_taken(&self, address: IpAddr) -> bool {
        self.taken.contains(&address)
    }

    /// Takes the next free address. Returns `None` if the range is exhausted.
    fn next(&mut self) -> Option<IpAddr> {
        let range = self.range?;
        let mut address = next_address(self.last.unwrap_or(range.network()))?;
        while self.taken.contains(&address) {
            address = next_address(address)?;
        }
        if !range.contains(&address) {
            return None;
        }
        self.taken.insert(address);
        self.last = Some(address);
        Some(address)
    }
}

fn next_address(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().checked_add(1)?).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().checked_add(1)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_gives_what_is_free_from_its_first_usable_address() {
        let mut pool = Pool::new("240.240.0.0/30");
        pool.take("240.240.0.2".parse().unwrap());
        pool.take("10.0.0.1".parse().unwrap());
        assert_eq!(pool.next(), Some("240.240.0.1".parse().unwrap()));
        assert_eq!(pool.next(), Some("240.240.0.3".parse().unwrap()));
        assert_eq!(pool.next(), None);
    }
}
