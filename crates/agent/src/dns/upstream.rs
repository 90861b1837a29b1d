//! Resolvers of this machine, for names that the mesh does not know.
//!
//! Messages are passed on as bytes: only the number and the question of an answer are compared with those of the query.
//! Every query has a socket of its own, and so a source port that cannot be foreseen.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::{Duration, Instant};

use canopus_runtime::metrics::{Counter, Histogram, Registry, catalogue};
use nix::net::if_::if_nametoindex;
use resolv_conf::ScopedIp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::Transport;
use super::message::{Query, question_end};
use crate::backoff::random;

const PORT: u16 = 53;
/// Queries under way; more are refused, so that a slow resolver does not fill up the agent.
const MAX_IN_FLIGHT: usize = 1024;
/// Servers of resolv.conf that are asked; libraries take three.
const MAX_SERVERS: usize = 8;
const MAX_MESSAGE: usize = 65_535;
/// A resolv.conf may not be larger.
const MAX_FILE: u64 = 1 << 20;

/// What resolv.conf says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolvers {
    /// The servers.
    pub servers: Vec<SocketAddr>,
    /// The search domains.
    pub search: Vec<String>,
}

impl Resolvers {
    /// Reads a file. A file that cannot be used means no resolvers, which is reported.
    pub fn read(path: &Path) -> Self {
        let read = std::fs::metadata(path).and_then(|file| match file.len() {
            0..=MAX_FILE => std::fs::read(path),
            size => Err(io::Error::other(format!("{size} bytes are too many"))),
        });
        match read {
            Ok(bytes) => Self::parse(&bytes),
            Err(error) => {
                warn!(target: "dns", "{}: {error}; names that the mesh does not know cannot be resolved", path.display());
                Self::default()
            }
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        let (config, errors) = resolv_conf::Config::parse_with_errors(bytes);
        for error in errors {
            debug!(target: "dns", "resolv.conf: {error}");
        }
        let servers = config.nameservers.iter().filter_map(socket_address).take(MAX_SERVERS).collect();
        Self { servers, search: config.get_last_search_or_domain().cloned().collect() }
    }

    /// Leaves out servers that are the agent itself, which would ask itself for ever.
    pub(super) fn without(mut self, own: &[SocketAddr]) -> Self {
        self.servers.retain(|server| {
            let is_own = own.iter().any(|own| {
                own.port() == server.port()
                    && (own.ip() == server.ip() || (own.ip().is_unspecified() && server.ip().is_loopback()))
            });
            if is_own {
                warn!(target: "dns", "resolv.conf names this agent ({server}) as a resolver; it is left out");
            }
            !is_own
        });
        self
    }
}

fn socket_address(server: &ScopedIp) -> Option<SocketAddr> {
    Some(match server {
        ScopedIp::V4(address) => SocketAddr::from((*address, PORT)),
        ScopedIp::V6(address, None) => SocketAddr::from((*address, PORT)),
        ScopedIp::V6(address, Some(zone)) => {
            let index = zone.parse().ok().or_else(|| if_nametoindex(zone.as_str()).ok())?;
            SocketAddr::V6(SocketAddrV6::new(*address, PORT, 0, index))
        }
    })
}

/// How resolvers are asked.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Name servers that queries are forwarded to.
    pub servers: Vec<SocketAddr>,
    /// Whether all are asked at once.
    pub parallel: bool,
    /// How long each has to answer.
    pub timeout: Duration,
}

pub(super) struct Forwarder {
    settings: UpstreamSettings,
    permits: Semaphore,
    requests: Counter,
    failures: Counter,
    duration: Histogram,
}

impl Forwarder {
    pub(super) fn new(settings: UpstreamSettings, registry: &Registry) -> Self {
        Self {
            settings,
            permits: Semaphore::new(MAX_IN_FLIGHT),
            requests: registry.value(catalogue::DNS_UPSTREAM_REQUESTS_TOTAL),
            failures: registry.value(catalogue::DNS_UPSTREAM_FAILURES_TOTAL),
            duration: registry.value(catalogue::DNS_UPSTREAM_REQUEST_DURATION_SECONDS),
        }
    }

