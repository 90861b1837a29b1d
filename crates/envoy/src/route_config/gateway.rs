//! Route tables of gateways.

use std::collections::BTreeMap;

use canopus_base::host;
use canopus_engine::Ctx;
use canopus_mesh::gateway::{BoundServer, Merged};
use canopus_mesh::proxy::View;
use canopus_mesh::service::ServicesByHost;
use canopus_mesh::virtual_service::{VirtualService, for_gateway};
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::{MAX_DIRECT_RESPONSE_BYTES, headers};
use crate::names;
use crate::route::{self, Known, Site};

/// The table of a name; `None` if no server uses it.
pub(super) fn table(ctx: &Ctx<'_>, view: &View, name: &str) -> Option<RouteConfiguration> {
    let merged = ctx.get::<Merged>(view);
    let servers = merged.servers_of_route(name)?;
    Some(RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: virtual_hosts(ctx, view, &servers),
        validate_clusters: Some(false.into()),
        ignore_port_in_host_matching: true,
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES.into()),
        ..Default::default()
    })
}

/// The virtual hosts of a port: where the hosts of its servers and of the VirtualServices bound to them meet.
fn virtual_hosts(ctx: &Ctx<'_>, view: &View, servers: &[&BoundServer]) -> Vec<VirtualHost> {
    let mut hosts: BTreeMap<String, VirtualHost> = BTreeMap::new();
    for server in servers {
        for source in for_gateway(ctx, &view.namespace, &server.gateway) {
            add_virtual_service(ctx, view, server, &source, &mut hosts);
        }
    }
    if hosts.is_empty() {
        let port = servers.first().map_or(0, |server| server.port_number());
        return vec![VirtualHost {
            name: names::domain("blackhole", port),
            domains: vec!["*".into()],
            ..Default::default()
        }];
    }
    hosts.into_values().collect()
}

fn add_virtual_service(
    ctx: &Ctx<'_>,
    view: &View,
    server: &BoundServer,
    source: &VirtualService,
    hosts: &mut BTreeMap<String, VirtualHost>,
) {
    let offered = host::for_namespace(&server.server.hosts, source.namespace());
    let wanted: Vec<_> = source.spec.hosts.iter().map(|name| host::Name::new(name.as_str())).collect();
    let shared = host::intersection(&offered, &wanted);
    if shared.is_empty() {
        return;
    }
    let port = server.port_number();
    let service = |host: &str| {
        let found = ctx.get::<ServicesByHost>(&host.into());
        let own = found.get(source.namespace()).or_else(|| found.values().next());
        own.cloned().map(Known::whole)
    };
    let site =
        Site { ctx, view, gateway: &server.gateway, port, tls: false, http3: false, service: &service };
    let routes = route::http_routes(&site, source);
    for name in shared {
        let name = name.as_str().to_lowercase();
        hosts
            .entry(name.clone())
            .or_insert_with(|| VirtualHost {
                name: names::domain(&name, port),
                domains: vec![name],
                include_request_attempt_count: headers::counts_attempts(ctx, view),
                ..Default::default()
            })
            .routes
            .extend(routes.iter().cloned());
    }
}
