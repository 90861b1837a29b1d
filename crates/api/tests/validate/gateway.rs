//! Gateways.

use canopus_api::validate;

use super::{check, lines, object_with, report};

#[test]
fn hosts_and_ports_are_checked_in_order() {
    check(
        "Gateway",
        r"
selector: {a: b}
servers:
- hosts: [a b, ns/*.com/x, '*/*', '*bar.com', '~/a.com', /]
  port: {number: 0, protocol: FOO}
- hosts: []
  port: {name: x, number: 90000, protocol: HTTP, targetPort: 1}
- bind: 10.0.0.300
",
        &[
            "spec.servers[0].hosts[0]: short names (non FQDN) are not allowed",
            r#"spec.servers[0].hosts[0]: domain name "a b" invalid (label "a b" invalid)"#,
            r#"spec.servers[0].hosts[1]: domain name "com/x" invalid (label "com/x" invalid)"#,
            r#"spec.servers[0].hosts[3]: partial wildcard "*bar.com" not allowed"#,
            r#"spec.servers[0].hosts[4]: invalid namespace value "~" in gateway"#,
            "spec.servers[0].hosts[5]: config namespace and dnsName in host entry cannot be empty",
            r#"spec.servers[0].hosts[5]: invalid namespace value "" in gateway"#,
            "spec.servers[0].hosts[5]: short names (non FQDN) are not allowed",
            "spec.servers[0].hosts[5]: empty domain name not allowed",
            "spec.servers[0].port.protocol: invalid protocol \"FOO\", supported protocols are HTTP, HTTP2, GRPC, GRPC-WEB, \
             MONGO, REDIS, MYSQL, TCP",
            "spec.servers[0].port.number: port number 0 must be in the range 1..65535",
            r#"spec.servers[0].port.name: port name must be set: protocol:"FOO""#,
            "spec.servers[1].hosts: server config must contain at least one host",
            "spec.servers[1].port.number: port number 90000 must be in the range 1..65535",
            "spec.servers[1].port.targetPort: targetPort has no impact on Gateways",
            "spec.servers[2].hosts: server config must contain at least one host",
            "spec.servers[2].port: port is required",
            "spec.servers[2].bind: 10.0.0.300 is not a valid IP",
        ],
        &[],
    );
}

#[test]
fn tls_belongs_to_protocols_that_have_it() {
    check(
        "Gateway",
        r"
servers:
- {hosts: ['*'], port: {name: a, number: 1, protocol: HTTPS}}
- {hosts: ['*'], port: {name: b, number: 2, protocol: HTTP}, tls: {httpsRedirect: true}}
- {hosts: ['*'], port: {name: c, number: 3, protocol: HTTP}, tls: {httpsRedirect: true, privateKey: x}}
- {hosts: ['*'], port: {name: d, number: 4, protocol: TCP}, tls: {mode: SIMPLE, credentialName: x}}
- {hosts: ['*'], port: {name: d, number: 5, protocol: TLS}, tls: {httpsRedirect: true, minProtocolVersion: TLSV1_0}}
- {hosts: ['*'], port: {name: '', number: 0, protocol: HTTP}, bind: 'unix:///a.sock'}
",
        &[
            "spec.servers[0].tls: server must have TLS settings for HTTPS/TLS protocols",
            "spec.servers[2].tls: server cannot have TLS settings for plain text HTTP ports",
            "spec.servers[3].tls: server cannot have TLS settings for non HTTPS/TLS ports",
            r#"spec.servers[5].port.name: port name must be set: protocol:"HTTP""#,
            "spec.servers[4].port.name: port names in servers must be unique: duplicate name d",
        ],
        &[
            "spec.servers[2].tls: PASSTHROUGH mode does not use certificates, they will be ignored",
            "spec.servers[4].tls.minProtocolVersion: TLS version below TLSV1_2 require setting compatible ciphers as by \
             default they no longer include compatible ciphers.",
            "spec.servers[4].tls.httpsRedirect: tls.httpsRedirect should only be used with http servers",
        ],
    );
}

#[test]
fn gateway_made_from_a_kubernetes_one_may_have_dots_and_nobody() {
    let spec = "servers: [{hosts: [~/a.com], port: {name: a, number: 1, protocol: HTTP}}]";
    let found = |metadata: &str| lines(&validate::validate(&object_with("Gateway", metadata, spec)).errors);
    assert_eq!(found("annotations: {internal.istio.io/gateway-semantics: gateway}"), [""; 0]);
    assert_eq!(found("labels: {}"), [r#"spec.servers[0].hosts[0]: invalid namespace value "~" in gateway"#]);
}

#[test]
fn certificate_that_is_alone_is_said_as_it_is() {
    let spec = "servers: [{hosts: [a.com], port: {name: a, number: 1, protocol: TLS}, tls: {mode: MUTUAL, \
                serverCertificate: a, privateKey: b}}]";
    assert_eq!(report("Gateway", spec).error_text().unwrap(), "MUTUAL TLS requires a client CA bundle");
}
