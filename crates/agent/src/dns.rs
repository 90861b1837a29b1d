//! The name server of the workload: DNS on UDP and TCP, answered from the control plane's name table.
//!
//! ```text
//!  application ── captured, or by resolv.conf ──► query ──► name index ── known ──► answer (TTL 30, authoritative)
//!                                                              └── unknown ──► resolv.conf's servers ──► their answer
//!  control plane ── NDS, through the xDS proxy ──► name table ──► name index (replaced whole)
//! ```
//!
//! [`index`] is pure: a name table in, look-ups out. [`message`] reads queries and writes answers with `hickory-proto`.
//! [`upstream`] passes on what the mesh does not know, byte for byte, because it must not depend on which record types a
//! parser knows. [`server`] owns the sockets.
//!
//! Invariants: a packet from outside never makes the agent allocate more than a query is long; the number of queries and
//! connections in flight is bounded; an answer is only taken from a server that was asked, with the number and the
//! question it was asked.

pub mod index;
pub mod message;
mod server;
mod upstream;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_runtime::metrics::{Counter, Registry, catalogue};
use canopus_runtime::tasks::Tasks;
use parking_lot::RwLock;
use tracing::{debug, info, warn};

use self::index::{NameIndex, NameScope};
use self::message::{Query, QueryError};
use self::upstream::Forwarder;
pub use self::upstream::{Resolvers, UpstreamSettings};
use crate::address::HostPort;

/// Where names are served unless `DNS_PROXY_ADDR` says otherwise.
const DEFAULT_PORT: u16 = 15053;
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Parity: a machine whose resolv.conf names the agent keeps its own resolvers in this file.
const ALTERNATE_RESOLV_CONF: &str = "/var/lib/istio/resolv.conf";

/// What the name server is started with.
#[derive(Clone, Debug)]
pub struct DnsSettings {
    /// `DNS_PROXY_ADDR`.
    pub address: String,
    /// The namespace of the proxy, whose services have short names.
    pub namespace: String,
    /// The domain of the proxy, with or without the namespace before it.
    pub domain: String,
    /// `DNS_FORWARD_PARALLEL`.
    pub parallel: bool,
    /// `DNS_FORWARD_TIMEOUT`.
    pub timeout: Duration,
    /// Whether the agent runs as root, which port 53 needs.
    pub is_root: bool,
}

/// Why there is no name server.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The address is none.
    #[error(
        "DNS_PROXY_ADDR: {0:?} is not HOST:PORT; use an address of this machine, such as localhost:15053"
    )]
    Address(String),
    /// The port is taken or forbidden.
    #[error(
        "DNS_PROXY_ADDR: cannot serve names on {address} ({protocol}): {error}; free the port, or choose another address"
    )]
    Bind {
        /// Where.
        address: SocketAddr,
        /// `udp` or `tcp`.
        protocol: &'static str,
        /// Why.
        error: std::io::Error,
    },
}

/// Answers queries.
pub struct NameServer {
    index: RwLock<Option<Arc<NameIndex>>>,
    /// The table as it came, for whoever wants to look at it.
    table: RwLock<Bytes>,
    scope: NameScope,
    forwarder: Forwarder,
    /// Whether unknown names are passed on before the first table has come.
    forwards_before_sync: bool,
    requests: Counter,
}

/// What becomes of a query.
pub enum Reaction {
    /// The answer.
    Answer(Vec<u8>),
    /// The query has to be forwarded.
    Forward(Box<Query>),
    /// The packet is not a query; an answer could go round in circles.
    Ignore,
}

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a connection.
    Tcp,
}

