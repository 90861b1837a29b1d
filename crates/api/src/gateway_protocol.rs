//! What a Gateway's server does with the connections it accepts, as its port's protocol and TLS settings decide.

use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3::Server;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as TlsMode;

/// The protocol of the server's port.
pub fn protocol(server: &Server) -> Protocol {
    let name = server.port.as_ref().map_or("", |port| port.protocol.as_str());
    Protocol::parse(name)
}

/// Whether TLS bytes go through undecrypted, routed by SNI.
pub fn is_passthrough(server: &Server) -> bool {
    server
        .tls
        .as_ref()
        .is_some_and(|tls| matches!(tls.mode(), TlsMode::Passthrough | TlsMode::AutoPassthrough))
}

/// Whether requests can be routed one by one: plain HTTP, or HTTPS that ends here.
pub fn is_http(server: &Server) -> bool {
    let protocol = protocol(server);
    protocol.is_http() || (protocol == Protocol::Https && !is_passthrough(server))
}

/// Whether there are TLS settings that are more than an HTTPS redirect of a plain HTTP port.
pub fn is_tls(server: &Server) -> bool {
    server.tls.is_some() && !protocol(server).is_http()
}

/// Whether HTTPS ends here.
pub fn terminates_https(server: &Server) -> bool {
    server.tls.is_some() && protocol(server) == Protocol::Https && !is_passthrough(server)
}

/// Whether a connection that is not HTTP ends here rather than passing through undecrypted.
pub fn terminates_tcp(server: &Server) -> bool {
    let protocol = protocol(server);
    !is_passthrough(server) && !protocol.is_http() && !protocol.is_https()
}

/// Whether the server could also listen for HTTP/3, which has no form without TLS.
pub fn can_serve_http3(server: &Server) -> bool {
    protocol(server) == Protocol::Https && !is_passthrough(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_proto::istio::networking::v1alpha3::{Port, ServerTlsSettings};

    fn server(protocol: &str, mode: Option<TlsMode>) -> Server {
        Server {
            port: Some(Port { number: 443, protocol: protocol.into(), ..Default::default() }),
            tls: mode.map(|mode| ServerTlsSettings { mode: mode as i32, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn https_ends_here_unless_it_passes_through() {
        let terminating = server("HTTPS", Some(TlsMode::Simple));
        assert!(terminates_https(&terminating) && is_http(&terminating) && can_serve_http3(&terminating));
        for mode in [TlsMode::Passthrough, TlsMode::AutoPassthrough] {
            let passing = server("HTTPS", Some(mode));
            assert!(is_passthrough(&passing) && is_tls(&passing));
            assert!(!terminates_https(&passing) && !is_http(&passing) && !can_serve_http3(&passing));
        }
    }

    #[test]
    fn redirect_on_plain_http_is_not_tls() {
        let redirect = server("HTTP", Some(TlsMode::Passthrough));
        assert!(is_http(&redirect) && !is_tls(&redirect) && !can_serve_http3(&redirect));
    }

    #[test]
    fn tcp_ends_here_with_or_without_tls_settings() {
        assert!(terminates_tcp(&server("TLS", Some(TlsMode::Mutual))));
        assert!(terminates_tcp(&server("TCP", None)));
        assert!(!terminates_tcp(&server("TLS", Some(TlsMode::Passthrough))));
        assert!(!terminates_tcp(&server("HTTPS", Some(TlsMode::Simple))));
    }

    #[test]
    fn server_without_a_port_is_of_no_known_protocol() {
        assert_eq!(protocol(&Server::default()), Protocol::Unsupported);
        assert!(!is_http(&Server::default()));
    }
}
