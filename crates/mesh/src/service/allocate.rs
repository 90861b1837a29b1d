//! Addresses for services without one, computed rather than kept: for proxies whose agents answer DNS, in meshes where no
//! controller allocates.
//!
//! Every control plane of a mesh computes the same addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::host;

use super::{NO_ADDRESS, Resolution, Service};

/// How many addresses there are: 254 in each of 256 blocks.
const SLOTS: u32 = 256 * 254;
/// The step to the next slot where one is taken depends on this prime.
const PRIME: u32 = 65011;

/// Gives each service that can have one an address of 240.240.0.0/16 and one of 2001:2::/48.
pub(super) fn allocate(services: &mut [Arc<Service>]) {
    let mut slots: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, service) in services.iter().enumerate() {
        if slots.len() >= SLOTS as usize - 1 {
            break;
        }
        if can_have_one(service) {
            slots.insert(free_slot(&slots, &key(service)), index);
        }
    }
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    let mut skipped = 0;
    for (slot, index) in slots {
        // Parity: a number that would make an address end in 0 is skipped, and all after it move on.
        let mut number = slot + 1 + skipped;
        if number.is_multiple_of(255) {
            number += 1;
            skipped += 1;
        }
        let number = *given.entry(key(&services[index])).or_insert(number);
        let (high, low) = (number / 255, number % 255);
        let service = Arc::make_mut(&mut services[index]);
        service.allocated_v4 = Some(format!("240.240.{high}.{low}"));
        // Parity: the last group is the two numbers in hexadecimal, one after the other.
        let group = if high == 0 { format!("{low:x}") } else { format!("{high:x}{low:x}") };
        service.allocated_v6 = Some(format!("2001:2::f0f0:{group}"));
    }
}

/// Without resolution the address a client asks for is all that is known of its destination.
fn can_have_one(service: &Service) -> bool {
    !service.is_kubernetes()
        && service.address == NO_ADDRESS
        && service.resolution != Resolution::Passthrough
        && !host::is_wildcard(&service.host)
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.host)
}

fn free_slot(taken: &BTreeMap<u32, usize>, key: &str) -> u32 {
    let hash = fnv1a(key.as_bytes());
    let first = hash % SLOTS;
    if !taken.contains_key(&first) {
        return first;
    }
    let step = PRIME - hash % PRIME;
    let mut at = hash;
    loop {
        at = at.wrapping_add(step);
        let slot = at % (SLOTS - 1);
        if !taken.contains_key(&slot) {
            return slot;
        }
    }
}

/// FNV-1a with 32 bits.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_published_function() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn another_slot_is_found_when_the_first_is_taken() {
        let first = free_slot(&BTreeMap::new(), "ns/a.example.com");
        let second = free_slot(&BTreeMap::from([(first, 0)]), "ns/a.example.com");
        assert_ne!(first, second);
    }
}