impl NameServer {
    /// Binds the addresses and serves on them. The result takes name tables.
    pub async fn start(
        settings: &DnsSettings,
        registry: &Registry,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, DnsError> {
        let wants_53 = settings.address.ends_with(":53");
        let on_53 = wants_53 && settings.is_root;
        let address = if wants_53 && !settings.is_root {
            warn!(target: "dns", "DNS_PROXY_ADDR: port 53 needs root; names are served on localhost:{DEFAULT_PORT}");
            ""
        } else {
            settings.address.as_str()
        };
        let alternate = Path::new(ALTERNATE_RESOLV_CONF);
        let path = if on_53 && alternate.exists() { alternate } else { Path::new(RESOLV_CONF) };
        let resolvers = Resolvers::read(path);
        let addresses = listening_addresses(address, &resolvers)?;
        let resolvers = resolvers.without(&addresses);
        info!(target: "dns", "names are served on {addresses:?}; others are asked of {:?}", resolvers.servers);
        let server = Arc::new(Self::new(settings, resolvers, on_53, registry));
        for address in addresses {
            server::start(&server, address, tasks).await?;
        }
        Ok(server)
    }

    /// A name server without sockets.
    pub fn new(settings: &DnsSettings, resolvers: Resolvers, on_53: bool, registry: &Registry) -> Self {
        let scope = NameScope::new(&settings.namespace, &settings.domain, resolvers.search.first());
        let upstream = UpstreamSettings {
            servers: resolvers.servers,
            parallel: settings.parallel,
            timeout: settings.timeout,
        };
        Self {
            index: RwLock::default(),
            table: RwLock::default(),
            scope,
            forwarder: Forwarder::new(upstream, registry),
            forwards_before_sync: on_53,
            requests: registry.value(catalogue::DNS_REQUESTS_TOTAL),
        }
    }

    /// Answers from this table from now on.
    pub fn set_table(&self, encoded: Bytes) -> Result<(), String> {
        let table = NameTable::decode(encoded.clone()).map_err(|error| format!("name table: {error}"))?;
        let index = NameIndex::new(table, &self.scope)?;
        debug!(target: "dns", "the name table has {} names", index.len());
        *self.index.write() = Some(Arc::new(index));
        *self.table.write() = encoded;
        Ok(())
    }

    /// Whether a table has come.
    pub fn is_ready(&self) -> bool {
        self.index.read().is_some()
    }

    /// The table as the control plane sent it; empty before the first.
    pub fn table(&self) -> NameTable {
        NameTable::decode(self.table.read().clone()).unwrap_or_default()
    }

    /// Decides about a packet.
    pub fn react(&self, packet: &[u8], transport: Transport) -> Reaction {
        self.requests.inc();
        let query = match Query::parse(packet) {
            Ok(query) => query,
            Err(QueryError::NotAQuery) => return Reaction::Ignore,
            Err(QueryError::Refused(answer)) => return Reaction::Answer(answer),
        };
        let index = self.index.read().clone();
        let Some(index) = index else {
            if self.forwards_before_sync {
                return Reaction::Forward(Box::new(query));
            }
            debug!(target: "dns", "{} was asked for before the name table came", query.name());
            return Reaction::Answer(query.failure());
        };
        match query.address_family().and_then(|family| Some((family, index.find(query.name())?))) {
            Some((family, found)) => Reaction::Answer(query.answer(family, &found, transport)),
            None => Reaction::Forward(Box::new(query)),
        }
    }

    /// Asks the resolvers.
    pub async fn forward(&self, query: &Query, transport: Transport) -> Vec<u8> {
        match self.forwarder.ask(query, transport).await {
            Some(answer) => query.fit(answer, transport),
            None => query.failure(),
        }
    }
}

/// The addresses to serve on. `localhost` means the families that resolv.conf's servers have: captured queries keep theirs.
fn listening_addresses(configured: &str, resolvers: &Resolvers) -> Result<Vec<SocketAddr>, DnsError> {
    let text =
        if configured.is_empty() { format!("localhost:{DEFAULT_PORT}") } else { configured.to_owned() };
    let invalid = || DnsError::Address(text.clone());
    let HostPort { host, port } = HostPort::parse(&text).ok_or_else(invalid)?;
    let host = match host.as_str() {
        "" => return Ok(vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))]),
        "localhost" => {
            let v4 = resolvers.servers.iter().any(SocketAddr::is_ipv4);
            let v6 = resolvers.servers.iter().any(SocketAddr::is_ipv6);
            let mut addresses = Vec::new();
            if v4 || !v6 {
                addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            }
            if v6 {
                addresses.push(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
            }
            return Ok(addresses);
        }
        host => host.parse::<IpAddr>().map_err(|_| invalid())?,
    };
    Ok(vec![SocketAddr::new(host, port)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolvers(servers: &[&str]) -> Resolvers {
        let servers = servers.iter().map(|server| SocketAddr::new(server.parse().unwrap(), 53)).collect();
        Resolvers { servers, search: Vec::new() }
    }

    #[test]
    fn localhost_is_served_in_the_families_of_the_resolvers() {
        let addresses = |configured: &str, servers: &[&str]| {
            let found = listening_addresses(configured, &resolvers(servers)).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(addresses("", &["10.0.0.1"]), "127.0.0.1:15053");
        assert_eq!(addresses("localhost:53", &["10.0.0.1", "fd00::1"]), "127.0.0.1:53 [::1]:53");
        assert_eq!(addresses("localhost:53", &["fd00::1"]), "[::1]:53");
        assert_eq!(addresses("", &[]), "127.0.0.1:15053");
        assert_eq!(addresses("10.1.1.1:5353", &["fd00::1"]), "10.1.1.1:5353");
        for broken in ["localhost", "names.example:53", "127.0.0.1:x"] {
            let error = listening_addresses(broken, &resolvers(&[])).unwrap_err().to_string();
            assert!(error.contains(broken) && error.contains("DNS_PROXY_ADDR"), "{error}");
        }
    }

    #[test]
    fn table_that_cannot_be_read_leaves_the_one_before() {
        use canopus_proto::istio::networking::nds::v1::name_table::NameInfo;
        let settings = DnsSettings {
            address: String::new(),
            namespace: "shop".to_owned(),
            domain: "svc.cluster.local".to_owned(),
            parallel: false,
            timeout: Duration::from_secs(1),
            is_root: false,
        };
        let server = NameServer::new(&settings, resolvers(&[]), false, &Registry::new());
        let info = NameInfo { ips: vec!["10.0.0.1".to_owned()], ..NameInfo::default() };
        let good = NameTable { table: [("api.example.com".to_owned(), info)].into() };
        server.set_table(good.encode_to_vec().into()).unwrap();
        let error = server.set_table(Bytes::from_static(b"\xff\xff\xff")).unwrap_err();
        assert!(error.contains("name table"), "{error}");
        assert!(server.is_ready());
        assert_eq!(server.table(), good);
        // An A query for api.example.com.
        let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03api\x07example\x03com\0\0\x01\0\x01";
        let Reaction::Answer(answer) = server.react(query, Transport::Udp) else { panic!("no answer") };
        assert!(answer.ends_with(&[10, 0, 0, 1]), "{answer:?}");
    }
}
