//! The probe that tells whether traffic is captured.
//!
//! It listens on the proxy's ports, before the proxy does, and connects to an address where nobody listens. If rules
//! are in place, one of its own listeners gets that connection, and the kernel still knows where it was going. The rules
//! capture only what the proxy's user sends to itself, so the probe has to run as that user.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, listen,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// What to probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Whether the machine's address is IPv6.
    pub is_ipv6: bool,
    /// The proxy's ports, to listen on.
    pub listen_ports: [u16; 2],
    /// The port to connect to.
    pub probe_port: u16,
    /// Time after which the probe fails.
    pub timeout: Duration,
}

/// Why traffic is not known to be captured.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// No port is free to listen on.
    #[error("no port to listen on: {0}")]
    NoListener(String),
    /// The connection did not arrive.
    #[error("a connection to {target} did not arrive within {timeout:?}")]
    Timeout {
        /// Where it was going.
        target: SocketAddr,
        /// How long the probe waited.
        timeout: Duration,
    },
}

/// Pause between looks at the listeners.
const POLL: Duration = Duration::from_millis(10);

/// Pause between connections: each leaves a socket behind for a minute.
const BETWEEN_CONNECTIONS: Duration = Duration::from_secs(1);

impl Probe {
    fn listen_address(&self) -> IpAddr {
        if self.is_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// An address of the machine itself that rules do not take for loopback.
    fn target(&self) -> SocketAddr {
        let address: IpAddr = if self.is_ipv6 {
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into()
        } else {
            Ipv4Addr::new(127, 0, 0, 6).into()
        };
        SocketAddr::new(address, self.probe_port)
    }

    /// Waits until a connection is captured.
    pub fn run(&self) -> Result<(), ValidationError> {
        let listeners = self.listeners()?;
        let client = Client::start(SocketAddr::new(self.listen_address(), 0), self.target());
        let deadline = Instant::now() + self.timeout;
        while Instant::now() < deadline {
            if listeners.iter().any(|listener| self.is_captured(listener)) {
                tracing::info!("traffic is captured");
                return Ok(());
            }
            thread::sleep(POLL);
        }
        drop(client);
        Err(ValidationError::Timeout { target: self.target(), timeout: self.timeout })
    }

    fn listeners(&self) -> Result<Vec<TcpListener>, ValidationError> {
        let (mut listeners, mut reasons) = (Vec::new(), Vec::new());
        for port in self.listen_ports {
            let address = SocketAddr::new(self.listen_address(), port);
            match listener(address) {
                Ok(listener) => listeners.push(listener),
                Err(error) => reasons.push(format!("{address}: {error}")),
            }
        }
        if listeners.is_empty() {
            Err(ValidationError::NoListener(reasons.join(", ")))
        } else {
            Ok(listeners)
        }
    }

    /// Whether a connection is waiting that was going to the probed port.
    fn is_captured(&self, listener: &TcpListener) -> bool {
        let Ok((mut stream, peer)) = listener.accept() else { return false };
        match original_destination(&stream) {
            Ok(original) => {
                // For people who connect by hand.
                drop(stream.write_all(original.port().to_string().as_bytes()));
                original.port() == self.probe_port
            }
            Err(error) => {
                tracing::debug!("connection from {peer} has no other destination: {error}");
                false
            }
        }
    }
}

/// Where a redirected connection was going.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    Ok(match stream.local_addr()? {
        SocketAddr::V4(_) => {
            let found = getsockopt(stream, sockopt::OriginalDst)?;
            let address = Ipv4Addr::from_bits(u32::from_be(found.sin_addr.s_addr));
            SocketAddr::new(address.into(), u16::from_be(found.sin_port))
        }
        SocketAddr::V6(_) => {
            let found = getsockopt(stream, sockopt::Ip6tOriginalDst)?;
            let address = Ipv6Addr::from(found.sin6_addr.s6_addr);
            SocketAddr::new(address.into(), u16::from_be(found.sin6_port))
        }
    })
}

fn tcp_socket(address: SocketAddr) -> io::Result<std::os::fd::OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    Ok(socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?)
}

/// A listener beside others on the same port: an earlier probe's socket must not be in the way.
fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp_socket(address)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::new(16)?)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects again and again, until dropped.
struct Client {
    stop: Arc<AtomicBool>,
}

impl Client {
    fn start(source: SocketAddr, target: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = connect_once(source, target) {
                    tracing::debug!("cannot connect to {target}: {error}");
                }
                thread::sleep(BETWEEN_CONNECTIONS);
            }
        });
        Self { stop }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Connects from the loopback address itself: left to the kernel, the source would be the target, which rules leave
/// alone.
fn connect_once(source: SocketAddr, target: SocketAddr) -> io::Result<()> {
    let socket = tcp_socket(target)?;
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(1, 0))?;
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
    bind(raw, &SockaddrStorage::from(source))?;
    connect(raw, &SockaddrStorage::from(target))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(listen_ports: [u16; 2]) -> Probe {
        Probe { is_ipv6: false, listen_ports, probe_port: 15002, timeout: Duration::from_millis(50) }
    }

    #[test]
    fn probe_fails_when_nothing_is_captured() {
        let error = probe([0, 0]).run().unwrap_err().to_string();
        assert_eq!(error, "a connection to 127.0.0.6:15002 did not arrive within 50ms");
    }

    #[test]
    fn probe_says_which_ports_are_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = probe([port, port]).run().unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}: ")), "{error}");
    }
}
