//! Names that proxies resolve themselves as requests need them: the caches that filters and clusters share.

use canopus_api::node::NodeKind;
use canopus_mesh::audience::Addressing;
use canopus_mesh::service::{Resolution, Service};
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use canopus_proto::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::OutboundTrafficPolicy;
use canopus_runtime::flags::{
    Flags, ISTIO_DUAL_STACK, ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS,
    PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS,
};

use crate::address::socket_address;
use crate::audience::Resolver;
use crate::env::Class;

/// The cache for hosts that no service has.
const UNKNOWN_HOSTS: &str = "allow_any_dfp_dns_cache";

/// Where the agent answers DNS unless it says otherwise.
const AGENT: (&str, u32) = ("127.0.0.1", 15053);

/// Whether requests to a service on listeners of this class go to whatever address their host has.
pub(crate) fn is_for(kind: NodeKind, class: Class, service: &Service) -> bool {
    let wildcard = service.host.starts_with('*');
    match class {
        Class::Inbound => wildcard && kind == NodeKind::Waypoint,
        Class::Outbound => wildcard && service.resolution == Resolution::DynamicDns,
        Class::Gateway => false,
    }
}

/// Whether sidecars resolve hosts that no service has.
pub(crate) fn resolves_unknown_hosts(kind: NodeKind, policy: &OutboundTrafficPolicy) -> bool {
    // A Sidecar has no word for it, but takes it over from the mesh.
    kind == NodeKind::Sidecar && policy.mode == Mode::AllowAnyDynamicDns as i32
}

/// The cache of a wildcard service.
pub(crate) fn host_cache(flags: &Flags, addressing: &Addressing, host: &str) -> DnsCacheConfig {
    DnsCacheConfig {
        name: format!("{host}_dfp_dns_cache"),
        dns_lookup_family: lookup_family(flags, addressing.ipv4, addressing.ipv6) as i32,
        ..Default::default()
    }
}

/// The cache for hosts that no service has; an agent that answers DNS is asked first.
pub(crate) fn unknown_hosts_cache(
    flags: &Flags,
    addressing: &Addressing,
    resolver: &Resolver,
) -> DnsCacheConfig {
    let max_hosts = u32::try_from(flags.get(PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS)).unwrap_or(u32::MAX);
    let mut cache = DnsCacheConfig {
        name: UNKNOWN_HOSTS.into(),
        max_hosts: Some(max_hosts.into()),
        dns_lookup_family: lookup_family(flags, addressing.ipv4, addressing.ipv6) as i32,
        ..Default::default()
    };
    if let Some(agent) = &resolver.0 {
        let (host, port) = agent_address(agent);
        let resolver =
            CaresDnsResolverConfig { resolvers: vec![socket_address(host, port)], ..Default::default() };
        cache.typed_dns_resolver_config = Some(TypedExtensionConfig {
            name: "envoy.network.dns_resolver.cares".into(),
            typed_config: Some(Any::pack(&resolver)),
        });
    }
    cache
}

fn agent_address(written: &str) -> (&str, u32) {
    let Some((host, port)) = written.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
        return AGENT;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (if host == "localhost" { AGENT.0 } else { host }, port.parse().unwrap_or(AGENT.1))
}

/// Which addresses of a name a proxy can use.
pub(crate) fn lookup_family(flags: &Flags, ipv4: bool, ipv6: bool) -> DnsLookupFamily {
    match (ipv4, ipv6) {
        (false, true) if flags.get(ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS) => {
            DnsLookupFamily::All
        }
        (false, true) => DnsLookupFamily::V6Only,
        (true, true) if flags.get(ISTIO_DUAL_STACK) => DnsLookupFamily::All,
        _ => DnsLookupFamily::V4Only,
    }
}
