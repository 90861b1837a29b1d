//! Which filter chain of a listener a connection gets.

use std::net::IpAddr;

use canopus_base::host;
use canopus_base::net::IpNet;
use canopus_proto::envoy::config::core::v3::{CidrRange, TransportSocket, transport_socket};
use canopus_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;

use super::listener::Connection;
use super::{Call, Failure};

const TLS: &str = "tls";
const RAW_BUFFER: &str = "raw_buffer";

/// How well one criterion of a chain fits.
enum Fit {
    /// The chain does not ask.
    Unset,
    /// What it asks for is something else.
    No,
    /// The chain fits; more is better.
    Yes(usize),
}

/// Narrows the chains down, one criterion after the other, as Envoy does: a criterion that some chain fits decides
/// against those that do not ask, even if a later criterion then leaves none.
pub(super) fn choose<'a>(
    listener: &'a Listener,
    call: &Call,
    connection: &Connection,
) -> Result<&'a FilterChain, Failure> {
    let none = FilterChainMatch::default();
    let criteria: [&dyn Fn(&FilterChainMatch) -> Fit; 5] = [
        &|asked| match asked.destination_port {
            None => Fit::Unset,
            Some(port) => yes_if(port.value == call.port),
        },
        &|asked| best(&asked.prefix_ranges, |range| covers(range, call.address)),
        &|asked| best(&asked.server_names, |name| named(name, &connection.sni)),
        &|asked| match asked.transport_protocol.as_str() {
            "" => Fit::Unset,
            TLS => yes_if(connection.tls),
            RAW_BUFFER => yes_if(!connection.tls),
            _ => Fit::No,
        },
        &|asked| {
            best(&asked.application_protocols, |name| (*name == connection.application_protocol).then_some(0))
        },
    ];
    let mut chains: Vec<&FilterChain> = listener.filter_chains.iter().collect();
    for criterion in criteria {
        chains = sieve(chains, |chain| criterion(chain.filter_chain_match.as_ref().unwrap_or(&none)));
    }
    match chains[..] {
        [] => listener.default_filter_chain.as_ref().ok_or(Failure::NoFilterChain),
        [only] => Ok(only),
        _ => Err(Failure::AmbiguousFilterChains),
    }
}

/// The chains that fit best, or those that do not ask if none fits.
fn sieve(chains: Vec<&FilterChain>, fit: impl Fn(&FilterChain) -> Fit) -> Vec<&FilterChain> {
    let (mut fitting, mut unset, mut most) = (Vec::new(), Vec::new(), 0);
    for chain in chains {
        match fit(chain) {
            Fit::Unset => unset.push(chain),
            Fit::No => {}
            Fit::Yes(rank) => {
                if rank > most {
                    fitting.clear();
                }
                if rank >= most {
                    most = rank;
                    fitting.push(chain);
                }
            }
        }
    }
    if fitting.is_empty() { unset } else { fitting }
}

fn yes_if(fits: bool) -> Fit {
    if fits { Fit::Yes(0) } else { Fit::No }
}

fn best<T>(alternatives: &[T], rank: impl Fn(&T) -> Option<usize>) -> Fit {
    if alternatives.is_empty() {
        return Fit::Unset;
    }
    alternatives.iter().filter_map(rank).max().map_or(Fit::No, Fit::Yes)
}

/// The length of a range's prefix, if it has the address.
fn covers(range: &CidrRange, address: IpAddr) -> Option<usize> {
    let length = u8::try_from(range.prefix_len.map_or(0, |length| length.value)).ok()?;
    let network = IpNet::new(range.address_prefix.parse().ok()?, length).ok()?;
    network.contains(&address).then_some(length.into())
}

/// An exact server name is better than any wildcard, a long wildcard better than a short one.
fn named(pattern: &str, sni: &str) -> Option<usize> {
    if pattern == sni {
        return Some(usize::MAX);
    }
    (host::is_wildcard(pattern) && host::subset_of(sni, pattern)).then_some(pattern.len())
}

/// Whether client and chain can agree on TLS. A chain without TLS passes a handshake on as it is.
pub(super) fn handshake(chain: &FilterChain, call: &Call) -> Result<(), Failure> {
    let Some(socket) = &chain.transport_socket else { return Ok(()) };
    let Some(tls) = &call.tls else { return Err(Failure::PlaintextToTls) };
    let demanded = demanded_secret(socket);
    // A client that presents a certificate trusts no other server, and a server that demands one takes no other client.
    if demanded == tls.mutual_with { Ok(()) } else { Err(Failure::MutualTls) }
}

/// The secret of the server's certificate, if the server demands one of clients too.
fn demanded_secret(socket: &TransportSocket) -> Option<String> {
    let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else { return None };
    let context: DownstreamTlsContext = config.unpack().ok()?;
    let demands = context.require_client_certificate.is_some_and(|demanded| demanded.value);
    let secret = context.common_tls_context?.tls_certificate_sds_secret_configs.into_iter().next()?;
    demands.then_some(secret.name)
}
