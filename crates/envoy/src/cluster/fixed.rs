//! Clusters that every proxy of a kind has, whatever services there are.

use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::cluster::v3::cluster::{DiscoveryType, LbPolicy};
use canopus_proto::envoy::config::cluster::v3::{Cluster, Filter};
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
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::ConnectionPoolSettings;

use super::audience::Audience;
use super::connection_pool;
use super::draft::{Draft, case_keeping, explicit, following, http_options};
use crate::listener::address;
use crate::names::{BLACK_HOLE, INBOUND_PASSTHROUGH, PASSTHROUGH};
use crate::telemetry::peer_metadata;
use crate::tls;

/// Source addresses that traffic redirection leaves alone, so that the proxy does not capture its own traffic.
const SOURCE_V4: &str = "127.0.0.6";
const SOURCE_V6: &str = "::6";

/// The socket of a server of the user's that gives out credentials.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

const PASSTHROUGH_IDLE_SECONDS: i64 = 300;

/// HTTP in whichever version the client speaks.
pub(super) fn any_protocol(keeps_header_case: bool) -> HttpProtocolOptions {
    let idle = Duration::from_secs(PASSTHROUGH_IDLE_SECONDS);
    let http1 = if keeps_header_case { case_keeping() } else { Http1ProtocolOptions::default() };
    HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions { idle_timeout: Some(idle), ..Default::default() }),
        upstream_protocol_options: Some(following(http1)),
        ..Default::default()
    }
}

/// Where traffic goes that may go nowhere.
pub(super) fn black_hole(settings: &MeshSettings) -> Cluster {
    let mut draft = Draft::of_type(BLACK_HOLE, DiscoveryType::Static);
    draft.cluster.connect_timeout = settings.mesh.connect_timeout;
    draft.finish()
}

/// Where traffic goes to destinations that no service has.
pub(super) fn passthrough(settings: &MeshSettings, audience: &Audience) -> Cluster {
    let mut cluster = original_destination(settings, audience);
    cluster.filters = exchange(settings, audience);
    cluster
}

/// Where traffic goes to ports of the workload that no service has.
pub(super) fn inbound_passthrough(settings: &MeshSettings, audience: &Audience) -> Cluster {
    let (first, second) = match (audience.ipv4, audience.ipv6) {
        (true, true) => (SOURCE_V4, Some(SOURCE_V6)),
        (true, false) => (SOURCE_V4, None),
        (false, _) => (SOURCE_V6, None),
    };
    Cluster {
        name: INBOUND_PASSTHROUGH.to_owned(),
        upstream_bind_config: Some(bind_from(first, second)),
        ..original_destination(settings, audience)
    }
}

fn original_destination(settings: &MeshSettings, audience: &Audience) -> Cluster {
    let mut draft = Draft::of_type(PASSTHROUGH, DiscoveryType::OriginalDst);
    draft.cluster.set_lb_policy(LbPolicy::ClusterProvided);
    let default = ConnectionPoolSettings::default();
    let policy = settings.mesh.default_traffic_policy.as_ref();
    let pool = policy.and_then(|policy| policy.connection_pool.as_ref()).unwrap_or(&default);
    connection_pool::apply(&mut draft, settings, pool, None);
    // Parity: of the pool, what is about HTTP does not count here.
    Cluster {
        typed_extension_protocol_options: http_options(&any_protocol(audience.keeps_header_case)),
        ..*draft.cluster
    }
}

/// Exchange of workload metadata with the server, where the proxy can.
pub(super) fn exchange(settings: &MeshSettings, audience: &Audience) -> Vec<Filter> {
    audience.exchanges_metadata.then(|| peer_metadata::upstream(settings)).flatten().into_iter().collect()
}

/// Source addresses for connections to the proxy's own workload.
pub(super) fn bind_from(first: &str, second: Option<&str>) -> BindConfig {
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

/// The source addresses of connections to ports of the workload, the second only where both families are in use.
pub(super) fn workload_sources(
    audience: &Audience,
    dual_stack: bool,
) -> (&'static str, Option<&'static str>) {
    match (audience.ipv4, audience.ipv6) {
        (true, true) if dual_stack => (SOURCE_V4, Some(SOURCE_V6)),
        (true, _) => (SOURCE_V4, None),
        (false, _) => (SOURCE_V6, None),
    }
}

/// The server of the user's that gives out credentials.
pub(super) fn credential_server(settings: &MeshSettings) -> Cluster {
    let mut draft = Draft::of_type(tls::CREDENTIAL_CLUSTER, DiscoveryType::Static);
    draft.cluster.connect_timeout = settings.mesh.connect_timeout;
    draft.cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: tls::CREDENTIAL_CLUSTER.to_owned(),
        endpoints: single_endpoint(CREDENTIAL_SOCKET, 0),
        ..Default::default()
    });
    let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
    draft.http().upstream_protocol_options = Some(explicit(http2));
    draft.finish()
}

/// One endpoint: an address and port, or without a port the path of a socket.
pub(super) fn single_endpoint(bind: &str, port: u32) -> Vec<LocalityLbEndpoints> {
    let endpoint = Endpoint { address: Some(address::bind(bind, port)), ..Default::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() };
    vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() }]
}
