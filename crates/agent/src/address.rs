//! `host:port`, as Go's `net.SplitHostPort` splits it.

/// A host, without brackets, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// Splits `host:port` or `[v6]:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_split_as_go_splits_them() {
        for (text, expected) in [
            ("istiod.istio-system.svc:15012", Some(("istiod.istio-system.svc", 15012))),
            ("[::1]:80", Some(("::1", 80))),
            (":80", Some(("", 80))),
            ("::1:80", None),
            ("host", None),
            ("host:", None),
            ("host:70000", None),
            ("[::1:80", None),
        ] {
            let parsed = HostPort::parse(text);
            assert_eq!(parsed.as_ref().map(|found| (&*found.host, found.port)), expected, "{text}");
        }
    }
}
