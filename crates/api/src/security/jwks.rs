//! The address of a JSON Web Key Set.

use crate::text::quoted;
use crate::url::{Url, UrlError};

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
    #[error("URI scheme {} is not supported", quoted(.scheme))]
    Scheme {
        /// What stands before the colon, if anything.
        scheme: String,
    },
    /// The text is not a URI.
    #[error(transparent)]
    Malformed(#[from] UrlError),
    /// The number of the port is too large to be one.
    #[error("strconv.Atoi: parsing {}: value out of range", quoted(.port))]
    Port {
        /// The port as the URI spells it.
        port: String,
    },
}

impl JwksServer {
    /// The scheme in the address: `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Reads the server out of a JWKS address.
    ///
    /// Parity: an address without a host is accepted here and fails when keys are fetched.
    pub fn parse(uri: &str) -> Result<Self, JwksUriError> {
        let Url { scheme, host, port } = Url::parse(uri)?;
        let tls = match scheme.as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(JwksUriError::Scheme { scheme }),
        };
        let port = match port {
            "" if tls => 443,
            "" => 80,
            digits => digits.parse().map_err(|_| JwksUriError::Port { port: digits.into() })?,
        };
        Ok(Self { tls, host: host.into(), port })
    }
}
