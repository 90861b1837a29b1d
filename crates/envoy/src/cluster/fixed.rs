//! Clusters that every proxy of a kind has, whatever services there are.

use std::sync::LazyLock;

use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, LbPolicy};
use canopus_proto::envoy::config::core::v3::{
    BindConfig, ExtraSourceAddress, Http1ProtocolOptions, Http2ProtocolOptions,
    HttpProtocolOptions as CommonOptions, SocketAddress, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use canopus_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use canopus_proto::fields::cluster;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::ConnectionPoolSettings;
use canopus_proto::resource::Resource;
use canopus_proto::wire::{Encoded, ProtoWriter};
use canopus_runtime::flags::{PILOT_ENABLE_METADATA_EXCHANGE, PILOT_MX_ADDITIONAL_LABELS};

use super::connection_pool;
use super::draft::{Draft, case_keeping, explicit, following, write_http_options};
use super::traits::ClientTraits;
use crate::address;
use crate::names::{BLACK_HOLE, INBOUND_PASSTHROUGH, PASSTHROUGH};
use crate::telemetry::peer_metadata;
use crate::tls;

/// Source addresses that traffic redirection leaves alone, so that the proxy does not capture its own traffic.
const SOURCE_V4: &str = "127.0.0.6";
const SOURCE_V6: &str = "::6";

/// The socket of a server of the user's that gives out credentials.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

const PASSTHROUGH_IDLE_SECONDS: i64 = 300;

/// HTTP in whichever version the client speaks, as a field of a cluster: with headers in lower case, and in their own.
static ANY_PROTOCOL: LazyLock<[Encoded<Cluster>; 2]> = LazyLock::new(|| {
    [Http1ProtocolOptions::default(), case_keeping()].map(|http1| {
        let idle_timeout = Some(Duration::from_secs(PASSTHROUGH_IDLE_SECONDS));
        let options = HttpProtocolOptions {
            common_http_protocol_options: Some(CommonOptions { idle_timeout, ..Default::default() }),
            upstream_protocol_options: Some(following(http1)),
            ..Default::default()
        };
        let mut field = ProtoWriter::default();
        write_http_options(&mut field, &options);
        field.finish()
    })
});

/// The usual exchange of workload metadata, as a field of a cluster.
static EXCHANGE: LazyLock<Encoded<Cluster>> = LazyLock::new(|| {
    let filters = peer_metadata::upstream(&MeshSettings::default()).into_iter().collect();
    Encoded::new(&Cluster { filters, ..Default::default() })
});

/// HTTP in whichever version the client speaks, as a field of a cluster.
pub(super) fn any_protocol(keeps_header_case: bool) -> &'static Encoded<Cluster> {
    &ANY_PROTOCOL[usize::from(keeps_header_case)]
}

/// Where traffic goes that may go nowhere.
pub(super) fn black_hole(settings: &MeshSettings) -> Resource {
    let mut draft = Draft::with_discovery(BLACK_HOLE, DiscoveryType::Static);
    draft.connect_timeout = settings.mesh.connect_timeout;
    draft.encode()
}

/// Where traffic goes to destinations that no service has.
pub(super) fn passthrough(settings: &MeshSettings, traits: &ClientTraits) -> Resource {
    let mut draft = original_destination(PASSTHROUGH, settings, traits);
    exchange(draft.body(), settings, traits);
    draft.encode()
}

/// Where traffic goes to ports of the workload that no service has.
pub(super) fn inbound_passthrough(settings: &MeshSettings, traits: &ClientTraits) -> Resource {
    let mut draft = original_destination(INBOUND_PASSTHROUGH, settings, traits);
    // Parity: in statistics it goes by the name of the other one.
    draft.stat_name = Some(PASSTHROUGH.to_owned());
    draft.body().append(Sources::for_proxy(traits, true).encoded());
    draft.encode()
}

