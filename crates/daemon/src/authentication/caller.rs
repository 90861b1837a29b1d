//! The far end of a connection.

use std::net::SocketAddr;

/// The peer of a connection as the transport knows it; one of the extensions of each request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Where it connected from.
    pub address: Option<SocketAddr>,
    /// The SPIFFE identities of its certificate; `None` on a connection without TLS.
    pub identities: Option<Vec<String>>,
}
