//! Listeners of gRPC clients: one for each `host:port` that is dialled, under the name it was dialled by.

use canopus_engine::Ctx;
use canopus_mesh::proxy::{Proxy, };
use canopus_mesh::scope::scoped_service;
use canopus_mesh::service::{Port, Service, };
use canopus_proto::Any;
use canopus_proto::envoy::config::listener::v3::{ApiListener, Listener};
use canopus_proto::envoy::extensions::filters::http::fault::v3::HttpFault;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, Rds};

use super::{ads, further_addresses};
use crate::audience::{AudiencesOf, RouteAudience};
use crate::endpoint::address;
use crate::filter::http_filter;
use crate::http::filters;
use crate::names;
use canopus_mesh::audience::Addressing;
use canopus_mesh::service::known_address;

pub(super) fn listeners(ctx: &Ctx<'_>, proxy: &Proxy, name: &str) -> Vec<Listener> {
    let routes = ctx.get::<AudiencesOf>(proxy).routes.routes.clone();
    let (dialled, port) =
        match name.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))) {
            Some((host, port)) => (host, Some(port)),
            None => (name, None),
        };
    let candidates = [Some(dialled.to_owned()), full_name(&routes, dialled)];
    let Some(service) =
        candidates.into_iter().flatten().find_map(|host| scoped_service(ctx, &routes.caller.scope, &host))
    else {
        return Vec::new();
    };
    let ports = service.ports.iter().filter(|own| port.is_none_or(|port: u32| own.number == port));
    ports.map(|port| listener(ctx, &routes.addressing, &service, port, dialled)).collect()
}

/// What a short name means in the client's domain: `a`, `a.ns` and `a.ns.svc` are `a.ns.svc.cluster.local`.
fn full_name(audience: &RouteAudience, name: &str) -> Option<String> {
    if !name.contains('.') {
        return Some(format!("{name}.{}", audience.domain));
    }
    let namespace = &*audience.source.namespace;
    [namespace.to_owned(), format!("{namespace}.svc")].into_iter().find_map(|suffix| {
        let short = name.strip_suffix(&format!(".{suffix}"))?;
        audience.domain.starts_with(&suffix).then(|| format!("{short}.{}", audience.domain))
    })
}

fn listener(
    ctx: &Ctx<'_>,
    addressing: &Addressing,
    service: &Service,
    port: &Port,
    dialled: &str,
) -> Listener {
    let manager = HttpConnectionManager {
        http_filters: vec![
            http_filter("envoy.filters.http.fault", &HttpFault::default()),
            filters::router(false),
        ],
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads()),
            route_config_name: names::outbound_cluster(&service.host, port.number, ""),
        })),
        ..Default::default()
    };
    Listener {
        name: format!("{dialled}:{}", port.number),
        address: Some(address(known_address(service, addressing), port.number)),
        additional_addresses: further_addresses(ctx, service, addressing, port.number),
        api_listener: Some(ApiListener { api_listener: Some(Any::pack(&manager)) }),
        ..Default::default()
    }
}