fn original_destination(name: &str, settings: &MeshSettings, traits: &ClientTraits) -> Draft {
    let mut draft = Draft::with_discovery(name, DiscoveryType::OriginalDst);
    draft.lb_policy = LbPolicy::ClusterProvided;
    let default = ConnectionPoolSettings::default();
    let policy = settings.mesh.default_traffic_policy.as_ref();
    let pool = policy.and_then(|policy| policy.connection_pool.as_ref()).unwrap_or(&default);
    connection_pool::apply(&mut draft, settings, pool, None);
    // Parity: of the pool, what is about HTTP does not count here.
    draft.use_http_options(any_protocol(traits.keeps_header_case));
    draft
}

/// Adds the exchange of workload metadata with the server to a cluster, where the proxy can.
pub(super) fn exchange(fields: &mut ProtoWriter<Cluster>, settings: &MeshSettings, traits: &ClientTraits) {
    if !traits.exchanges_metadata || !settings.flags.get(PILOT_ENABLE_METADATA_EXCHANGE) {
        return;
    }
    if settings.flags.get(PILOT_MX_ADDITIONAL_LABELS).is_empty() {
        fields.append(&*EXCHANGE);
    } else if let Some(filter) = peer_metadata::upstream(settings) {
        fields.message(cluster::FILTERS, &filter);
    }
}

/// Source addresses of connections to the proxy's own workload.
#[derive(Clone, Copy)]
pub(super) enum Sources {
    /// One IPv4 address.
    V4,
    /// One IPv6 address.
    V6,
    /// One address of each family.
    Both,
}

/// What binds to each of these sources, as a field of a cluster.
static BINDING: LazyLock<[Encoded<Cluster>; 3]> = LazyLock::new(|| {
    let sources = [(SOURCE_V4, None), (SOURCE_V6, None), (SOURCE_V4, Some(SOURCE_V6))];
    sources.map(|(first, second)| {
        let upstream_bind_config = Some(bind_from(first, second));
        Encoded::new(&Cluster { upstream_bind_config, ..Default::default() })
    })
});

impl Sources {
    /// Source addresses for a proxy: both families only where both may be used at once.
    pub(super) fn for_proxy(traits: &ClientTraits, dual_stack: bool) -> Self {
        match (traits.ipv4, traits.ipv6) {
            (true, true) if dual_stack => Self::Both,
            (true, _) => Self::V4,
            (false, _) => Self::V6,
        }
    }

    /// What binds to them, as a field of a cluster.
    pub(super) fn encoded(self) -> &'static Encoded<Cluster> {
        &BINDING[self as usize]
    }
}

fn bind_from(first: &str, second: Option<&str>) -> BindConfig {
    let any_port = |address: &str| SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(0)),
        ..Default::default()
    };
    let extra = |address| ExtraSourceAddress { address: Some(any_port(address)), ..Default::default() };
    BindConfig {
        source_address: Some(any_port(first)),
        extra_source_addresses: second.map(extra).into_iter().collect(),
        ..Default::default()
    }
}

/// The server of the user's that gives out credentials.
pub(super) fn credential_server(settings: &MeshSettings) -> Resource {
    let mut draft = Draft::with_discovery(tls::CREDENTIAL_CLUSTER, DiscoveryType::Static);
    draft.connect_timeout = settings.mesh.connect_timeout;
    draft.rest().load_assignment = Some(ClusterLoadAssignment {
        cluster_name: tls::CREDENTIAL_CLUSTER.to_owned(),
        endpoints: single_endpoint(CREDENTIAL_SOCKET, 0),
        ..Default::default()
    });
    let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
    draft.http().upstream_protocol_options = Some(explicit(http2));
    draft.encode()
}

/// One endpoint: an address and port, or without a port the path of a socket.
pub(super) fn single_endpoint(bind: &str, port: u32) -> Vec<LocalityLbEndpoints> {
    let endpoint = Endpoint { address: Some(address::bind(bind, port)), ..Default::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() };
    vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() }]
}
