//! Addresses: of hosts, of subnets, of sockets.

use canopus_base::net::{parse_ip, parse_prefix};

use super::code::{Fault, codes};
use super::{host, port};
use crate::text::quoted;

codes! {
    NOT_AN_IP: error "address-not-an-ip", "give an IPv4 or IPv6 address";
    NOT_A_SUBNET: error "address-not-a-subnet", "give a subnet such as 10.0.0.0/8 or fd00::/8";
    EMPTY_SOCKET: error "address-socket-empty", "give the absolute path of a socket, or @ and a name";
    RELATIVE_SOCKET: error "address-socket-relative", "give the absolute path of a socket, or @ and a name";
    NO_PORT: error "address-without-port", "write the address as host:port, an IPv6 host in brackets";
    PORT_NOT_A_NUMBER: error "address-port-not-a-number", "give the number of the port";
    NOT_A_HOST: error "address-host-invalid", "give a host name or an IP address";
}

/// In front of the path of a Unix domain socket.
pub const UNIX: &str = "unix://";

/// An IP address.
pub fn ip(text: &str) -> Result<(), Fault> {
    parse_ip(text).map(drop).map_err(|_| NOT_AN_IP.says(format!("{text} is not a valid IP")).with_value(text))
}

/// An IP address, or a subnet.
pub fn subnet(text: &str) -> Result<(), Fault> {
    if text.matches('/').count() != 1 {
        return ip(text);
    }
    let not_a_subnet = |_| NOT_A_SUBNET.says(format!("{text} is not a valid CIDR block")).with_value(text);
    parse_prefix(text).map(drop).map_err(not_a_subnet)
}

/// The path of a Unix domain socket, or `@` and its abstract name.
pub fn unix_socket(path: &str) -> Result<(), Fault> {
    if path.is_empty() {
        return Err(EMPTY_SOCKET.says("unix address must not be empty"));
    }
    if path.starts_with('@') || (path.starts_with('/') && !path.ends_with('/')) {
        return Ok(());
    }
    Err(RELATIVE_SOCKET.says(format!("{path} is not an absolute path to a file")).with_value(path))
}

/// A server: `host:port`.
pub fn server(address: &str) -> Result<(), Fault> {
    let (name, port_text) = split_host_port(address).map_err(|error| {
        NO_PORT.says(format!("unable to split {}: {error}", quoted(address))).with_value(address)
    })?;
    port::number(
        port_number(port_text).map_err(|fault| {
            fault.reworded(|error| format!("port ({port_text}) is not a number: {error}"))
        })?,
    )?;
    if host::fqdn(name).is_err() && parse_ip(name).is_err() {
        let message = format!("{} is not a valid hostname or an IP address", quoted(name));
        return Err(NOT_A_HOST.says(message).with_value(name));
    }
    Ok(())
}

/// The number of a port; the fault has Go's words.
pub fn port_number(text: &str) -> Result<i64, Fault> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        PORT_NOT_A_NUMBER.says(format!("strconv.Atoi: parsing {}: {why}", quoted(text))).with_value(text)
    })
}

/// Takes `host:port` apart, an IPv6 host in brackets; the error has Go's words.
pub fn split_host_port(address: &str) -> Result<(&str, &str), String> {
    let fail = |why| Err(format!("address {address}: {why}"));
    let Some((before, port)) = address.rsplit_once(':') else { return fail("missing port in address") };
    // Besides host and port: the text in which neither a `[` nor a `]` may stand any more.
    let (host, no_open, no_close) = match address.strip_prefix('[') {
        None if before.contains(':') => return fail("too many colons in address"),
        None => (before, address, address),
        Some(bracketed) => match bracketed.split_once(']') {
            None => return fail("missing ']' in address"),
            Some((host, rest)) if rest.strip_prefix(':') == Some(port) => (host, bracketed, rest),
            Some((_, rest)) if rest.starts_with(':') => return fail("too many colons in address"),
            Some(_) => return fail("missing port in address"),
        },
    };
    if no_open.contains('[') {
        return fail("unexpected '[' in address");
    }
    if no_close.contains(']') {
        return fail("unexpected ']' in address");
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_split_as_go_splits_it() {
        let ok = [("a:1", ("a", "1")), (":1", ("", "1")), ("a:", ("a", "")), ("[::1]:80", ("::1", "80"))];
        for (address, parts) in ok {
            assert_eq!(split_host_port(address).unwrap(), parts);
        }
        let bad = [
            ("", "missing port in address"),
            ("a", "missing port in address"),
            ("[::1]", "missing port in address"),
            ("[::1]a:1", "missing port in address"),
            ("::1:80", "too many colons in address"),
            ("[::1]:80:1", "too many colons in address"),
            ("[::1:80", "missing ']' in address"),
            ("a[b:1", "unexpected '[' in address"),
            ("[a[b]:1", "unexpected '[' in address"),
            ("ab]:1", "unexpected ']' in address"),
            ("[a]:1]", "unexpected ']' in address"),
        ];
        for (address, why) in bad {
            assert_eq!(split_host_port(address).unwrap_err(), format!("address {address}: {why}"));
        }
    }

    #[test]
    fn number_is_refused_in_go_words() {
        assert_eq!(port_number("80").unwrap(), 80);
        let said = |text| port_number(text).unwrap_err().to_string();
        assert_eq!(said("http"), r#"strconv.Atoi: parsing "http": invalid syntax"#);
        assert_eq!(
            said("99999999999999999999"),
            r#"strconv.Atoi: parsing "99999999999999999999": value out of range"#
        );
    }

    #[test]
    fn socket_is_an_absolute_path_or_abstract() {
        assert!(unix_socket("/var/run/a.sock").is_ok() && unix_socket("@a").is_ok());
        for path in ["", "a.sock", "/var/run/"] {
            assert!(unix_socket(path).is_err(), "{path}");
        }
    }
}
