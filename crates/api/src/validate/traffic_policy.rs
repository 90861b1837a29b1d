//! How traffic to a host is sent: load balancing, connections, TLS, per port.

mod load_balancer;

use canopus_proto::istio::networking::v1alpha3::TrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::{
    PortTrafficPolicy, ProxyProtocol, TunnelSettings,
};

use super::code::codes;
use super::scope::Scope;
use super::{address, connection_pool, host, outlier_detection, port, tls};

pub(super) use load_balancer::CODES as LOAD_BALANCER_CODES;
pub use load_balancer::check as load_balancer;

codes! {
    EMPTY: error "traffic-policy-empty", "give at least one setting, or remove the policy";
    TUNNEL_AND_PROXY_PROTOCOL: error "traffic-policy-tunnel-and-proxy-protocol", "use either tunnel or proxyProtocol";
    PROXY_PROTOCOL_VERSION: error "traffic-policy-proxy-protocol-version", "use V1 or V2";
    TUNNEL_PROTOCOL: error "traffic-policy-tunnel-protocol", "use CONNECT or POST";
    TUNNEL_HOST: error "traffic-policy-tunnel-host", "give a host name or an IP address";
    TUNNEL_PORT: error "traffic-policy-tunnel-port", "give a port from 1 to 65535";
    NO_PORT: error "traffic-policy-port-missing", "say which port the settings are for";
    EMPTY_PORT_POLICY: error "traffic-policy-port-empty", "give at least one setting for the port, or remove it";
}

/// A policy of a rule in a namespace.
pub fn check(policy: &TrafficPolicy, namespace: &str, mut scope: Scope<'_>) {
    if *policy == TrafficPolicy::default() {
        return scope.add(EMPTY.says("traffic policy must have at least one field"));
    }
    if policy.tunnel.is_some() && policy.proxy_protocol.is_some() {
        let message = "tunnel and proxyProtocol must not be set together";
        scope.add(TUNNEL_AND_PROXY_PROTOCOL.says(message));
        return settings(policy, namespace, scope.ours());
    }
    settings(policy, namespace, scope);
}

fn settings(policy: &TrafficPolicy, namespace: &str, mut scope: Scope<'_>) {
    let TrafficPolicy { outlier_detection, connection_pool, load_balancer, tls, .. } = policy;
    scope.optional("outlierDetection", outlier_detection.as_ref(), outlier_detection::check);
    scope.optional("connectionPool", connection_pool.as_ref(), connection_pool::check);
    scope.optional("loadBalancer", load_balancer.as_ref(), |settings, scope| {
        self::load_balancer(settings, outlier_detection.is_some(), scope);
    });
    scope.optional("tls", tls.as_ref(), |settings, scope| tls::client(settings, namespace, scope));
    scope.each("portLevelSettings", &policy.port_level_settings, |policy, scope| {
        // Parity: Istio drops the warnings of a port's settings.
        port_policy(policy, namespace, scope.without_warnings());
    });
    scope.optional("tunnel", policy.tunnel.as_ref(), tunnel);
    scope.optional("proxyProtocol", policy.proxy_protocol.as_ref(), proxy_protocol);
}

fn port_policy(policy: &PortTrafficPolicy, namespace: &str, mut scope: Scope<'_>) {
    let PortTrafficPolicy { port, outlier_detection, connection_pool, load_balancer, tls } = policy;
    if port.is_none() {
        scope.field("port").add(NO_PORT.says("portTrafficPolicy must have valid port"));
    }
    if outlier_detection.is_none() && connection_pool.is_none() && load_balancer.is_none() && tls.is_none() {
        scope.add(EMPTY_PORT_POLICY.says("port traffic policy must have at least one field"));
    }
    scope.optional("outlierDetection", outlier_detection.as_ref(), outlier_detection::check);
    scope.optional("connectionPool", connection_pool.as_ref(), connection_pool::check);
    scope.optional("loadBalancer", load_balancer.as_ref(), |settings, scope| {
        self::load_balancer(settings, outlier_detection.is_some(), scope);
    });
    scope.optional("tls", tls.as_ref(), |settings, scope| tls::client(settings, namespace, scope));
}

fn tunnel(tunnel: &TunnelSettings, mut scope: Scope<'_>) {
    let TunnelSettings { protocol, target_host, target_port } = tunnel;
    if !matches!(protocol.as_str(), "" | "CONNECT" | "POST") {
        let message = r#"tunnel protocol must be "CONNECT" or "POST""#;
        scope.field("protocol").add(TUNNEL_PROTOCOL.says(message).with_value(protocol));
    }
    if let (Err(not_a_name), Err(not_an_ip)) = (host::fqdn(target_host), address::ip(target_host)) {
        let message =
            format!("tunnel target host must be valid FQDN or IP address: {not_a_name}; {not_an_ip}");
        scope.field("targetHost").add(TUNNEL_HOST.says(message).with_value(target_host));
    }
    if let Err(fault) = port::number(*target_port) {
        let message = format!("tunnel target port is invalid: {fault}");
        scope.field("targetPort").add(TUNNEL_PORT.says(message).with_value(target_port));
    }
}

fn proxy_protocol(settings: &ProxyProtocol, mut scope: Scope<'_>) {
    let version = settings.version;
    scope.field("version").add_if(!matches!(version, 0 | 1), || {
        PROXY_PROTOCOL_VERSION
            .says(format!("proxy protocol version is invalid: {version}"))
            .with_value(version)
    });
}
