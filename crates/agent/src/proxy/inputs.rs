//! What has to be known of the pod and its proxy before anything is served.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::{fs, io};

use anyhow::Context as _;
use canopus_proto::google;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::version::BuildInfo;
use nix::ifaddrs::getifaddrs;
use tracing::warn;

use crate::bootstrap::FILE_CREDENTIAL_SOCKET;
use crate::downward;
use crate::node::{Node, NodeSources};
use crate::platform::{self, Platform, PlatformSettings};
use crate::proxy::arguments::ProxyArgs;
use crate::proxy::settings::control_plane_name;
use crate::proxy_config::{EffectiveConfig, Layers};

const LABELS: &str = "./etc/istio/pod/labels";
const ANNOTATIONS: &str = "./etc/istio/pod/annotations";
const EXCLUDED_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

/// What the proxy tells of itself.
pub(super) async fn collect(
    args: &ProxyArgs,
    flags: &Flags,
    identity_is_served: bool,
) -> anyhow::Result<Node> {
    let annotations = pod_file(ANNOTATIONS);
    let config = proxy_config(args, flags, annotations.clone().unwrap_or_default()).await?;
    let excluded = annotations.as_ref().and_then(|all| all.get(EXCLUDED_INTERFACES));
    let addresses = addresses(flags, excluded);
    let platform = platform::discover(&platform_settings(flags)).await;
    node(args, flags, &config, addresses, annotations, platform, identity_is_served)
}

/// A file of the downward API; one that cannot be read is passed over.
fn pod_file(path: &str) -> Option<BTreeMap<String, String>> {
    let read = downward::read(Path::new(path));
    read.inspect_err(|error| warn!("{path}: {error}; it is passed over")).ok().flatten()
}

async fn proxy_config(
    args: &ProxyArgs,
    flags: &Flags,
    annotations: BTreeMap<String, String>,
) -> anyhow::Result<EffectiveConfig> {
    let mesh_file = match fs::read_to_string(&args.mesh_config) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("mesh config file {}", args.mesh_config)),
    };
    let environment = flags.get(flags::PROXY_CONFIG);
    let layers = Layers { mesh_file: mesh_file.as_deref(), environment, annotations };
    let mut config = EffectiveConfig::resolve(&layers)?;
    let message = &mut config.message;
    let limit = i32::try_from(flags.get(flags::ISTIO_CPU_LIMIT)).unwrap_or_default();
    if message.concurrency.is_none() && limit > 0 {
        message.concurrency = Some(google::protobuf::Int32Value { value: limit });
    }
    if args.concurrency > 0 {
        warn!("--concurrency: prefer `concurrency` of the proxy configuration");
        message.concurrency = Some(google::protobuf::Int32Value { value: args.concurrency.into() });
    }
    if matches!(&message.cluster_name, Some(ClusterName::ServiceCluster(name)) if name.is_empty()) {
        message.cluster_name = Some(ClusterName::ServiceCluster(args.service_cluster.clone()));
    }
    resolve_statsd(message).await;
    Ok(config)
}

/// Envoy takes an address for statsd, not a name. Parity: a name that cannot be resolved turns the sink off.
async fn resolve_statsd(config: &mut ProxyConfig) {
    if config.statsd_udp_address.is_empty() {
        return;
    }
    let resolved = tokio::net::lookup_host(config.statsd_udp_address.as_str()).await;
    match resolved.map(|mut found| found.next()) {
        Ok(Some(address)) => config.statsd_udp_address = address.to_string(),
        Ok(None) => config.statsd_udp_address.clear(),
        Err(error) => {
            warn!("statsdUdpAddress: {}: {error}; statistics are not sent there", config.statsd_udp_address);
            config.statsd_udp_address.clear();
        }
    }
}

