//! Tunnels: clusters reach endpoints of ambient workloads through HTTP/2 CONNECT, opened by an internal listener.

use std::sync::LazyLock;

use canopus_mesh::network::HBONE_PORT;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig, TransportSocketMatch,
};
use canopus_proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use canopus_proto::envoy::config::core::v3::{Address, EnvoyInternalAddress, address};
use canopus_proto::envoy::config::core::v3::{
    Http2ProtocolOptions, HttpProtocolOptions as CommonOptions, TransportSocket,
};
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use canopus_proto::envoy::extensions::transport_sockets::internal_upstream::v3::InternalUpstreamTransport;
use canopus_proto::envoy::extensions::transport_sockets::internal_upstream::v3::internal_upstream_transport::MetadataValueSource;
use canopus_proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, SubjectAltNameMatcher, UpstreamTlsContext,
};
use canopus_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use canopus_proto::envoy::r#type::metadata::v3::metadata_kind::{self, Kind};
use canopus_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind};
use canopus_proto::google::protobuf::{Duration, Struct};
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::resource::Resource;
use canopus_proto::wire::Encoded;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_BAGGAGE, Flags, PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE,
    PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE,
};

use super::connection_pool::Limits;
use super::draft::{Draft, explicit};
use super::fixed;
use super::transport::{if_mutual, otherwise_plain};
use crate::audience::Certificates;
use crate::telemetry::peer_metadata;
use crate::tls::{self, ClientChecks, OwnCertificate, alpn};
use crate::tunnel::{
    CONNECT_ORIGINATE, ENCAPSULATE, FORWARD_INNER, INNER_ORIGINATE, MAIN_INTERNAL, OUTER_ORIGINATE,
};

const ORIGINAL_DESTINATION: &str = "envoy.filters.listener.original_dst";
const ISTIO: &str = "istio";
const PEER_METADATA: &str = "istio.peer_metadata";
const DEFAULT_IDLE_SECONDS: i64 = 3600;
const CLEANUP_SECONDS: i64 = 60;

/// Chooses the socket of each endpoint by what it takes: a tunnel first, then what the settings ask for.
pub(super) fn match_sockets(draft: &mut Draft, flags: &Flags, mode: Option<Mode>, detected: bool) {
    let plain_tunnel = || if_tunnelled(flags, tls::raw_buffer());
    let tunnel_or_plain = || vec![plain_tunnel(), otherwise_plain()];
    let Some(mode) = mode else {
        draft.rest().transport_socket_matches = tunnel_or_plain();
        return;
    };
    if draft.is_original_destination() {
        return;
    }
    let socket = draft.rest().transport_socket.take();
    let always = |name: &str, socket| TransportSocketMatch {
        name: name.to_owned(),
        transport_socket: Some(socket),
        ..Default::default()
    };
    let matches = match socket {
        socket if detected => vec![plain_tunnel(), if_mutual(socket), otherwise_plain()],
        None => tunnel_or_plain(),
        // The tunnel takes the place of the mesh's mutual TLS.
        Some(socket) if mode == Mode::IstioMutual => {
            vec![plain_tunnel(), always("tlsMode-istio", socket)]
        }
        // The user's TLS is for the server itself, within a tunnel too.
        Some(socket) => {
            let matches = vec![if_tunnelled(flags, socket.clone()), always("user", socket)];
            disable_baggage_discovery(draft, flags);
            matches
        }
    };
    draft.rest().transport_socket_matches = matches;
}

/// Endpoints that take tunnels.
fn if_tunnelled(flags: &Flags, inner: TransportSocket) -> TransportSocketMatch {
    let fields = [("tunnel".to_owned(), "http".into())].into();
    TransportSocketMatch {
        name: "hbone".to_owned(),
        r#match: Some(Struct { fields }),
        transport_socket: Some(passing_all_metadata(flags, inner)),
    }
}

