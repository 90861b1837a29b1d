//! The address of a JSON Web Key Set.
//!
//! Which texts count as addresses follows Go's `net/url`, as the policies that carry them were accepted by it.

/// The server of a JWKS address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JwksServer {
    /// Whether keys are fetched over TLS.
    pub tls: bool,
    /// The host name or IP address, without the brackets of an IPv6 address.
    pub host: String,
    /// The port given, or the scheme's own.
    pub port: u32,
}

/// Why a text is not the address of a key set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JwksUriError {
    /// Only `http` and `https` are fetched.
    #[error("URI scheme {scheme:?} is not supported")]
    Scheme {
        /// What stands before the colon, if anything.
        scheme: String,
    },
    /// Not a URI.
    #[error("parse {uri:?}: {reason}")]
    Malformed {
        /// The text.
        uri: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl JwksServer {
    /// The scheme in the address: `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Reads the server out of a JWKS address.
    pub fn parse(uri: &str) -> Result<Self, JwksUriError> {
        let malformed = |reason| JwksUriError::Malformed { uri: uri.into(), reason };
        if uri.bytes().any(|b| b.is_ascii_control()) {
            return Err(malformed("invalid control character in URL"));
        }
        let (scheme, rest) = split_scheme(uri).ok_or_else(|| malformed("missing protocol scheme"))?;
        let tls = match scheme.as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(JwksUriError::Scheme { scheme }),
        };
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
        // Parity: without `//` there is no host, which is accepted here and fails when keys are fetched.
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        if !is_escaped(path) || !is_escaped(fragment) {
            return Err(malformed("invalid URL escape"));
        }
        let (host, port) = split_authority(authority).map_err(malformed)?;
        let port = match port {
            "" if tls => 443,
            "" => 80,
            digits => digits.parse().map_err(|_| malformed("invalid port"))?,
        };
        Ok(Self { tls, host: host.into(), port })
    }
}

/// The scheme in lower case (empty if there is none) and what follows its colon; `None` if a colon comes first.
fn split_scheme(uri: &str) -> Option<(String, &str)> {
    let end = uri.bytes().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(&b));
    match end.map(|end| uri.split_at(end)) {
        Some(("", rest)) if rest.starts_with(':') => None,
        Some((scheme, rest)) if rest.starts_with(':') && scheme.as_bytes()[0].is_ascii_alphabetic() => {
            Some((scheme.to_ascii_lowercase(), &rest[1..]))
        }
        _ => Some((String::new(), uri)),
    }
}

/// Host without brackets, and the digits of the port.
fn split_authority(authority: &str) -> Result<(&str, &str), &'static str> {
    let host_port = match authority.rsplit_once('@') {
        Some((user, _)) if !is_user(user) => return Err("net/url: invalid userinfo"),
        Some((_, host_port)) => host_port,
        None => authority,
    };
    let (host, port) = match host_port.strip_prefix('[') {
        Some(rest) => rest.rsplit_once(']').ok_or("missing ']' in host")?,
        None => host_port.split_at(host_port.rfind(':').unwrap_or(host_port.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if (!port.is_empty() && !port.starts_with(':')) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("invalid port after host");
    }
    if !is_escaped(host) || !host.bytes().all(is_host_byte) {
        return Err("invalid character in host name");
    }
    Ok((host, digits))
}

fn is_user(user: &str) -> bool {
    is_escaped(user) && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b))
}

fn is_host_byte(b: u8) -> bool {
    !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b)
}

/// Whether every `%` is followed by two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| matches!(rest.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
}