/// The addresses of the proxy: the pod's own first, then those of interfaces.
fn addresses(flags: &Flags, excluded: Option<&String>) -> Vec<String> {
    let excluded: Vec<&str> =
        excluded.map(|names| names.split(',').map(str::trim).collect()).unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    if let Ok(own) = flags.get(flags::INSTANCE_IP).parse::<IpAddr>() {
        found.push(own.to_string());
    }
    let interfaces = getifaddrs().into_iter().flatten();
    let mut private: Vec<String> = interfaces
        .filter(|interface| !excluded.contains(&interface.interface_name.as_str()))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
        })
        .map(|address| address.to_canonical())
        .filter(is_reachable)
        .map(|address| address.to_string())
        .collect();
    if private.is_empty() {
        private = vec!["127.0.0.1".to_owned(), "::1".to_owned()];
    }
    for address in private {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn is_reachable(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || link_local || address.is_unspecified() || address.is_multicast())
}

fn node(
    args: &ProxyArgs,
    flags: &Flags,
    config: &EffectiveConfig,
    addresses: Vec<String>,
    annotations: Option<BTreeMap<String, String>>,
    platform: Platform,
    identity_is_served: bool,
) -> anyhow::Result<Node> {
    let (name, namespace) = (flags.get(flags::POD_NAME), flags.get(flags::POD_NAMESPACE));
    let domain =
        if args.domain.is_empty() { format!("{namespace}.svc.cluster.local") } else { args.domain.clone() };
    let address = addresses.first().map_or("127.0.0.1", String::as_str);
    let id = format!("{}~{address}~{name}.{namespace}~{domain}", args.role.name());
    let port = |flag| u16::try_from(flags.get(flag)).unwrap_or_default();
    let control_plane = match flags.get(flags::ISTIOD_SAN) {
        "" => control_plane_name(&config.message.discovery_address),
        name => name.to_owned(),
    };
    let metadata: Vec<(String, &str)> =
        flags.prefixed("ISTIO_META").map(|(rest, text)| (format!("ISTIO_META{rest}"), text)).collect();
    let mut environment: Vec<(&str, &str)> =
        metadata.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    for name in ["POD_NAME", "POD_NAMESPACE", "SERVICE_ACCOUNT", "DNS_PROXY_ADDR"] {
        environment.extend(flags.variable(name).map(|text| (name, text)));
    }
    let discovery = flags::PEER_METADATA_DISCOVERY;
    let sources = NodeSources {
        id,
        environment,
        addresses,
        labels: pod_file(LABELS),
        annotations,
        version: BuildInfo::current().version,
        control_plane_names: vec![control_plane],
        sts_port: args.sts_port,
        outlier_log_path: args.outlier_log_path.clone(),
        status_port: port(flags::ENVOY_STATUS_PORT),
        prometheus_port: port(flags::ENVOY_PROMETHEUS_PORT),
        secure_metrics_port: port(flags::ENVOY_SECURE_METRICS_PORT),
        secure_merged_metrics_port: port(flags::ENVOY_SECURE_MERGED_METRICS_PORT),
        exit_on_zero_active_connections: flags.get(flags::EXIT_ON_ZERO_ACTIVE_CONNECTIONS),
        metadata_discovery: flags.is_set(discovery).then(|| flags.get(discovery)),
        skip_deprecated_logs: flags.get(flags::ENVOY_SKIP_DEPRECATED_LOGS),
        identity_socket: flags.get(flags::WORKLOAD_IDENTITY_SOCKET_FILE).to_owned(),
        credential_socket: Path::new(CREDENTIAL_SOCKET).exists(),
        // The agent is about to make it, or somebody has.
        file_credential_socket: identity_is_served || Path::new(FILE_CREDENTIAL_SOCKET).exists(),
        platform,
    };
    Ok(Node::collect(&sources, config.clone())?)
}

fn platform_settings(flags: &Flags) -> PlatformSettings {
    PlatformSettings {
        cloud: flags.get(flags::CLOUD_PLATFORM).to_owned(),
        gcp_metadata: flags.get(flags::GCP_METADATA).to_owned(),
        gcp_quota_project: flags.get(flags::GCP_QUOTA_PROJECT).to_owned(),
        gcp_zone: flags.get(flags::GCP_ZONE).to_owned(),
        in_kubernetes: flags.variable("KUBERNETES_SERVICE_HOST").is_some(),
    }
}
