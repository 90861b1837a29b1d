//! A request as a user writes it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, bail};
use canopus_envoy::simulate::{Call, Capture, Protocol, Tls};

/// A method, a URL and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    method: String,
    is_tls: bool,
    protocol: Scheme,
    /// The host with its port, if the URL has one.
    authority: String,
    host: String,
    port: u32,
    path: String,
    headers: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Tcp,
}

impl Request {
    /// Reads `METHOD URL`, and headers as `name: value`.
    pub(crate) fn parse(method: &str, url: &str, headers: &[String]) -> anyhow::Result<Self> {
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
            bail!("{method:?} is not an HTTP method: expected METHOD URL, such as GET http://reviews:9080/x");
        }
        let (scheme, rest) = url
            .split_once("://")
            .with_context(|| format!("{url:?}: expected http://, https:// or tcp:// before the host"))?;
        let (protocol, is_tls, default_port) = match scheme {
            "http" => (Scheme::Http, false, 80),
            "https" => (Scheme::Http, true, 443),
            "tcp" => (Scheme::Tcp, false, 0),
            "tls" => (Scheme::Tcp, true, 443),
            other => bail!("{url:?}: {other} is not http, https, tcp or tls"),
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('?') => (&rest[..at], format!("/{}", &rest[at..])),
            Some(at) => (&rest[..at], rest[at..].to_owned()),
            None => (rest, "/".to_owned()),
        };
        let (host, port) = split_port(authority);
        let port = match port {
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .with_context(|| format!("{url:?}: port {port:?}"))?,
            None if default_port > 0 => default_port,
            None => bail!("{url:?}: a TCP address needs a port"),
        };
        if host.is_empty() {
            bail!("{url:?}: no host");
        }
        let headers = headers.iter().map(|header| {
            let (name, value) = header
                .split_once(':')
                .with_context(|| format!("header {header:?}: expected `name: value`"))?;
            Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        });
        Ok(Self {
            method: method.to_owned(),
            is_tls,
            protocol,
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path,
            headers: headers.collect::<anyhow::Result<_>>()?,
        })
    }

    /// What the proxy sees of the request.
    pub(crate) fn call(&self, is_inbound: bool) -> Call {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<IpAddr>().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let host = self.headers.get("host").unwrap_or(&self.authority);
        Call {
            address,
            port: self.port,
            capture: if is_inbound { Capture::Inbound } else { Capture::None },
            protocol: if self.protocol == Scheme::Tcp { Protocol::Tcp } else { Protocol::Http1 },
            tls: self.is_tls.then(|| Tls { sni: self.host.clone(), ..Tls::default() }),
            method: self.method.clone(),
            host: host.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            ..Call::default()
        }
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let request =
            Request::parse("GET", "http://reviews:9080/x?y=1", &["End-User: jason".to_owned()]).unwrap();
        let call = request.call(false);
        assert_eq!((call.port, call.host.as_str(), call.path.as_str()), (9080, "reviews:9080", "/x?y=1"));
        assert_eq!(call.headers["end-user"], "jason");
        let request = Request::parse("GET", "https://[::1]?q", &[]).unwrap();
        assert_eq!((request.port, request.path.as_str(), request.host.as_str()), (443, "/?q", "[::1]"));
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        for (method, url) in [
            ("get", "http://a"),
            ("GET", "a"),
            ("GET", "ftp://a"),
            ("GET", "tcp://a"),
            ("GET", "http://a:x"),
            ("GET", "http:///x"),
        ] {
            assert!(Request::parse(method, url, &[]).is_err(), "{method} {url}");
        }
        assert!(Request::parse("GET", "http://a", &["nonsense".to_owned()]).is_err());
    }
}
