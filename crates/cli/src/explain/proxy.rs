//! A proxy as its dump shows it: what it routes by, where its clusters go, and who it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use canopus_envoy::simulate::{Call, Capture, Config, End, Journey, Protocol, Tls};
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use canopus_proto::envoy::config::core::v3::{Metadata, Node, TransportSocket, transport_socket};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use canopus_proto::google::protobuf::Struct;
use canopus_proto::google::protobuf::value::Kind;

use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::{endpoint, secret};

/// The metadata of an endpoint by which its transport socket is chosen.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";

/// What a client of the mesh offers in a handshake for HTTP, and for anything else.
const MESH_ALPN: [&str; 2] = ["istio-http/1.1", "istio"];

/// A proxy whose configuration is known.
pub(super) struct KnownProxy {
    pub(super) config: Config,
    /// The proxy's name in the control plane.
    pub(super) node: String,
    /// The address of its workload.
    pub(super) address: Option<IpAddr>,
    /// The identity in its certificate.
    principal: Option<String>,
    clusters: BTreeMap<String, Cluster>,
    endpoints: BTreeMap<String, Vec<Endpoint>>,
}

/// An address behind a cluster.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) metadata: Option<Metadata>,
}

/// A cluster that a request may go to.
pub(super) struct Target<'a> {
    pub(super) name: String,
    pub(super) weight: Option<u32>,
    /// `None` if the proxy has no such cluster.
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) endpoints: &'a [Endpoint],
}

impl KnownProxy {
    /// Reads a dump.
    pub(super) fn read(dump: &[u8]) -> anyhow::Result<Self> {
        let dump = ConfigDump::parse(dump)?;
        let routes = dump.routes().unwrap_or_default();
        let config = Config {
            listeners: dump.listeners()?,
            routes: routes.into_iter().map(|table| (table.name.clone(), table)).collect(),
        };
        let node = dump.bootstrap().ok().and_then(|dump| dump.bootstrap?.node).unwrap_or_default();
        let address = node.id.split('~').nth(1).and_then(|address| address.parse().ok());
        // What `canopus generate` prints has no certificate.
        let principal = secret::identity(&dump).or_else(|| usual_identity(&node));
        let clusters = dump.clusters().context("clusters of the dump")?;
        let clusters: BTreeMap<String, Cluster> =
            clusters.into_iter().map(|cluster| (cluster.name.clone(), cluster)).collect();
        let mut endpoints: BTreeMap<String, Vec<Endpoint>> = BTreeMap::new();
        for (cluster, address, metadata) in endpoint::sockets(&dump).context("endpoints of the dump")? {
            endpoints.entry(cluster).or_default().push(Endpoint { address, metadata });
        }
        Ok(Self { config, node: node.id, address, principal, clusters, endpoints })
    }

    /// The clusters that a request may go to.
    pub(super) fn targets(&self, journey: &Journey) -> Vec<Target<'_>> {
        let target = |name: &String, weight| Target {
            name: name.clone(),
            weight,
            cluster: self.clusters.get(name),
            endpoints: self.endpoints.get(name).map_or(&[], Vec::as_slice),
        };
        match &journey.end {
            Ok(End::Cluster(name)) => vec![target(name, None)],
            Ok(End::Weighted(weighted)) => {
                weighted.iter().map(|(name, weight)| target(name, Some(*weight))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The request as it arrives at an endpoint's proxy.
    pub(super) fn call_to(&self, target: &Target<'_>, endpoint: &Endpoint, call: &Call) -> Call {
        let socket = target.cluster.and_then(|cluster| socket(cluster, endpoint.metadata.as_ref()));
        let tls = socket.and_then(|socket| handshake(socket, call.protocol));
        let presents = tls.as_ref().is_some_and(|tls| tls.mutual_with.is_some());
        Call {
            address: endpoint.address.ip(),
            port: endpoint.address.port().into(),
            source: self.address,
            principal: self.principal.clone().filter(|_| presents),
            capture: Capture::Inbound,
            tls,
            ..call.clone()
        }
    }
}

impl Target<'_> {
    /// Why a request to this cluster gets 503 from the proxy itself: the response flag; `None` if it is sent.
    pub(super) fn failure(&self) -> Option<&'static str> {
        let Some(cluster) = self.cluster else { return Some("NC") };
        let kind = |kind: DiscoveryType| {
            cluster.cluster_discovery_type == Some(ClusterDiscoveryType::Type(kind.into()))
        };
        let listed = cluster.load_assignment.iter().flat_map(|assignment| &assignment.endpoints);
        let is_listed = listed.into_iter().any(|group| !group.lb_endpoints.is_empty());
        let is_empty = kind(DiscoveryType::Eds) || (kind(DiscoveryType::Static) && !is_listed);
        (is_empty && self.endpoints.is_empty()).then_some("UH")
    }
}

/// The identity that a proxy's service account has in a mesh whose trust domain has the usual name.
fn usual_identity(node: &Node) -> Option<String> {
    let fields = &node.metadata.as_ref()?.fields;
    let text = |key: &str| match &fields.get(key)?.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    };
    Some(format!("spiffe://cluster.local/ns/{}/sa/{}", text("NAMESPACE")?, text("SERVICE_ACCOUNT")?))
}

/// The transport socket that a cluster uses for an endpoint.
fn socket<'a>(cluster: &'a Cluster, metadata: Option<&Metadata>) -> Option<&'a TransportSocket> {
    let nothing = Struct::default();
    let said = metadata.and_then(|metadata| metadata.filter_metadata.get(SOCKET_MATCH)).unwrap_or(&nothing);
    let fits = |wanted: &Struct| wanted.fields.iter().all(|(key, value)| said.fields.get(key) == Some(value));
    let matched = cluster
        .transport_socket_matches
        .iter()
        .find(|one| one.r#match.as_ref().is_none_or(fits))
        .and_then(|one| one.transport_socket.as_ref());
    matched.or(cluster.transport_socket.as_ref())
}

/// The client's side of the handshake; `None` if the socket speaks clear text.
fn handshake(socket: &TransportSocket, protocol: Protocol) -> Option<Tls> {
    let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else { return None };
    let context: UpstreamTlsContext = config.unpack().ok()?;
    let common = context.common_tls_context.unwrap_or_default();
    let mutual_with = common.tls_certificate_sds_secret_configs.into_iter().next().map(|secret| secret.name);
    let in_mesh = common.alpn_protocols.iter().any(|name| name.starts_with("istio"));
    let alpn = match (in_mesh, protocol) {
        (true, Protocol::Tcp) => MESH_ALPN[1].to_owned(),
        (true, _) => MESH_ALPN[0].to_owned(),
        (false, _) => common.alpn_protocols.into_iter().next().unwrap_or_default(),
    };
    Some(Tls { sni: context.sni, alpn, mutual_with })
}
