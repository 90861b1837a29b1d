//! IP addresses and prefixes as configuration writes them, and names of network interfaces.

use std::net::{IpAddr, Ipv6Addr};

pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Why a text is not an address or prefix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetError {
    /// The text is empty.
    #[error("empty address")]
    Empty,
    /// The text is not an IP address.
    #[error("{text:?} is not an IP address")]
    Address {
        /// The text.
        text: Box<str>,
    },
    /// The text does not have the form `address/bits`, or has more bits than the address.
    #[error("{text:?} is not an IP prefix such as 10.0.0.0/8 or fd00::/8")]
    Prefix {
        /// The text.
        text: Box<str>,
    },
}

/// Reads an IP address. An IPv6 zone (`fe80::1%eth0`) is accepted and dropped.
pub fn parse_ip(text: &str) -> Result<IpAddr, NetError> {
    let address = match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() => address.parse::<Ipv6Addr>().map(IpAddr::from).ok(),
        _ => text.parse().ok(),
    };
    address.ok_or_else(|| NetError::Address { text: text.into() })
}

/// Reads `address/bits`. Bits set behind the prefix are kept, not refused; zones and `/08` are refused.
pub fn parse_prefix(text: &str) -> Result<IpNet, NetError> {
    let prefix = text.rsplit_once('/').and_then(|(address, bits)| {
        let canonical = bits == "0" || !bits.starts_with('0');
        let bits = if canonical && bits.bytes().all(|b| b.is_ascii_digit()) {
            bits.parse().ok()?
        } else {
            return None;
        };
        IpNet::new(address.parse().ok()?, bits).ok()
    });
    prefix.ok_or_else(|| NetError::Prefix { text: text.into() })
}

/// Reads a prefix, or an address as the prefix of that address alone.
pub fn parse_prefix_or_ip(text: &str) -> Result<IpNet, NetError> {
    if text.is_empty() {
        return Err(NetError::Empty);
    }
    if text.contains('/') { parse_prefix(text) } else { parse_ip(text).map(IpNet::from) }
}

/// Splits addresses into IPv4 and IPv6, dropping what is not an address.
pub fn split_families<'a>(texts: impl IntoIterator<Item = &'a str>) -> (Vec<IpAddr>, Vec<IpAddr>) {
    texts.into_iter().filter_map(|text| parse_ip(text).ok()).partition(IpAddr::is_ipv4)
}

/// Whether a request's peer, written `host:port` or `[host]:port`, is this machine's loopback.
pub fn is_localhost_peer(peer: &str) -> bool {
    let host = match peer.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").map(|(host, _)| host),
        None => peer.split_once(':').filter(|(_, port)| !port.contains(':')).map(|(host, _)| host),
    };
    host.and_then(|host| host.parse::<IpAddr>().ok()).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// The longest interface name the kernel takes.
const INTERFACE_MAX: usize = 15;

/// Why a list of interface names is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InterfaceError {
    /// Two commas with nothing between them.
    #[error("empty interface name")]
    Empty,
    /// Longer than the kernel allows.
    #[error("interface name {name:?} too long (max 15 chars)")]
    TooLong {
        /// The name.
        name: Box<str>,
    },
    /// The name is not a letter followed by letters, digits, `_`, `.` and `-`.
    #[error("interface name {name:?} contains invalid characters")]
    Characters {
        /// The name.
        name: Box<str>,
    },
}

/// Checks a comma-separated list of interface names, blanks around each ignored. The empty list is fine.
///
/// These names end up in packet-filter programs, so nothing but plain names may pass.
pub fn validate_interface_names(list: &str) -> Result<(), InterfaceError> {
    if list.is_empty() {
        return Ok(());
    }
    list.split(',').map(str::trim).try_for_each(validate_interface_name)
}

fn validate_interface_name(name: &str) -> Result<(), InterfaceError> {
    let Some(first) = name.bytes().next() else {
        return Err(InterfaceError::Empty);
    };
    if name.len() > INTERFACE_MAX {
        return Err(InterfaceError::TooLong { name: name.into() });
    }
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    if !first.is_ascii_alphabetic() || !plain {
        return Err(InterfaceError::Characters { name: name.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_zone_and_no_leading_zeros() {
        for good in ["1.2.3.4", "::1", "fe80::1%eth0", "::ffff:1.2.3.4"] {
            assert!(parse_ip(good).is_ok(), "{good}");
        }
        for bad in ["", "1.2.3", "01.2.3.4", "1.2.3.4%eth0", "fe80::1%", "[::1]", "1.2.3.4/32", " 1.2.3.4"] {
            assert!(parse_ip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes_keep_host_bits_and_want_canonical_lengths() {
        assert_eq!(parse_prefix("10.1.2.3/8").unwrap().to_string(), "10.1.2.3/8");
        assert_eq!(parse_prefix("::/0").unwrap().prefix_len(), 0);
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "/8",
            "fe80::1%eth0/64",
            "::/129",
        ] {
            assert!(parse_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bare_address_is_a_prefix_of_itself() {
        assert_eq!(parse_prefix_or_ip("1.2.3.4").unwrap().to_string(), "1.2.3.4/32");
        assert_eq!(parse_prefix_or_ip("2001:db8::1").unwrap().to_string(), "2001:db8::1/128");
        assert_eq!(parse_prefix_or_ip("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(parse_prefix_or_ip(""), Err(NetError::Empty));
        assert!(parse_prefix_or_ip("example.com").is_err());
    }

    #[test]
    fn families_are_split_and_junk_dropped() {
        let (v4, v6) = split_families(["1.2.3.4", "::1", "x", "::ffff:1.2.3.4"]);
        assert_eq!((v4.len(), v6.len()), (1, 2));
    }

    #[test]
    fn localhost_is_the_loopback_of_either_family() {
        for local in ["127.0.0.1:8080", "127.1.2.3:1", "[::1]:8080", "[::ffff:127.0.0.1]:80"] {
            assert!(is_localhost_peer(local), "{local}");
        }
        for other in ["8.8.8.8:8080", "127.0.0.1", "::1", "::1:80", "[::1]", "localhost:80", "", "[::1%lo]:1"]
        {
            assert!(!is_localhost_peer(other), "{other}");
        }
    }

    #[test]
    fn interface_names_are_plain_words() {
        for good in ["", "eth0", "eth0,eth1,lo", "eth_0", "br-lan.1", " eth0", "eth0 "] {
            assert_eq!(validate_interface_names(good), Ok(()), "{good}");
        }
        for bad in [
            "0eth",
            "1234567890123456",
            "eth0 -d 10.0.0.50",
            "eth0;echo",
            "eth0|cat",
            "eth0`id`",
            "eth0$PATH",
            "eth0,,eth1",
            "eth0/1",
            "eth0:1",
            "veth@if123",
            " ",
            "é0",
        ] {
            assert!(validate_interface_names(bad).is_err(), "{bad}");
        }
    }
}
