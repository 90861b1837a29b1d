//! Clusters whose endpoints are found by name: they hold the names, and the proxy resolves them.

use canopus_mesh::service::{Resolution, Service};
use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DnsLookupFamily, LbPolicy,
};
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig;
use canopus_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::cluster_config::ClusterImplementationSpecifier;
use canopus_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use canopus_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ConnectionPoolSettings, LoadBalancerSettings};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{PILOT_DNS_CARES_UDP_MAX_QUERIES, PILOT_DNS_JITTER_DURATION};

use super::draft::Draft;
use super::outbound::is_wildcard;
use super::traits::ClientTraits;
use super::transport::{self, Client, Server};
use super::{connection_pool, fixed};
use crate::audience::Resolver;
use crate::endpoint::{self, Destination};
use crate::{dns_cache, names, proximity};
use canopus_mesh::audience::Addressing;
use canopus_runtime::flags::Flags;

/// Sets how names are resolved.
#[allow(deprecated, reason = "Parity: the fields that proxies of every version in use read")]
pub(super) fn resolve(draft: &mut Draft, settings: &MeshSettings, traits: &ClientTraits, service: &Service) {
    let flags = &settings.flags;
    let family = if service.races_connections { DnsLookupFamily::All } else { traits.lookup_family(flags) };
    let queries = u32::try_from(flags.get(PILOT_DNS_CARES_UDP_MAX_QUERIES)).unwrap_or(u32::MAX);
    let resolver = CaresDnsResolverConfig { udp_max_queries: Some(queries.into()), ..Default::default() };
    let cluster = draft.rest();
    cluster.set_dns_lookup_family(family);
    cluster.typed_dns_resolver_config = Some(TypedExtensionConfig {
        name: "envoy.network.dns_resolver.cares".to_owned(),
        typed_config: Some(Any::pack(&resolver)),
    });
    cluster.dns_jitter = Some(flags.get(PILOT_DNS_JITTER_DURATION).into());
    cluster.dns_refresh_rate = settings.mesh.dns_refresh_rate;
    cluster.respect_dns_ttl = true;
}

/// Puts the endpoints of a destination into its cluster; `None` if there are none.
pub(super) fn hold_endpoints(
    draft: &mut Draft,
    env: &endpoint::Env<'_>,
    destination: &Destination<'_>,
) -> Option<()> {
    let mut groups = endpoint::resolved(env, destination);
    draft.rest().load_assignment = Some(ClusterLoadAssignment {
        cluster_name: destination.cluster.to_owned(),
        endpoints: endpoint::take_messages(&mut groups),
        ..Default::default()
    });
    if groups.is_empty() {
        return None;
    }
    // Parity: labels decide about the endpoints of the first locality only.
    draft.held = groups.into_iter().take(1).collect();
    Some(())
}

/// Weighs and orders the endpoints that a cluster holds.
pub(super) fn order_endpoints(
    draft: &mut Draft,
    env: &endpoint::Env<'_>,
    service: &Service,
    balancer: Option<&LoadBalancerSettings>,
) {
    let Some(proximity) = proximity::find(env.mesh(), service, balancer) else { return };
    let detects_outliers = draft.detects_outliers();
    let held = std::mem::take(&mut draft.held);
    if let Some(assignment) = &mut draft.rest().load_assignment {
        endpoint::order(
            env.audience.role.kind,
            &env.audience.position,
            &proximity,
            detects_outliers,
            &held,
            assignment,
        );
    }
}

/// Whether requests to a service go to whatever address their host has.
pub(super) fn is_forward_proxy(service: &Service) -> bool {
    service.resolution == Resolution::DynamicDns && is_wildcard(service)
}

/// The cluster of a wildcard service, which resolves the host of each request.
pub(super) fn forward_proxy(flags: &Flags, addressing: &Addressing, name: &str, service: &Service) -> Draft {
    let cache = dns_cache::host_cache(flags, addressing, &service.host);
    forwarding(name, cache, false)
}

fn forwarding(name: &str, cache: DnsCacheConfig, insecure: bool) -> Draft {
    let config = ClusterConfig {
        allow_insecure_cluster_options: insecure,
        cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(cache)),
        ..Default::default()
    };
    let custom = CustomClusterType {
        name: "envoy.clusters.dynamic_forward_proxy".to_owned(),
        typed_config: Some(Any::pack(&config)),
    };
    let mut draft = Draft::new(name.to_owned(), ClusterDiscoveryType::ClusterType(custom));
    draft.lb_policy = LbPolicy::ClusterProvided;
    draft.is_forward_proxy = true;
    draft
}

/// Where traffic goes to hosts that no service has, where sidecars resolve them.
pub(super) fn unknown_hosts(
    settings: &MeshSettings,
    traits: &ClientTraits,
    addressing: &Addressing,
    resolver: &Resolver,
) -> Resource {
    let policy = settings.mesh.outbound_traffic_policy.as_ref();
    let tls = policy.and_then(|policy| policy.tls.as_ref()).filter(|tls| tls.mode() != Mode::Disable);
    let cache = dns_cache::unknown_hosts_cache(&settings.flags, addressing, resolver);
    let mut draft = forwarding(names::ALLOW_ANY_DYNAMIC_DNS, cache, tls.is_none());
    connection_pool::apply(&mut draft, settings, &ConnectionPoolSettings::default(), None);
    if let Some(tls) = tls {
        let server = Server { is_external: true, ..Default::default() };
        let client = Client { traits, settings };
        if let Ok(Some(socket)) = transport::socket(&mut draft, client, &server, tls) {
            draft.rest().transport_socket = Some(socket);
        }
    }
    if !draft.has_http() {
        draft.use_http_options(fixed::any_protocol(traits.keeps_header_case));
    }
    fixed::exchange(draft.body(), settings, traits);
    draft.encode()
}
