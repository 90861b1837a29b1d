//! Listeners of gRPC servers.

use canopus_api::labels as known;
use canopus_engine::Ctx;
use canopus_mesh::peer_authentication::{MutualTls, WorkloadPolicy};
use canopus_mesh::proxy::{Proxy, };
use canopus_mesh::target::Targets;
use canopus_mesh::workload::TLS_ISTIO;
use canopus_proto::Any;
use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{
    NonForwardingAction, Route, RouteConfiguration, RouteMatch, VirtualHost,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;

use super::{further_addresses, tls};
use crate::audience::{AudiencesOf, ListenerAudience};
use crate::authorization::proxyless;
use crate::endpoint::address;
use crate::http::filters;
use canopus_mesh::proxy_workload::describe;

/// The listener of a server that listens on `text`, an address with a port that one of its services leads to.
pub(super) fn listener(ctx: &Ctx<'_>, proxy: &Proxy, name: &str, text: &str) -> Option<Listener> {
    let (host, port) = split(text)?;
    let targets = ctx.get::<Targets>(proxy);
    // Parity: of several services that lead to the port, the last.
    let target = targets.iter().rfind(|target| target.target_port == port)?;
    let audiences = ctx.get::<AudiencesOf>(proxy);
    let audience = audiences.listeners.arriving()?;
    let guards = audience.access.as_ref().map(|access| proxyless::filters(ctx, access)).unwrap_or_default();
    let chain = match mode(ctx, proxy, audience, port) {
        MutualTls::Strict => chain("mtls", true, guards),
        // A server cannot tell the two apart by what it sees first.
        MutualTls::Permissive | MutualTls::Disable => chain("plaintext", false, guards),
    };
    Some(Listener {
        name: name.to_owned(),
        address: Some(address(host, port)),
        additional_addresses: further_addresses(ctx, &target.service, &audience.addressing, port),
        filter_chains: vec![chain],
        ..Default::default()
    })
}

/// Host and port of an address; those of IPv6 have brackets.
fn split(text: &str) -> Option<(&str, u32)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host, port.parse().ok()?))
}

/// A server that is announced to take mutual TLS must take it.
fn mode(ctx: &Ctx<'_>, proxy: &Proxy, audience: &ListenerAudience, port: u32) -> MutualTls {
    let peers = audience.peers.clone().unwrap_or_default();
    let policy = ctx.get::<WorkloadPolicy>(&(audience.caller.namespace.clone(), peers));
    let labels = describe(ctx, proxy).labels;
    let announced = labels.get(known::SECURITY_TLS_MODE.name) == Some(TLS_ISTIO);
    match policy.mode_on_port(port) {
        MutualTls::Permissive if announced => MutualTls::Strict,
        mode => mode,
    }
}

fn chain(kind: &str, mutual_tls: bool, mut http_filters: Vec<HttpFilter>) -> FilterChain {
    http_filters.push(filters::router(false));
    let everything = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".into())),
            ..Default::default()
        }),
        action: Some(Action::NonForwardingAction(NonForwardingAction {})),
        ..Default::default()
    };
    let routes = RouteConfiguration {
        name: "inbound".into(),
        virtual_hosts: vec![VirtualHost {
            domains: vec!["*".into()],
            routes: vec![everything],
            ..Default::default()
        }],
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        http_filters,
        ..Default::default()
    };
    FilterChain {
        name: format!("inbound-{kind}"),
        filters: vec![Filter {
            name: format!("inbound-hcm{kind}"),
            config_type: Some(ConfigType::TypedConfig(Any::pack(&manager))),
        }],
        transport_socket: mutual_tls.then(tls::server),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn addresses_of_ipv6_are_understood_when_they_have_brackets() {
        assert_eq!(split("10.0.0.1:80"), Some(("10.0.0.1", 80)));
        assert_eq!(split("[fd00::1]:80"), Some(("fd00::1", 80)));
        assert_eq!(split("fd00::1:80"), None);
        assert_eq!(split("[fd00::1:80"), None);
    }
}