/// Leads into an internal listener and tells it all about the endpoint.
pub(super) fn passing_all_metadata(flags: &Flags, inner: TransportSocket) -> TransportSocket {
    let sources = vec![host_metadata(ORIGINAL_DESTINATION), cluster_metadata(ISTIO), host_metadata(ISTIO)];
    let baggage = flags.get(AMBIENT_ENABLE_BAGGAGE);
    passing("envoy.transport_sockets.internal_upstream", baggage, sources, inner)
}

/// Leads into an internal listener and tells it where the endpoint is and what a waypoint has to know of it.
pub(super) fn passing_destination(flags: &Flags, inner: TransportSocket) -> TransportSocket {
    to_waypoint(flags.get(AMBIENT_ENABLE_BAGGAGE), inner)
}

/// What [`passing_destination`] says where the server itself receives plain text, as a field of a cluster.
pub(super) fn passing_plain_destination(flags: &Flags) -> &'static Encoded<Cluster> {
    &PLAIN_TO_WAYPOINT[usize::from(flags.get(AMBIENT_ENABLE_BAGGAGE))]
}

static PLAIN_TO_WAYPOINT: LazyLock<[Encoded<Cluster>; 2]> = LazyLock::new(|| {
    [false, true].map(|baggage| {
        let transport_socket = Some(to_waypoint(baggage, plain()));
        Encoded::new(&Cluster { transport_socket, ..Default::default() })
    })
});

/// What learns about peers from the baggage of tunnels, as a field of a cluster.
static BAGGAGE_FILTER: LazyLock<Encoded<Cluster>> = LazyLock::new(|| {
    let filters = vec![peer_metadata::upstream_baggage()];
    Encoded::new(&Cluster { filters, ..Default::default() })
});

fn to_waypoint(baggage: bool, inner: TransportSocket) -> TransportSocket {
    passing(
        "internal_upstream",
        baggage,
        vec![host_metadata(ORIGINAL_DESTINATION), host_metadata(ISTIO)],
        inner,
    )
}

fn passing(
    name: &str,
    baggage: bool,
    mut sources: Vec<MetadataValueSource>,
    inner: TransportSocket,
) -> TransportSocket {
    if baggage {
        sources.extend([cluster_metadata(PEER_METADATA), host_metadata(PEER_METADATA)]);
    }
    tls::socket(
        name,
        &InternalUpstreamTransport { passthrough_metadata: sources, transport_socket: Some(inner) },
    )
}

fn host_metadata(name: &str) -> MetadataValueSource {
    metadata_of(Kind::Host(metadata_kind::Host {}), name)
}

fn cluster_metadata(name: &str) -> MetadataValueSource {
    metadata_of(Kind::Cluster(metadata_kind::Cluster {}), name)
}

fn metadata_of(kind: Kind, name: &str) -> MetadataValueSource {
    MetadataValueSource { kind: Some(MetadataKind { kind: Some(kind) }), name: name.to_owned() }
}

/// Learns about peers from the baggage of tunnels.
pub(super) fn discover_by_baggage(draft: &mut Draft, flags: &Flags) {
    if flags.get(AMBIENT_ENABLE_BAGGAGE) && draft.discovery() == DiscoveryType::Eds {
        draft.body().append(&*BAGGAGE_FILTER);
    }
}

/// What is encrypted or preceded by other bytes has no baggage to be read.
pub(super) fn disable_baggage_discovery(draft: &mut Draft, flags: &Flags) {
    if !flags.get(AMBIENT_ENABLE_BAGGAGE) {
        return;
    }
    draft.metadata.disable_baggage_discovery();
}

/// The cluster that opens tunnels. Servers must be of the trust domains of the mesh and, if that is given, have an identity
/// that begins with `peers`.
pub(super) fn originate(settings: &MeshSettings, files: &Certificates, peers: Option<&str>) -> Resource {
    let mut draft = opening(settings, files, CONNECT_ORIGINATE, peers);
    *draft.http() = tunnel_options(settings, true);
    draft.rest().lb_config = Some(to_tunnel_port(Some(waypoint_of_endpoint())));
    draft.encode()
}

