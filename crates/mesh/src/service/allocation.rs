//! Addresses for services that have none, allocated by hashing their names.
//!
//! All control planes of a mesh must allocate the same address for a name without talking to each other. So a name is hashed
//! to a slot of a table, with open addressing on collisions, and the slots are the addresses `240.240.0.1` to
//! `240.240.255.254` in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::host;

use super::{NO_ADDRESS, Registry, Resolution, Service};

/// The number of addresses, without those that end in 0 or 255.
const SLOTS: u32 = 256 * 254;
/// A prime below [`SLOTS`], for the probe step on collisions.
const PRIME: u32 = 65_011;
/// The number of values of the last octet: 255 is left out.
const LAST_PARTS: u32 = 255;

/// The IPv4 and IPv6 addresses of services that have none, by namespace and host.
pub(super) type Allocated = BTreeMap<(Arc<str>, Arc<str>), (String, String)>;

/// Allocates addresses for every service that needs one. Earlier services win collisions.
pub(super) fn allocate(services: &[Arc<Service>]) -> Allocated {
    let mut slots: BTreeMap<u32, &Service> = BTreeMap::new();
    for service in services.iter().filter(|service| needs_address(service)) {
        if slots.len() >= SLOTS as usize {
            break;
        }
        slots.insert(free_slot(&slots, hash(service)), service);
    }
    let mut given = Allocated::new();
    let mut skipped = 0;
    for (slot, service) in slots {
        let mut number = slot + 1 + skipped;
        if number % LAST_PARTS == 0 {
            number += 1;
            skipped += 1;
        }
        // Several definitions of one name share the address of the first slot.
        let key = (service.namespace.clone(), service.host.clone());
        given.entry(key).or_insert_with(|| addresses(number / LAST_PARTS, number % LAST_PARTS));
    }
    given
}

fn addresses(third: u32, fourth: u32) -> (String, String) {
    let in_v6 = if third == 0 { String::new() } else { format!("{third:x}") };
    (format!("240.240.{third}.{fourth}"), format!("2001:2::f0f0:{in_v6}{fourth:x}"))
}

/// Adds the allocated addresses to a service.
pub(super) fn give(allocated: &Allocated, mut service: Arc<Service>) -> Arc<Service> {
    if needs_address(&service)
        && let Some((v4, v6)) = allocated.get(&(service.namespace.clone(), service.host.clone()))
    {
        let service = Arc::make_mut(&mut service);
        service.allocated_v4 = Some(v4.clone());
        service.allocated_v6 = Some(v6.clone());
    }
    service
}

/// Whether a service needs an allocated address. Wildcards and passthrough services cannot use one.
fn needs_address(service: &Service) -> bool {
    service.registry == Registry::External
        && service.address == NO_ADDRESS
        && !host::is_wildcard(&service.host)
        && service.resolution != Resolution::Passthrough
}

/// Finds a free slot for a hash by double hashing.
fn free_slot(taken: &BTreeMap<u32, &Service>, hash: u32) -> u32 {
    let first = hash % SLOTS;
    let step = PRIME - hash % PRIME;
    // Parity: Istio probes modulo one slot less than the table has.
    let others = (1..).map(|i: u32| hash.wrapping_add(i.wrapping_mul(step)) % (SLOTS - 1));
    let mut candidates = std::iter::once(first).chain(others);
    candidates.find(|slot| !taken.contains_key(slot)).unwrap_or(first)
}

/// FNV-1a of `namespace/host`.
fn hash(service: &Service) -> u32 {
    let bytes = service.namespace.bytes().chain(*b"/").chain(service.host.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use canopus_runtime::flags::Flags;

    use crate::service::AllServices;
    use crate::testing;
    use crate::world::MeshSettings;

    #[test]
    fn addresses_are_allocated_here_when_no_status_is_stored() {
        let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\n\
                     spec: {hosts: [a.example.com], ports: [{name: tls, number: 443, protocol: TLS}], resolution: DNS}";
        let allocated = |stores_statuses| {
            let settings = MeshSettings { stores_statuses, ..MeshSettings::default() };
            let services = testing::world(settings, entry).snapshot().get::<AllServices>(&()).unwrap();
            services.iter().next().unwrap().allocated_v4.clone()
        };
        assert_eq!(allocated(true), None);
        assert!(allocated(false).is_some_and(|address| address.starts_with("240.240.")));
    }

    fn addresses(entries: &str) -> Vec<(String, Option<String>, Option<String>)> {
        let flags = Flags::read(&[("PILOT_ENABLE_IP_AUTOALLOCATE", "false")]);
        let settings = MeshSettings { flags: flags.into(), ..MeshSettings::default() };
        let services = testing::world(settings, entries).snapshot().get::<AllServices>(&()).unwrap();
        let shown = services.iter().map(|service| {
            (service.host.to_string(), service.allocated_v4.clone(), service.allocated_v6.clone())
        });
        shown.collect()
    }

    #[test]
    fn name_has_one_address_however_often_it_is_defined() {
        let entry = |name: &str, host: &str, resolution: &str| {
            format!(
                "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {name}, namespace: default}}
spec: {{hosts: ['{host}'], resolution: {resolution}, ports: [{{number: 80, name: http, protocol: HTTP}}]}}
"
            )
        };
        let entries = [
            entry("a", "istio.io", "DNS"),
            entry("b", "istio.io", "DNS"),
            entry("c", "*.io", "NONE"),
            entry("d", "passed.io", "NONE"),
        ];
        let given = (Some("240.240.91.120".to_owned()), Some("2001:2::f0f0:5b78".to_owned()));
        let of = |host: &str| {
            addresses(&entries.concat()).into_iter().filter(|(name, ..)| name == host).collect::<Vec<_>>()
        };
        assert_eq!(of("istio.io"), vec![("istio.io".to_owned(), given.0, given.1); 2]);
        for host in ["*.io", "passed.io"] {
            assert_eq!(of(host), [(host.to_owned(), None, None)]);
        }
    }
}
