use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

/// Below what systems hand out by themselves, so that no outgoing connection takes a port between its choice and its use.
const PORTS: Range<u16> = 20_000..32_000;

/// How many ports this process has chosen.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// A TCP port of loopback that nothing listened on a moment ago, and that this process has not chosen before.
///
/// Another process may take it first, so prefer port 0 where the component can say which port it got.
pub fn free_port() -> io::Result<u16> {
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes that run at once start far from each other.
    let start = std::process::id().wrapping_mul(7919);
    let mut refusal = io::ErrorKind::AddrNotAvailable.into();
    for _ in 0..count {
        let at = start.wrapping_add(CHOSEN.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + u16::try_from(at).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Starts a component that has to be told its ports, again with others when one was taken in between.
pub(crate) async fn retry_on_taken_port<T>(mut start: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    const TRIES: usize = 3;
    let mut tries = 0;
    loop {
        tries += 1;
        match start().await {
            Err(error) if tries < TRIES && format!("{error:#}").contains("address already in use") => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn no_port_is_chosen_twice() {
        let ports: std::collections::BTreeSet<_> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
    }

    #[tokio::test]
    async fn taken_port_is_tried_again_but_not_for_ever() {
        let mut tries = 0;
        let result = retry_on_taken_port(async || -> Result<()> {
            tries += 1;
            bail!("listen tcp 127.0.0.1:1: bind: address already in use")
        });
        assert!(result.await.is_err());
        assert_eq!(tries, 3);
    }

    #[tokio::test]
    async fn other_failures_are_final() {
        let mut tries = 0;
        let result = retry_on_taken_port(async || -> Result<()> {
            tries += 1;
            bail!("no such flag")
        });
        assert!(result.await.is_err());
        assert_eq!(tries, 1);
    }
}