/// The clusters that open a tunnel within a tunnel, to what is in another network: the inner one leads to the outer one.
pub(super) fn originate_double(settings: &MeshSettings, files: &Certificates) -> [Resource; 2] {
    let context = UpstreamTlsContext {
        common_tls_context: Some(tunnel_context(settings, files)),
        ..Default::default()
    };
    let socket = tls::socket("tls", &context);
    let mut inner =
        internal(&settings.flags, INNER_ORIGINATE, OUTER_ORIGINATE, "internal_upstream_with_tls", socket);
    *inner.http() = tunnel_options(settings, false);
    let mut outer = opening(settings, files, OUTER_ORIGINATE, None);
    *outer.http() = tunnel_options(settings, false);
    outer.rest().lb_config = Some(to_tunnel_port(None));
    [inner.encode(), outer.encode()]
}

/// An original-destination cluster that connects to the tunnel port of the destination.
fn opening(settings: &MeshSettings, files: &Certificates, name: &str, peers: Option<&str>) -> Draft {
    let mut context = tunnel_context(settings, files);
    if let Some(peers) = peers {
        require_identity(&mut context, peers);
    }
    let context = UpstreamTlsContext { common_tls_context: Some(context), ..Default::default() };
    let mut draft = to_original(settings, name);
    draft.rest().transport_socket = Some(tls::socket("tls", &context));
    draft
}

fn to_original(settings: &MeshSettings, name: &str) -> Draft {
    let mut draft = Draft::with_discovery(name, DiscoveryType::OriginalDst);
    draft.lb_policy = LbPolicy::ClusterProvided;
    draft.connect_timeout = settings.mesh.connect_timeout;
    draft.limits = Some(Limits::none(&settings.flags));
    draft.rest().cleanup_interval = Some(Duration::from_secs(CLEANUP_SECONDS));
    draft
}

/// Where endpoints say that a waypoint is in front of them.
fn waypoint_of_endpoint() -> MetadataKey {
    MetadataKey {
        key: ORIGINAL_DESTINATION.to_owned(),
        path: vec![PathSegment { segment: Some(path_segment::Segment::Key("waypoint".to_owned())) }],
    }
}

/// Redirects to the tunnel port: of the address in the metadata at a key, a waypoint in front of the endpoint, if there is one.
fn to_tunnel_port(instead: Option<MetadataKey>) -> LbConfig {
    LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
        upstream_port_override: Some(HBONE_PORT.into()),
        metadata_key: instead,
        ..Default::default()
    })
}

/// Mutual TLS of a tunnel.
pub(crate) fn tunnel_context(settings: &MeshSettings, files: &Certificates) -> CommonTlsContext {
    let mut context = CommonTlsContext {
        alpn_protocols: alpn::list(alpn::H2),
        tls_params: Some(tls::versions(TlsProtocol::TlSv13, TlsProtocol::TlSv13)),
        ..Default::default()
    };
    let own = OwnCertificate { clients: Some(ClientChecks::default()), ..Default::default() };
    tls::with_own_certificate(&mut context, files, &own);
    // Untyped checks would be ignored beside the typed ones that waypoints add.
    for domain in tls::trust_domains(settings) {
        require_identity(&mut context, &tls::identity_prefix(&domain));
    }
    tls::enforce_compliance(&settings.flags, &mut context);
    context
}

/// Accepts peers whose identity begins like this.
fn require_identity(context: &mut CommonTlsContext, prefix: &str) {
    let Some(ValidationContextType::CombinedValidationContext(combined)) =
        &mut context.validation_context_type
    else {
        return;
    };
    let checks = combined.default_validation_context.get_or_insert_default();
    checks.match_typed_subject_alt_names.push(SubjectAltNameMatcher {
        san_type: SanType::Uri as i32,
        matcher: tls::prefix([prefix]).pop(),
        ..Default::default()
    });
}

