//! Envoy's admin interface.

use std::net::SocketAddr;
use std::time::Duration;

use crate::local_http::{self as http, HttpError};

/// Parity: pilot-agent's own limit, which is that of the readiness probe.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks one Envoy.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    address: SocketAddr,
}

impl Admin {
    /// The Envoy whose admin interface listens here.
    pub fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// The answer of a path.
    pub async fn get(&self, path: &str) -> Result<String, HttpError> {
        http::text(self.address, "GET", path, TIMEOUT).await
    }

    /// Makes listeners refuse new connections and ask clients to leave. With `skip_exit` Envoy keeps listening after that.
    pub async fn drain(&self, inbound_only: bool, skip_exit: bool) -> Result<(), HttpError> {
        let inbound = if inbound_only { "inboundonly&" } else { "" };
        let exit = if skip_exit { "&skip_exit" } else { "" };
        let path = format!("/drain_listeners?{inbound}graceful{exit}");
        http::text(self.address, "POST", &path, TIMEOUT).await.map(drop)
    }
}
