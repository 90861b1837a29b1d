//! Clients that gateways vouch for, by the header in which a proxy tells who came to it.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use canopus_base::net::parse_prefix;
use ipnet::IpNet;
use tracing::warn;

/// The header of a proxy that has verified a certificate.
const HEADER: &str = "x-forwarded-client-cert";

/// Why nobody vouches for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotForwarded {
    #[error("there is no {HEADER} header")]
    Absent,
    #[error("the client is not a trusted gateway")]
    Untrusted,
    #[error("the {HEADER} header names nobody")]
    Nobody,
}

/// The gateways that are believed.
pub(super) struct Gateways(Vec<IpNet>);

impl Gateways {
    /// Trusts gateways with an address in these ranges, and those on this machine.
    pub(super) fn new(ranges: &[String]) -> Self {
        let ranges = ranges.iter().filter_map(|text| match parse_prefix(text) {
            Ok(range) => Some(range),
            Err(error) => {
                warn!(%error, "TRUSTED_GATEWAY_CIDR");
                None
            }
        });
        Self(ranges.collect())
    }

    /// The identities a gateway vouches for.
    pub(super) fn identities(
        &self,
        gateway: Option<SocketAddr>,
        headers: &HeaderMap,
    ) -> Result<Vec<String>, NotForwarded> {
        let header = headers.get(HEADER).ok_or(NotForwarded::Absent)?;
        let address = gateway.map(|gateway| gateway.ip().to_canonical());
        let is_trusted = |address| self.0.iter().any(|range| range.contains(&address));
        if !address.is_some_and(|address| address.is_loopback() || is_trusted(address)) {
            return Err(NotForwarded::Untrusted);
        }
        let identities = named(header.to_str().unwrap_or_default());
        if identities.is_empty() { Err(NotForwarded::Nobody) } else { Ok(identities) }
    }
}

/// All identities that a header names: by URI, by DNS name, or by the common name of a subject.
fn named(header: &str) -> Vec<String> {
    let mut identities = Vec::new();
    for pair in split(header, ',').iter().flat_map(|element| split(element, ';')) {
        let Some((key, value)) = pair.split_once('=') else { continue };
        let value = value.trim().trim_matches('"').replace("\\\"", "\"");
        match key.trim().to_ascii_lowercase().as_str() {
            "uri" | "dns" => identities.push(value),
            "subject" => identities.extend(common_name(&value)),
            _ => {}
        }
    }
    identities.retain(|identity| !identity.is_empty());
    identities
}

/// The parts between separators that are not quoted.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn common_name(subject: &str) -> Option<String> {
    let mut parts = subject.split([',', '/']).filter_map(|part| part.trim().split_once('='));
    parts.find(|(key, _)| *key == "CN").map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

    fn identities(address: &str, header: &str) -> Result<Vec<String>, NotForwarded> {
        let gateways = Gateways::new(&["10.0.0.0/8".to_owned(), "nonsense".to_owned()]);
        let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), header.parse().unwrap())]);
        gateways.identities(address.parse().ok(), &headers)
    }

    #[test]
    fn gateways_are_believed_by_their_address() {
        let header = format!("By=x;URI={CART}");
        for address in ["10.1.2.3:5", "127.0.0.1:5", "[::ffff:10.1.2.3]:5"] {
            assert_eq!(identities(address, &header), Ok(vec![CART.to_owned()]), "{address}");
        }
        assert_eq!(identities("192.168.0.1:5", &header), Err(NotForwarded::Untrusted));
        assert_eq!(identities("", &header), Err(NotForwarded::Untrusted));
        assert_eq!(Gateways::new(&[]).identities(None, &HeaderMap::new()), Err(NotForwarded::Absent));
    }

    #[test]
    fn everybody_in_the_header_is_named() {
        let header = format!(
            r#"Hash=1;Subject="CN=admin,O=\"a;b\"";URI={CART};DNS=a.example, Hash=2;Subject="/C=US/CN=other";URI="""#
        );
        let named = identities("127.0.0.1:1", &header).unwrap();
        assert_eq!(named, ["admin", CART, "a.example", "other"]);
        for nobody in ["", "Hash=1", ";;,,=", "\"URI=x"] {
            assert_eq!(identities("127.0.0.1:1", nobody), Err(NotForwarded::Nobody), "{nobody}");
        }
    }
}
