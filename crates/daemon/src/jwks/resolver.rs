//! Names that users choose, turned into addresses.
//!
//! The system resolves names on a thread that waits, for as long as the name's servers like. Nobody can end that, so a thread
//! keeps its turn until it is done, whether or not somebody still waits for the answer: names that hang hold up other names of
//! users, and nothing else in the process.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// How many names are resolved at once.
const MAX_LOOKUPS: usize = 16;

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves names. Clones share the threads.
#[derive(Clone)]
pub(super) struct Resolver {
    turns: Arc<Semaphore>,
    lookup: Arc<Lookup>,
}

impl Resolver {
    /// Resolves names as the system does.
    pub(super) fn system() -> Self {
        Self::with(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn with(lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { turns: Arc::new(Semaphore::new(MAX_LOOKUPS)), lookup: Arc::new(lookup) }
    }

    /// The addresses of a host, at this port.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(io::Error::other)?;
        let (lookup, host) = (Arc::clone(&self.lookup), host.to_owned());
        let work = move || {
            let _turn = turn;
            lookup(&host, port)
        };
        spawn_blocking(work).await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn names_that_hang_take_no_more_threads_than_there_are_turns() {
        let (is_open, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let resolver = Resolver::with({
            let (is_open, calls) = (Arc::clone(&is_open), Arc::clone(&calls));
            move |_, port| {
                calls.fetch_add(1, Ordering::SeqCst);
                while !is_open.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(vec![([192, 0, 2, 1], port).into()])
            }
        });
        // Callers give up soon; the threads cannot.
        for _ in 0..4 * MAX_LOOKUPS {
            let asked = timeout(Duration::from_millis(5), resolver.resolve("hangs.example.com", 80)).await;
            assert!(asked.is_err());
        }
        assert_eq!(calls.load(Ordering::SeqCst), MAX_LOOKUPS);
        let address = resolver.resolve("192.0.2.7", 443).await.unwrap();
        assert_eq!(address, [SocketAddr::from(([192, 0, 2, 7], 443))], "an address needs no thread");
        is_open.store(true, Ordering::SeqCst);
        let found = resolver.resolve("answers.example.com", 80).await.unwrap();
        assert_eq!(found, [SocketAddr::from(([192, 0, 2, 1], 80))]);
    }
}
