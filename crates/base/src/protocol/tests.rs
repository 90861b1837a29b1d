use super::*;

#[test]
fn parse_ignores_case_and_knows_no_tunnels() {
    let cases = [
        ("http", Protocol::Http),
        ("Http_Proxy", Protocol::HttpProxy),
        ("http2", Protocol::Http2),
        ("HTTPS", Protocol::Https),
        ("grpc-Web", Protocol::GrpcWeb),
        ("udp", Protocol::Udp),
        ("MONGO", Protocol::Mongo),
        ("Redis", Protocol::Redis),
        ("mysql", Protocol::MySql),
        ("", Protocol::Unsupported),
        ("smtp", Protocol::Unsupported),
        ("HBONE", Protocol::Unsupported),
        ("DoubleHBONE", Protocol::Unsupported),
        ("UnsupportedProtocol", Protocol::Unsupported),
    ];
    for (name, expected) in cases {
        assert_eq!(Protocol::parse(name), expected, "{name}");
    }
}

#[test]
fn port_protocol_follows_app_protocol_then_name_then_port() {
    let cases = [
        (8888, "", "TCP", None, Protocol::Unsupported),
        (25, "", "TCP", None, Protocol::Tcp),
        (3306, "", "TCP", None, Protocol::Tcp),
        (8888, "http", "TCP", None, Protocol::Http),
        (8888, "http-test", "TCP", None, Protocol::Http),
        (8888, "http", "UDP", None, Protocol::Udp),
        (8888, "httptest", "TCP", None, Protocol::Unsupported),
        (53, "httptest", "TCP", None, Protocol::Tcp),
        (27017, "httptest", "TCP", None, Protocol::Tcp),
        (8888, "grpc", "TCP", None, Protocol::Grpc),
        (8888, "grpc-web", "TCP", None, Protocol::GrpcWeb),
        (8888, "gRPC-WEB-x", "TCP", None, Protocol::GrpcWeb),
        (8888, "grpc-we", "TCP", None, Protocol::Grpc),
        (8888, "mongo-test", "TCP", None, Protocol::Mongo),
        (8888, "mysql-test", "TCP", None, Protocol::MySql),
        (8888, "tcp", "TCP", Some("http"), Protocol::Http),
        (8888, "http", "TCP", Some(""), Protocol::Unsupported),
        (8888, "tcp", "TCP", Some("kubernetes.io/h2c"), Protocol::Http2),
        (8888, "tcp", "TCP", Some("kubernetes.io/ws"), Protocol::Http),
        (8888, "tcp", "TCP", Some("kubernetes.io/wss"), Protocol::Https),
        (8888, "kubernetes.io/h2c", "TCP", None, Protocol::Unsupported),
        (8888, "grpc-wé", "TCP", None, Protocol::Grpc),
    ];
    for (port, name, transport, app, expected) in cases {
        assert_eq!(
            Protocol::from_port(port, name, transport, app),
            expected,
            "{port} {name} {transport} {app:?}"
        );
    }
}

#[test]
fn every_protocol_has_one_transport_family() {
    for (protocol, http, tcp) in [
        (Protocol::Grpc, true, false),
        (Protocol::HttpProxy, true, false),
        (Protocol::Https, false, true),
        (Protocol::Mongo, false, true),
        (Protocol::Udp, false, false),
        (Protocol::Hbone, false, false),
        (Protocol::Unsupported, false, false),
    ] {
        assert_eq!((protocol.is_http(), protocol.is_tcp()), (http, tcp), "{protocol}");
    }
    assert!(Protocol::Unsupported.is_http_or_sniffed());
    assert!(Protocol::GrpcWeb.is_grpc() && Protocol::GrpcWeb.is_http2());
    assert_eq!(Protocol::Https.after_tls_termination(), Protocol::Http);
    assert_eq!(Protocol::Tls.after_tls_termination(), Protocol::Tcp);
    assert_eq!(Protocol::Grpc.after_tls_termination(), Protocol::Grpc);
}
