//! Calls as rows write them, and errors as they name them.

use anyhow::{Context, bail};
use canopus_base::tree::Node;
use canopus_envoy::simulate::{Call, Capture, Failure, Protocol, Tls};

/// The address of a call that does not care.
const SOMEWHERE: &str = "1.3.3.7";
/// The secret of the mesh's own certificates.
const MESH_SECRET: &str = "default";

/// Reads a call and fills in what its client would send by itself.
pub(super) fn read(written: &Node) -> anyhow::Result<Call> {
    let text = |key: &str| written.get(key).and_then(Node::as_str);
    let protocol = match text("protocol") {
        Some("http") => Protocol::Http1,
        Some("http2") => Protocol::Http2,
        Some("tcp") | None => Protocol::Tcp,
        Some(other) => bail!("unknown protocol {other}"),
    };
    let capture = match text("callMode") {
        Some("inbound") => Capture::Inbound,
        Some("gateway" | "outbound") | None => Capture::None,
        Some(other) => bail!("unknown call mode {other}"),
    };
    let host = text("hostHeader").unwrap_or_default();
    // A server name is sent in a handshake, also where a row does not say that there is one.
    let tls = match text("tls").or_else(|| text("sni").map(|_| "tls")) {
        Some("plaintext") | None => None,
        Some("tls") => Some(Tls {
            sni: text("sni").unwrap_or(host).to_owned(),
            alpn: text("alpn").unwrap_or_else(|| offered(protocol)).to_owned(),
            mutual_with: None,
        }),
        Some("mtls") => Some(Tls {
            sni: text("sni").unwrap_or_default().to_owned(),
            alpn: text("alpn").unwrap_or_else(|| offered_in_mesh(protocol)).to_owned(),
            mutual_with: Some(text("mtlsSecretConfigName").unwrap_or(MESH_SECRET).to_owned()),
        }),
        Some(other) => bail!("unknown tls {other}"),
    };
    let port = written.get("port").and_then(Node::as_i64).context("no port")?;
    Ok(Call {
        address: text("address").unwrap_or(SOMEWHERE).parse()?,
        port: port.try_into()?,
        capture,
        protocol,
        tls,
        host: host.to_owned(),
        path: text("path").unwrap_or("/").to_owned(),
        ..Call::default()
    })
}

fn offered(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 => "http/1.1",
        Protocol::Http2 => "h2",
        Protocol::Tcp => "",
    }
}

fn offered_in_mesh(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 => "istio-http/1.1",
        Protocol::Http2 => "istio-h2",
        Protocol::Tcp => "istio",
    }
}

/// What rows call a failure.
pub(super) fn error_name(failure: Failure) -> &'static str {
    match failure {
        Failure::NoListener => "ErrNoListener",
        Failure::NoFilterChain => "ErrNoFilterChain",
        Failure::AmbiguousFilterChains => "ErrMultipleFilterChain",
        Failure::PlaintextToTls => "ErrTLSError",
        Failure::MutualTls => "ErrMTLSError",
        Failure::NotHttp => "ErrProtocolError",
        Failure::NoVirtualHost => "ErrNoVirtualHost",
        Failure::TlsRequired => "ErrTLSRedirect",
        Failure::NoRoute | Failure::NoAction => "ErrNoRoute",
        Failure::Denied => "ErrDenied",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tls(call: serde_json::Value) -> Option<Tls> {
        read(&Node::from(call)).unwrap().tls
    }

    #[test]
    fn client_fills_in_server_name_and_protocol_of_its_handshake() {
        let simple = tls(json!({"port": 443, "protocol": "http", "tls": "tls", "hostHeader": "a.com"}));
        let expected = Tls { sni: "a.com".into(), alpn: "http/1.1".into(), mutual_with: None };
        assert_eq!(simple, Some(expected));
        let mutual = tls(json!({"port": 443, "protocol": "http2", "tls": "mtls", "hostHeader": "a.com"}));
        let expected =
            Tls { sni: String::new(), alpn: "istio-h2".into(), mutual_with: Some("default".into()) };
        assert_eq!(mutual, Some(expected));
        assert_eq!(tls(json!({"port": 80, "tls": "plaintext"})), None);
        assert!(tls(json!({"port": 80, "sni": "a.com"})).is_some());
    }

    #[test]
    fn call_without_port_or_of_an_unknown_kind_is_refused() {
        for wrong in [json!({}), json!({"port": 1, "protocol": "udp"}), json!({"port": 1, "callMode": "x"})] {
            assert!(read(&Node::from(wrong)).is_err());
        }
    }
}