    /// The answer of a resolver with the client's number; `None` if none answers.
    pub(super) async fn ask(&self, query: &Query, transport: Transport) -> Option<Vec<u8>> {
        self.requests.inc();
        let started = Instant::now();
        let answer = match self.permits.try_acquire() {
            Ok(_permit) if self.settings.parallel => self.ask_all(query, transport).await,
            Ok(_permit) => self.ask_in_turn(query, transport).await,
            Err(_) => {
                warn!(target: "dns", "{MAX_IN_FLIGHT} queries wait for resolvers; {} is refused", query.name());
                None
            }
        };
        self.duration.observe(started.elapsed().as_secs_f64());
        if answer.is_none() {
            self.failures.inc();
        }
        let mut answer = answer?;
        answer[..2].copy_from_slice(&query.id());
        Some(answer)
    }

    async fn ask_in_turn(&self, query: &Query, transport: Transport) -> Option<Vec<u8>> {
        let servers = &self.settings.servers;
        let first = (random() * servers.len() as f64) as usize;
        for server in servers.iter().cycle().skip(first).take(servers.len()) {
            match exchange(*server, query, transport, self.settings.timeout).await {
                Ok(answer) => return Some(answer),
                Err(error) => info!(target: "dns", "resolver {server}: {}: {error}", query.name()),
            }
        }
        None
    }

    async fn ask_all(&self, query: &Query, transport: Transport) -> Option<Vec<u8>> {
        let mut asking = JoinSet::new();
        for server in self.settings.servers.clone() {
            let (query, limit) = (query.clone(), self.settings.timeout);
            asking.spawn(async move { (server, exchange(server, &query, transport, limit).await) });
        }
        while let Some(done) = asking.join_next().await {
            match done {
                Ok((_, Ok(answer))) => return Some(answer),
                Ok((server, Err(error))) => {
                    info!(target: "dns", "resolver {server}: {}: {error}", query.name());
                }
                Err(error) => debug!(target: "dns", "{error}"),
            }
        }
        None
    }
}

async fn exchange(
    server: SocketAddr,
    query: &Query,
    transport: Transport,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let mut request = query.bytes().to_vec();
    let number = ((random() * 65_536.0) as u16).to_be_bytes();
    request[..2].copy_from_slice(&number);
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {limit:?}"));
    let asking = async {
        match transport {
            Transport::Udp => ask_udp(server, &request, number, query, limit / 2).await,
            Transport::Tcp => ask_tcp(server, &request, number, query).await,
        }
    };
    timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
}

/// Asks, and once more after `patience`: datagrams get lost.
async fn ask_udp(
    server: SocketAddr,
    request: &[u8],
    number: [u8; 2],
    query: &Query,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        socket.send(request).await?;
        let answering = async {
            loop {
                let length = socket.recv(&mut buffer).await?;
                if is_answer(&buffer[..length], number, query) {
                    return Ok(buffer[..length].to_vec());
                }
            }
        };
        if let Ok(answer) = timeout(patience, answering).await {
            return answer;
        }
    }
}

async fn ask_tcp(server: SocketAddr, request: &[u8], number: [u8; 2], query: &Query) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(request.len()).map_err(io::Error::other)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(request);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    if is_answer(&answer, number, query) {
        return Ok(answer);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question"))
}

/// Whether this is the answer to the query that was sent with this number.
fn is_answer(answer: &[u8], number: [u8; 2], query: &Query) -> bool {
    let Some(header) = answer.first_chunk::<12>() else { return false };
    let is_response = header[2] & 0x80 != 0 && header[..2] == number;
    // A server that cannot read a query may leave the question out.
    let question_is_left_out = header[4..6] == [0, 0] && header[3] & 0x0f != 0;
    let question = question_end(answer).and_then(|end| answer.get(12..end));
    is_response
        && (question_is_left_out
            || question.is_some_and(|asked| asked.eq_ignore_ascii_case(query.question())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_libraries_read_it() {
        let found = Resolvers::parse(
            b"# comment\nsearch a.svc.cluster.local svc.cluster.local\nnameserver 10.0.0.10\nnameserver fd00::a\nnameserver nonsense\noptions ndots:5\n",
        );
        assert_eq!(found.search, ["a.svc.cluster.local", "svc.cluster.local"]);
        assert_eq!(
            found.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.10:53", "[fd00::a]:53"]
        );
    }

    #[test]
    fn agent_is_not_its_own_resolver() {
        let found = Resolvers::parse(b"nameserver 127.0.0.1\nnameserver 10.0.0.10\n");
        let own: SocketAddr = "127.0.0.1:53".parse().unwrap();
        assert_eq!(found.clone().without(&[own]).servers.len(), 1);
        assert_eq!(found.clone().without(&["[::]:53".parse().unwrap()]).servers.len(), 1);
        assert_eq!(found.without(&["127.0.0.1:15053".parse().unwrap()]).servers.len(), 2);
    }
}
