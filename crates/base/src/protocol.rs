//! The protocol a port speaks, and how Kubernetes port names and `appProtocol` choose it.

#[cfg(test)]
mod tests;

use std::fmt;

/// What a port carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// gRPC-Web.
    GrpcWeb,
    /// HTTP/1.1, or whichever version the client upgrades to.
    Http,
    /// A generic HTTP forward-proxy port; only for sidecar egress listeners.
    HttpProxy,
    /// HTTP/2.
    Http2,
    /// HTTP over TLS, not terminated by the mesh.
    Https,
    /// Opaque TCP.
    Tcp,
    /// TLS with SNI, not terminated by the mesh.
    Tls,
    /// UDP, which proxies do not handle.
    Udp,
    /// MongoDB.
    Mongo,
    /// Redis.
    Redis,
    /// MySQL.
    MySql,
    /// The mesh's own HTTP/2 CONNECT tunnel; never declared by a service.
    Hbone,
    /// A tunnel within a tunnel, between networks; never declared by a service.
    DoubleHbone,
    /// Not declared: proxies detect the protocol from the first bytes.
    Unsupported,
}

/// Servers on these ports speak first, so looking at the client's bytes would hang them.
const SERVER_SPEAKS_FIRST: [u32; 4] = [25, 53, 3306, 27017];

impl Protocol {
    /// The protocol of a name such as `http2` in any letter case; [`Unsupported`](Self::Unsupported) if it is none.
    pub fn parse(name: &str) -> Self {
        const PARSED: [Protocol; 12] = [
            Protocol::Tcp,
            Protocol::Udp,
            Protocol::Grpc,
            Protocol::GrpcWeb,
            Protocol::Http,
            Protocol::HttpProxy,
            Protocol::Http2,
            Protocol::Https,
            Protocol::Tls,
            Protocol::Mongo,
            Protocol::Redis,
            Protocol::MySql,
        ];
        // Parity: the two tunnel protocols have names but no configuration may select them.
        PARSED
            .into_iter()
            .find(|protocol| protocol.as_str().eq_ignore_ascii_case(name))
            .unwrap_or(Self::Unsupported)
    }

    /// The protocol of a Kubernetes service port.
    ///
    /// `appProtocol`, if given, wins over the port's name; of either only the part before the first `-` counts, so that
    /// `http-admin` is HTTP. `transport` is the port's own protocol field: `TCP`, `UDP` or `SCTP`.
    pub fn from_port(port: u32, name: &str, transport: &str, app_protocol: Option<&str>) -> Self {
        if transport == "UDP" {
            return Self::Udp;
        }
        match app_protocol {
            Some("kubernetes.io/h2c") => return Self::Http2,
            Some("kubernetes.io/ws") => return Self::Http,
            Some("kubernetes.io/wss") => return Self::Https,
            _ => {}
        }
        match Self::from_port_name(app_protocol.unwrap_or(name)) {
            Self::Unsupported if SERVER_SPEAKS_FIRST.contains(&port) => Self::Tcp,
            protocol => protocol,
        }
    }

    fn from_port_name(name: &str) -> Self {
        let grpc_web = Self::GrpcWeb.as_str();
        // The one protocol with a hyphen in its name. Parity: `grpc-webby` counts too.
        if name.as_bytes().get(..grpc_web.len()).is_some_and(|s| s.eq_ignore_ascii_case(grpc_web.as_bytes()))
        {
            return Self::GrpcWeb;
        }
        Self::parse(name.split('-').next().unwrap_or(name))
    }

    /// The name, as users and diagnostics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "GRPC",
            Self::GrpcWeb => "GRPC-Web",
            Self::Http => "HTTP",
            Self::HttpProxy => "HTTP_PROXY",
            Self::Http2 => "HTTP2",
            Self::Https => "HTTPS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Udp => "UDP",
            Self::Mongo => "Mongo",
            Self::Redis => "Redis",
            Self::MySql => "MySQL",
            Self::Hbone => "HBONE",
            Self::DoubleHbone => "DoubleHBONE",
            Self::Unsupported => "UnsupportedProtocol",
        }
    }

    /// Whether requests can be routed one by one: any HTTP in clear text.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::HttpProxy | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether it is HTTP, or may be found to be.
    pub const fn is_http_or_sniffed(self) -> bool {
        self.is_http() || self.is_unsupported()
    }

    /// Whether it runs on HTTP/2 frames.
    pub const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether the mesh handles it as a TCP stream.
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Redis | Self::MySql)
    }

    /// Whether it is encrypted by the application.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// Whether it is HTTPS.
    pub const fn is_https(self) -> bool {
        matches!(self, Self::Https)
    }

    /// Whether it is gRPC in either form.
    pub const fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// Whether it is undeclared.
    pub const fn is_unsupported(self) -> bool {
        matches!(self, Self::Unsupported)
    }

    /// What is left once its TLS has been terminated.
    pub const fn after_tls_termination(self) -> Self {
        match self {
            Self::Https => Self::Http,
            Self::Tls => Self::Tcp,
            other => other,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
