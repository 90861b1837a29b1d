//! Streams that each address may open without being slowed down.
//!
//! A proxy opens a stream or two when it connects, and again when it connects anew. That much is free for every address, so a
//! fleet that comes back at once is let in at once. Whoever opens more shares the rate that is meant for everybody, and cannot
//! use up what others need.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Streams an address may open after a quiet time.
const BURST: u32 = 8;

/// The time after which it may open one more.
const REFILL: Duration = Duration::from_secs(2);

/// Addresses that are remembered. A quiet one is forgotten first, which costs nobody anything.
const MAX_ADDRESSES: usize = 65_536;

/// How many streams each address has opened lately.
#[derive(Debug, Default)]
pub(crate) struct PeerAllowance {
    /// When an address will have its whole burst again.
    full_at: Mutex<BTreeMap<IpAddr, Instant>>,
}

impl PeerAllowance {
    /// Whether an address may open a stream now without being slowed down.
    pub(crate) fn take(&self, address: IpAddr) -> bool {
        self.take_at(address.to_canonical(), Instant::now())
    }

    fn take_at(&self, address: IpAddr, now: Instant) -> bool {
        let mut full_at = self.full_at.lock();
        if full_at.len() >= MAX_ADDRESSES && !full_at.contains_key(&address) {
            full_at.retain(|_, full| *full > now);
            if full_at.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        let full = full_at.entry(address).or_insert(now);
        let next = (*full).max(now) + REFILL;
        if next > now + REFILL * BURST {
            return false;
        }
        *full = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn address_that_opens_many_streams_uses_up_its_own_allowance_and_nobody_elses() {
        let (allowance, now) = (PeerAllowance::default(), Instant::now());
        let (greedy, modest) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let taken = (0..1000).filter(|_| allowance.take_at(greedy, now)).count();
        assert_eq!(taken, BURST as usize);
        assert!(allowance.take_at(modest, now));
        assert!(!allowance.take_at(greedy, now));
        assert!(allowance.take_at(greedy, now + REFILL));
    }

    #[tokio::test]
    async fn fleet_of_any_size_is_let_in_at_once() {
        let (allowance, now) = (PeerAllowance::default(), Instant::now());
        for number in 0..10_000_u32 {
            assert!(allowance.take_at(IpAddr::from(number.to_be_bytes()), now));
        }
    }

    #[tokio::test]
    async fn addresses_that_were_quiet_are_forgotten() {
        let (allowance, now) = (PeerAllowance::default(), Instant::now());
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..MAX_ADDRESSES as u32 {
            assert!(allowance.take_at(address(number), now));
        }
        assert!(!allowance.take_at(address(u32::MAX), now), "all of them were here a moment ago");
        assert!(allowance.take_at(address(u32::MAX), now + REFILL * BURST));
        assert_eq!(allowance.full_at.lock().len(), 1);
    }
}
