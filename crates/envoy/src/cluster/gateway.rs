//! What gateways call: all services, or those that are routed to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Env;
use canopus_engine::Ctx;
use canopus_mesh::gateway::MergedGateways;
use canopus_mesh::gateway_api::EndpointPicker;
use canopus_mesh::list::List;
use canopus_mesh::scope;
use canopus_mesh::service::Service;
use canopus_mesh::virtual_service;
use canopus_mesh::world::settings;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;
use canopus_runtime::flags::{PILOT_FILTER_GATEWAY_CLUSTER_CONFIG, PILOT_SCOPE_GATEWAY_TO_NAMESPACE};

/// The services a gateway has clusters for.
pub(super) fn services(env: &Env<'_>) -> List<Service> {
    let services = scope::services(env.ctx, &env.audience.caller.scope);
    if !env.flag(PILOT_FILTER_GATEWAY_CLUSTER_CONFIG) {
        return services;
    }
    let routed = routed_hosts(env);
    let named = provider_services(env.ctx);
    let pools = services.iter().filter(|service| routed.contains(&*service.host));
    let pickers: BTreeSet<String> =
        pools.filter_map(|service| EndpointPicker::of(service)).map(|picker| picker.host).collect();
    let is_called = |service: &&Arc<Service>| {
        let qualified = format!("{}/{}", service.namespace, service.host);
        let host = &*service.host;
        routed.contains(host) || pickers.contains(host) || named.contains(host) || named.contains(&qualified)
    };
    services.iter().filter(is_called).cloned().collect::<Vec<_>>().into()
}

/// The hosts that VirtualServices route to through the gateway's servers.
fn routed_hosts(env: &Env<'_>) -> BTreeSet<String> {
    let merged = env.ctx.get::<MergedGateways>(&env.audience.gateway);
    let own_only = env.flag(PILOT_SCOPE_GATEWAY_TO_NAMESPACE);
    let mut hosts = BTreeSet::new();
    for gateway in merged.gateway_names() {
        let namespace = gateway.split_once('/').map(|(namespace, _)| namespace).filter(|_| own_only);
        for route in virtual_service::bound_to(env.ctx, &gateway).iter() {
            hosts.extend(virtual_service::destinations(&route.spec, namespace).into_keys());
        }
    }
    hosts
}

/// The services that extension providers name, as `host` or `namespace/host`.
pub(super) fn provider_services(ctx: &Ctx<'_>) -> BTreeSet<String> {
    let settings = settings(ctx);
    let providers = settings.mesh.extension_providers.iter();
    let named = providers.filter_map(|provider| {
        Some(match provider.provider.as_ref()? {
            Provider::EnvoyExtAuthzHttp(server) => &server.service,
            Provider::EnvoyExtAuthzGrpc(server) => &server.service,
            Provider::Zipkin(server) => &server.service,
            Provider::Datadog(server) => &server.service,
            Provider::Skywalking(server) => &server.service,
            Provider::Opentelemetry(server) => &server.service,
            Provider::EnvoyHttpAls(server) => &server.service,
            Provider::EnvoyTcpAls(server) => &server.service,
            Provider::EnvoyOtelAls(server) => &server.service,
            Provider::Sds(server) => &server.service,
            // Files, metrics that are scraped, and servers that are no longer supported.
            _ => return None,
        })
    });
    named.cloned().collect()
}

/// Whether the gateway passes encrypted connections on by their SNI.
pub(super) fn passes_connections_on(env: &Env<'_>) -> bool {
    env.ctx.get::<MergedGateways>(&env.audience.gateway).auto_passthrough
}
