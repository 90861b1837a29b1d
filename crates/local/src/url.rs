//! URLs of requests through gateways: plain HTTP, a host, a port and a path.

use http::Uri;

/// A URL taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// `host` or `host:port`, as the Host header has it.
    pub(crate) authority: String,
    /// The host.
    pub(crate) host: String,
    /// The port; 80 if the URL has none.
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

/// The text is no URL that requests can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected http://HOST[:PORT][/PATH]")]
pub(crate) struct InvalidUrl(String);

impl Url {
    /// Takes a URL apart.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidUrl> {
        let invalid = || InvalidUrl(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(invalid)?;
        Ok(Self {
            authority: authority.to_string(),
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(80),
            path: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_port_means_80() {
        let url = Url::parse("http://shop.example").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("shop.example", 80, "/"));
        assert_eq!(Url::parse("http://localhost:8080/a?b").unwrap().path, "/a?b");
    }

    #[test]
    fn other_schemes_and_paths_alone_are_refused() {
        for text in ["https://localhost/", "/reviews", "localhost:8080", "http://", "http://a b/"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
