use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// A TCP port of loopback that nothing listened on a moment ago.
///
/// Another process may take it first, so prefer port 0 where the component can say which port it got.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
