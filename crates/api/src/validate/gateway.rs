//! Gateways: the servers they open.

use std::collections::BTreeSet;

use canopus_base::labels::is_dns_label;
use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3::{Port, Server, ServerTlsSettings};

use super::code::codes;
use super::host::NamedBy;
use super::scope::Scope;
use super::{address, host, port, tls};
use crate::gateway_protocol::is_passthrough;
use crate::istio::Gateway;
use crate::text::quoted;

codes! {
    BAD_NAME: error "gateway-name-invalid", "name the Gateway with at most 63 letters, digits and dashes, no dots";
    NO_SERVERS: error "gateway-no-servers", "add a server to spec.servers";
    DUPLICATE_PORT_NAME: error "gateway-port-name-twice", "give each server's port a name of its own";
    REDIRECT_WITHOUT_HTTP: warning "gateway-redirect-without-http", "set tls.httpsRedirect on a server of protocol HTTP";
    NO_HOSTS: error "gateway-server-without-hosts", "add a host, or * for all";
    NO_TLS: error "gateway-server-without-tls", "add tls, or use a protocol without TLS";
    TLS_ON_HTTP: error "gateway-tls-on-http", "use protocol HTTPS, or keep only tls.httpsRedirect";
    TLS_ON_TCP: error "gateway-tls-on-plain-port", "use protocol HTTPS or TLS, or remove tls";
    NO_PORT: error "gateway-server-without-port", "give the server a port";
    UNKNOWN_PROTOCOL: error "gateway-protocol-unknown", "use HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS, MONGO, REDIS or MYSQL";
    TARGET_PORT: error "gateway-target-port", "remove targetPort";
    NO_PORT_NAME: error "gateway-port-without-name", "give the port a name";
    SOCKET_WITH_PORT: error "gateway-socket-with-port", "set the port's number to 0";
}

/// Set on gateways that the control plane makes from Kubernetes' own.
const SEMANTICS: &str = "internal.istio.io/gateway-semantics";

/// Checks a Gateway.
pub fn check(gateway: &Gateway, mut scope: Scope<'_>) {
    let from_kubernetes = gateway.meta.annotation(SEMANTICS) == Some("gateway");
    let name = &*gateway.meta.name;
    if !from_kubernetes && !is_dns_label(name) {
        let fault = BAD_NAME.says(format!("invalid gateway name: {}", quoted(name))).with_value(name);
        scope.field("metadata").field("name").add(fault);
    }
    let servers = &gateway.spec.servers;
    let mut scope = scope.field("spec");
    scope
        .field("servers")
        .add_if(servers.is_empty(), || NO_SERVERS.says("gateway must have at least one server"));
    let by = if from_kubernetes { NamedBy::KubernetesGateway } else { NamedBy::Gateway };
    scope.each("servers", servers, |server, scope| self::server(server, by, scope));
    let mut names = BTreeSet::new();
    scope.each("servers", servers, |server, mut scope| {
        let Some(port) = &server.port else { return };
        if !names.insert(port.name.as_str()) {
            let message = format!("port names in servers must be unique: duplicate name {}", port.name);
            scope.field("port").field("name").add(DUPLICATE_PORT_NAME.says(message).with_value(&port.name));
        }
        let redirects = server.tls.as_ref().is_some_and(|tls| tls.https_redirect);
        if redirects && !Protocol::parse(&port.protocol).is_http() {
            let message = "tls.httpsRedirect should only be used with http servers";
            scope.field("tls").field("httpsRedirect").add(REDIRECT_WITHOUT_HTTP.says(message));
        }
    });
}

/// Checks a server of a Gateway.
pub fn server(server: &Server, by: NamedBy, mut scope: Scope<'_>) {
    scope
        .field("hosts")
        .add_if(server.hosts.is_empty(), || NO_HOSTS.says("server config must contain at least one host"));
    scope.each("hosts", &server.hosts, |host, scope| host::namespaced(host, by, scope));
    let bad_port = scope.fails(|mut scope| {
        server_port(server.port.as_ref(), &server.bind, scope.field("port"));
    });
    bind(server.port.as_ref(), &server.bind, scope.field("bind"));
    scope.optional("tls", server.tls.as_ref(), tls::server);
    if let (false, Some(port)) = (bad_port, &server.port) {
        tls_of_port(server, Protocol::parse(&port.protocol), scope.field("tls"));
    }
}

/// TLS where the protocol has it, and only there.
fn tls_of_port(server: &Server, protocol: Protocol, mut scope: Scope<'_>) {
    match &server.tls {
        None if protocol.is_tls() => {
            scope.add(NO_TLS.says("server must have TLS settings for HTTPS/TLS protocols"));
        }
        Some(tls) if protocol.is_http() => {
            scope.add_if(!is_passthrough(server) || has_certificates(tls), || {
                TLS_ON_HTTP.says("server cannot have TLS settings for plain text HTTP ports")
            });
        }
        Some(_) if !protocol.is_tls() => {
            scope.add(TLS_ON_TCP.says("server cannot have TLS settings for non HTTPS/TLS ports"));
        }
        _ => {}
    }
}

fn has_certificates(tls: &ServerTlsSettings) -> bool {
    !tls.ca_certificates.is_empty() || !tls.private_key.is_empty() || !tls.server_certificate.is_empty()
}

/// Checks the port of a server that binds to an address or a socket.
pub fn server_port(port: Option<&Port>, bind: &str, mut scope: Scope<'_>) {
    let Some(port) = port else { return scope.add(NO_PORT.says("port is required")) };
    if Protocol::parse(&port.protocol).is_unsupported() {
        let message = format!(
            "invalid protocol {}, supported protocols are HTTP, HTTP2, GRPC, GRPC-WEB, MONGO, REDIS, MYSQL, TCP",
            quoted(&port.protocol)
        );
        scope.field("protocol").add(UNKNOWN_PROTOCOL.says(message).with_value(&port.protocol));
    }
    if port.number > 0 || !bind.starts_with(address::UNIX) {
        scope.field("number").require(port::number(port.number));
    }
    #[expect(deprecated, reason = "this is where its use is found")]
    let target_port = port.target_port;
    scope.field("targetPort").add_if(target_port > 0, || {
        TARGET_PORT.says("targetPort has no impact on Gateways").with_value(target_port)
    });
    scope.field("name").add_if(port.name.is_empty(), || {
        NO_PORT_NAME.says(format!("port name must be set: {}", shown(port)))
    });
}

fn bind(port: Option<&Port>, bind: &str, mut scope: Scope<'_>) {
    if let Some(socket) = bind.strip_prefix(address::UNIX) {
        scope.require(address::unix_socket(socket));
        if let Some(port) = port.filter(|port| port.number != 0) {
            let message = format!("port number must be 0 for unix domain socket: {}", shown(port));
            scope.add(SOCKET_WITH_PORT.says(message).with_value(port.number));
        }
    } else if !bind.is_empty() {
        scope.require(address::ip(bind));
    }
}

/// A port as Go's protobuf text has it.
fn shown(port: &Port) -> String {
    #[expect(deprecated, reason = "it is part of the text")]
    let target_port = port.target_port;
    let mut fields = Vec::new();
    if port.number != 0 {
        fields.push(format!("number:{}", port.number));
    }
    if !port.protocol.is_empty() {
        fields.push(format!("protocol:{}", quoted(&port.protocol)));
    }
    if !port.name.is_empty() {
        fields.push(format!("name:{}", quoted(&port.name)));
    }
    if target_port != 0 {
        fields.push(format!("target_port:{target_port}"));
    }
    fields.join(" ")
}
