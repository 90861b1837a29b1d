//! Route tables (RDS).

use std::collections::BTreeMap;

use canopus_api::Object;
use canopus_base::host;
use canopus_engine::{Ctx, Query};
use canopus_mesh::gateway::{BoundServer, Merged};
use canopus_mesh::proxy::View;
use canopus_mesh::virtual_service;
use canopus_mesh::world::{Objects, Origin, settings};
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use canopus_proto::resource::Resource;

use crate::route;

const MAX_DIRECT_RESPONSE_BYTES: u32 = 1 << 20;

/// One route table of a view, by its name. A name nobody uses any more is an empty table: a draining listener still asks.
pub struct Routes;

impl Query for Routes {
    const NAME: &'static str = "routes";
    type Key = (View, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (view, name): &Self::Key) -> Option<Resource> {
        let merged = ctx.get::<Merged>(view);
        let table = match merged.servers_of_route(name) {
            Some(servers) => RouteConfiguration {
                name: name.clone(),
                virtual_hosts: gateway_virtual_hosts(ctx, view, &servers),
                validate_clusters: Some(false.into()),
                ignore_port_in_host_matching: true,
                max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES.into()),
                ..Default::default()
            },
            None => RouteConfiguration {
                name: name.clone(),
                validate_clusters: Some(false.into()),
                ..Default::default()
            },
        };
        Some(Resource::encode(name.as_str(), &table))
    }
}

/// The virtual hosts of a port: where the hosts of its servers and of the VirtualServices bound to them meet.
fn gateway_virtual_hosts(ctx: &Ctx<'_>, view: &View, servers: &[&BoundServer]) -> Vec<VirtualHost> {
    let mut hosts: BTreeMap<String, VirtualHost> = BTreeMap::new();
    for server in servers {
        for bound in virtual_service::for_gateway(ctx, &view.namespace, &server.gateway) {
            add_virtual_service(ctx, server, &bound.origin, &mut hosts);
        }
    }
    if hosts.is_empty() {
        let port = servers.first().map_or(0, |server| server.port_number());
        return vec![VirtualHost {
            name: format!("blackhole:{port}"),
            domains: vec!["*".into()],
            ..Default::default()
        }];
    }
    hosts.into_values().collect()
}

fn add_virtual_service(
    ctx: &Ctx<'_>,
    server: &BoundServer,
    key: &Origin,
    hosts: &mut BTreeMap<String, VirtualHost>,
) {
    let Some(object) = ctx.read::<Objects>(key) else { return };
    let Object::VirtualService(service) = object.as_ref() else { return };
    let offered = host::for_namespace(&server.server.hosts, key.namespace());
    let wanted: Vec<_> = service.spec.hosts.iter().map(|name| host::Name::new(name.as_str())).collect();
    let shared = host::intersection(&offered, &wanted);
    if shared.is_empty() {
        return;
    }
    let port = server.port_number();
    let routes =
        route::http_routes(ctx, key, &service.spec, &server.gateway.to_string(), port, &settings(ctx));
    for name in shared {
        let name = name.as_str().to_lowercase();
        hosts
            .entry(name.clone())
            .or_insert_with(|| VirtualHost {
                name: format!("{name}:{port}"),
                domains: vec![name],
                include_request_attempt_count: true,
                ..Default::default()
            })
            .routes
            .extend(routes.iter().cloned());
    }
}