/// HTTP/2 with CONNECT. Tunnels within tunnels are not shared by requests, which may be for different endpoints.
fn tunnel_options(settings: &MeshSettings, shared: bool) -> HttpProtocolOptions {
    let flags = &settings.flags;
    let size = |bytes: i64| u32::try_from(bytes).ok().filter(|bytes| *bytes > 0).map(Into::into);
    let http2 = Http2ProtocolOptions {
        allow_connect: true,
        initial_stream_window_size: size(flags.get(PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE)),
        initial_connection_window_size: size(flags.get(PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE)),
        ..Default::default()
    };
    let idle = settings.mesh.hbone_idle_timeout.unwrap_or(Duration::from_secs(DEFAULT_IDLE_SECONDS));
    HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout: Some(idle),
            max_requests_per_connection: (!shared).then(|| 1.into()),
            ..Default::default()
        }),
        upstream_protocol_options: Some(explicit(ProtocolConfig::Http2ProtocolOptions(http2))),
        ..Default::default()
    }
}

/// The cluster that leads to the listener which takes what came out of a tunnel.
pub(super) fn main_internal(flags: &Flags) -> Resource {
    for_http(internal(flags, MAIN_INTERNAL, MAIN_INTERNAL, "internal_upstream", plain())).encode()
}

/// The cluster through which a gateway between networks reaches the listener that passes inner tunnels on.
pub(super) fn encapsulate_inner(flags: &Flags) -> Resource {
    internal(flags, ENCAPSULATE, FORWARD_INNER, "internal_upstream", plain()).encode()
}

/// The cluster that passes inner tunnels on as they are.
pub(super) fn forward_inner(settings: &MeshSettings) -> Resource {
    let mut draft = to_original(settings, FORWARD_INNER);
    draft.rest().lb_config = Some(to_tunnel_port(Some(waypoint_of_endpoint())));
    draft.encode()
}

/// The cluster through which a waypoint reaches the listener that opens tunnels.
pub(super) fn encapsulate(flags: &Flags) -> Resource {
    let mut draft = for_http(internal(flags, ENCAPSULATE, CONNECT_ORIGINATE, "internal_upstream", plain()));
    if flags.get(AMBIENT_ENABLE_BAGGAGE) {
        draft.body().append(&*BAGGAGE_FILTER);
    }
    draft.encode()
}

fn for_http(mut draft: Draft) -> Draft {
    draft.use_http_options(fixed::any_protocol(false));
    draft
}

/// Plain text, to an internal listener.
pub(super) fn plain() -> TransportSocket {
    tls::socket("raw_buffer", &RawBuffer::default())
}

/// A cluster that leads to an internal listener.
fn internal(flags: &Flags, name: &str, listener: &str, socket: &str, inner: TransportSocket) -> Draft {
    let transport = InternalUpstreamTransport { transport_socket: Some(inner), ..Default::default() };
    let mut draft = Draft::with_discovery(name, DiscoveryType::Static);
    draft.limits = Some(Limits::none(flags));
    draft.rest().load_assignment = Some(internal_endpoint(name, listener));
    draft.rest().transport_socket = Some(tls::socket(socket, &transport));
    draft
}

/// An internal listener as the only endpoint of a cluster.
fn internal_endpoint(cluster: &str, listener: &str) -> ClusterLoadAssignment {
    let internal = EnvoyInternalAddress {
        address_name_specifier: Some(AddressNameSpecifier::ServerListenerName(listener.to_owned())),
        ..Default::default()
    };
    let endpoint = Endpoint {
        address: Some(Address { address: Some(address::Address::EnvoyInternalAddress(internal)) }),
        ..Default::default()
    };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() };
    ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() }],
        ..Default::default()
    }
}
