//! Listeners for what comes in.

use std::collections::BTreeSet;

use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{IstioIngressListener, ServerTlsSettings, SidecarPort};

use crate::text::quoted;
use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::{address, connection_pool, port, tls};

codes! {
    NO_PORT: error "sidecar-ingress-without-port", "give the listener a port";
    BAD_SPLIT: error "sidecar-endpoint-without-port", "write defaultEndpoint as host:port";
    FOREIGN_ENDPOINT: error "sidecar-endpoint-elsewhere", "send to the workload itself: 127.0.0.1:port, [::1]:port, 0.0.0.0:port, [::]:port or unix://path";
    TLS_UNSUPPORTED: error "sidecar-tls-unsupported", "remove the setting, a sidecar has no use for it";
    TLS_MODE: error "sidecar-tls-mode", "use SIMPLE, MUTUAL, OPTIONAL_MUTUAL or PASSTHROUGH";
    TLS_ON_PLAIN_PORT: error "sidecar-tls-on-plain-port", "use protocol HTTPS or TLS, or remove tls";
    HTTP_ON_TCP: warning "sidecar-http-pool-on-tcp", "set the protocol of the port, or remove the http settings";
}

pub(super) fn check(listeners: &[IstioIngressListener], mut scope: Scope<'_>) {
    let mut numbers = BTreeSet::new();
    for (index, listener) in listeners.iter().enumerate() {
        let mut scope = scope.item(index);
        let Some(port) = &listener.port else {
            scope.field("port").add(NO_PORT.says("sidecar: port is required for ingress listeners"));
            continue;
        };
        super::target_port(port, scope.field("port"));
        super::port_words(port, scope.field("port"));
        super::on_network(port, &listener.bind, scope.again());
        if !numbers.insert(port.number) {
            super::same_port(port, scope.again());
        }
        if !listener.default_endpoint.is_empty() {
            default_endpoint(&listener.default_endpoint, scope.field("defaultEndpoint"));
        }
        scope.optional("tls", listener.tls.as_ref(), |tls, scope| tls_settings(tls, port, scope));
        pool(listener, port, scope);
    }
}

/// Where a listener sends: to this workload, nowhere else.
fn default_endpoint(endpoint: &str, mut scope: Scope<'_>) {
    if let Some(socket) = endpoint.strip_prefix(address::UNIX) {
        return scope.require(address::unix_socket(socket));
    }
    let (host, port_text) = address::split_host_port(endpoint).unwrap_or_else(|error| {
        scope.add(BAD_SPLIT.says(error).with_value(endpoint));
        ("", "")
    });
    if !matches!(host, "" | "127.0.0.1" | "0.0.0.0" | "::1" | "::") {
        let message = "sidecar: defaultEndpoint must be of form \
                       127.0.0.1:<port>,0.0.0.0:<port>,[::1]:port,[::]:port,unix://filepath or unset";
        scope.add(FOREIGN_ENDPOINT.says(message).with_value(endpoint));
    }
    match address::port_number(port_text) {
        Ok(number) => scope.require(port::number(number)),
        Err(fault) => scope.add(fault.reworded(|error| {
            format!("sidecar: defaultEndpoint port ({port_text}) is not a number: {error}")
        })),
    }
}

fn tls_settings(tls: &ServerTlsSettings, port: &SidecarPort, mut scope: Scope<'_>) {
    let unsupported = [
        (
            "subjectAltNames",
            !tls.subject_alt_names.is_empty(),
            "subjectAltNames is not supported in ingress tls",
        ),
        ("httpsRedirect", tls.https_redirect, "httpsRedirect is not supported"),
        ("credentialName", !tls.credential_name.is_empty(), "credentialName is not currently supported"),
        ("credentialNames", !tls.credential_names.is_empty(), "credentialNames is not currently supported"),
        ("tlsCertificates", !tls.tls_certificates.is_empty(), "tls_certificates is not currently supported"),
    ];
    for (field, used, words) in unsupported {
        scope.field(field).add_if(used, || TLS_UNSUPPORTED.says(format!("sidecar: {words}")));
    }
    let mode = tls.mode();
    scope.field("mode").add_if(matches!(mode, Mode::IstioMutual | Mode::AutoPassthrough), || {
        let mode = mode.as_str_name();
        let message = format!("configuration is invalid: cannot set mode to {mode} in sidecar ingress tls");
        TLS_MODE.says(message).with_value(mode)
    });
    scope.add_if(!Protocol::parse(&port.protocol).is_tls(), || {
        TLS_ON_PLAIN_PORT.says("server cannot have TLS settings for non HTTPS/TLS ports")
    });
    tls::server(tls, scope);
}

fn pool(listener: &IstioIngressListener, port: &SidecarPort, mut scope: Scope<'_>) {
    let Some(pool) = &listener.connection_pool else { return };
    let mut scope = scope.field("connectionPool");
    connection_pool::check(pool, scope.again());
    if pool.http.is_some() && !Protocol::parse(&port.protocol).is_http() {
        let SidecarPort { number, name, protocol, .. } = port;
        let name = quoted(name);
        let message = format!(
            "sidecar: HTTP connection pool settings are configured for port {number} ({name}) but its protocol is not \
             HTTP ({protocol}); only TCP settings will apply"
        );
        scope.field("http").add(HTTP_ON_TCP.says(message));
    }
}
