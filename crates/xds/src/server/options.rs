//! Settings of the server.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::session::Limits;

/// Settings of the ADS server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The largest request, in bytes.
    pub max_request_bytes: usize,
    /// How much one client may ask for.
    pub limits: Limits,
    /// How many connections a port may have. Whoever comes on top is hung up on: those who came before are served.
    pub max_connections: usize,
    /// How many streams there may be on all connections together. Who comes on top is refused.
    pub max_streams: usize,
    /// How many streams one connection may have.
    pub max_streams_per_connection: u32,
    /// How many streams may be starting at once. The others wait for their turn.
    pub max_starting_streams: usize,
    /// How often an idle connection is probed; `None` leaves it alone.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to a probe may take.
    pub keepalive_timeout: Duration,
    /// How long a connection may last, give or take a tenth, before the client is asked to open another.
    pub max_connection_age: Option<Duration>,
    /// How long a client may take to say who it is once its stream is open.
    pub first_request_timeout: Duration,
    /// How long routes wait until a client has the clusters they name, and clusters until nothing names them any more.
    pub cluster_patience: Duration,
    /// How many bytes of requests that are not whole yet the server holds for all clients together. Whoever sends more than
    /// that is refused: those who came before are served.
    pub max_pending_bytes: usize,
    /// How many bytes the nodes of all clients may have together, for as long as their streams last. Who comes on top is refused.
    pub max_node_bytes: usize,
    /// How long the server waits for its streams to end when it stops.
    pub drain_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_request_bytes: 4 * 1024 * 1024,
            limits: Limits::default(),
            max_connections: 65_536,
            max_streams: 262_144,
            max_streams_per_connection: 100_000,
            max_starting_streams: 64,
            keepalive_interval: Some(Duration::from_secs(30)),
            keepalive_timeout: Duration::from_secs(10),
            max_connection_age: None,
            first_request_timeout: Duration::from_secs(30),
            cluster_patience: Duration::from_secs(10),
            max_pending_bytes: 256 * 1024 * 1024,
            max_node_bytes: 1024 * 1024 * 1024,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// How long a new connection may last. Ages differ by up to a tenth either way, as those of gRPC's servers do: proxies that
    /// connected at once must not all come back at once.
    pub(super) fn draw_connection_age(&self) -> Option<Duration> {
        let age = self.max_connection_age?;
        let permille = 900 + RandomState::new().hash_one(()) % 201;
        Some(age / 1000 * u32::try_from(permille).unwrap_or(1000))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn connections_of_one_moment_end_at_different_ones() {
        let age = Duration::from_secs(1800);
        let options = Options { max_connection_age: Some(age), ..Options::default() };
        let drawn: BTreeSet<Duration> = (0..100).filter_map(|_| options.draw_connection_age()).collect();
        assert!(drawn.len() > 10, "{drawn:?}");
        let (first, last) = (*drawn.first().unwrap(), *drawn.last().unwrap());
        assert!(first >= age * 9 / 10 && last <= age * 11 / 10, "{first:?} to {last:?}");
        assert_eq!(Options::default().draw_connection_age(), None);
    }
}
