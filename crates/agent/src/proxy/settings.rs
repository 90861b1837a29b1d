//! From flags, variables and files to what the parts of the agent need.

mod identity;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, bail};
use canopus_proto::google;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;
use canopus_proto::istio::mesh::v1alpha1::{AuthenticationPolicy, ProxyConfig};
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::version::BuildInfo;
use nix::ifaddrs::getifaddrs;
use tracing::{info, warn};

use self::identity::{Upstreams, control_plane_name, renewal};
use super::arguments::{ProxyArgs, Role};
use crate::address::HostPort;
use crate::bootstrap::{BootstrapSettings, FILE_CREDENTIAL_SOCKET};
use crate::certificates::files::MountedFiles;
use crate::certificates::{AuthorityClient, RenewalSettings};
use crate::dns::DnsSettings;
use crate::downward;
use crate::fetch::AddressGuard;
use crate::last_good::LastGoodSettings;
use crate::node::{Node, NodeSources};
use crate::platform::{self, Platform, PlatformSettings};
use crate::proxy_config::{EffectiveConfig, Layers};
use crate::wasm::WasmSettings;
use crate::xds_proxy::XdsProxySettings;

const LABELS: &str = "./etc/istio/pod/labels";
const ANNOTATIONS: &str = "./etc/istio/pod/annotations";
const EXCLUDED_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";
const IDENTITY_SOCKETS: &str = "./var/run/secrets/workload-spiffe-uds";
/// Where the agent keeps what it fetches.
const DATA: &str = "./var/lib/istio/data";
/// The user Envoy runs as where the agent is root and serves names.
const PROXY_USER: u32 = 1337;

/// What the parts of the agent are started with.
pub(super) struct Settings {
    pub(super) role: Role,
    pub(super) node: Node,
    pub(super) xds: XdsProxySettings,
    pub(super) authority: AuthorityClient,
    pub(super) renewal: RenewalSettings,
    pub(super) mounted: Option<MountedFiles>,
    /// Where state is kept for an outage, if it is.
    pub(super) last_good: Option<LastGoodSettings>,
    /// How Wasm modules are fetched, if that is not left to Envoy, and from where.
    pub(super) wasm: Option<(WasmSettings, AddressGuard)>,
    /// The name server, if there is to be one.
    pub(super) dns: Option<DnsSettings>,
    pub(super) file_quiet: Duration,
    pub(super) sds_socket: PathBuf,
    pub(super) admin: SocketAddr,
    pub(super) status_port: u16,
    pub(super) without_envoy: bool,
    pub(super) user: Option<u32>,
    pub(super) log_as_json: bool,
    pub(super) proxy_log_level: String,
    pub(super) proxy_component_log_level: String,
}

impl Settings {
    pub(super) async fn read(args: &ProxyArgs, flags: &Flags) -> anyhow::Result<Self> {
        let annotations = pod_file(ANNOTATIONS);
        let config = proxy_config(args, flags, annotations.clone().unwrap_or_default()).await?;
        let excluded = annotations.as_ref().and_then(|all| all.get(EXCLUDED_INTERFACES));
        let addresses = addresses(flags, excluded);
        let platform = platform::discover(&platform_settings(flags)).await;
        let node = node(args, flags, &config, addresses, annotations, platform)?;
        info!("proxy: {}", node.id);
        let discovery = HostPort::parse(&config.message.discovery_address).context("discoveryAddress")?;
        let provided = flags.get(flags::PROV_CERT);
        let provided = (!provided.is_empty()).then(|| PathBuf::from(provided));
        let mounted = flags.get(flags::FILE_MOUNTED_CERTS).then(MountedFiles::detect);
        if provided.is_some() && mounted.is_some() {
            bail!("PROV_CERT and FILE_MOUNTED_CERTS exclude each other; unset one of them");
        }
        let upstreams = Upstreams { flags, provided, mounted: mounted.clone() };
        let plaintext = config.message.control_plane_auth_policy == AuthenticationPolicy::None as i32;
        let xds = XdsProxySettings {
            socket: Path::new(&config.message.config_path).join("XDS"),
            upstream: upstreams.to(discovery.clone(), flags.get(flags::XDS_ROOT_CA), !plaintext, false),
            cluster: flags.get(flags::ISTIO_META_CLUSTER_ID).to_owned(),
            headers: headers(flags, "XDS_HEADER_"),
        };
        let localhost: IpAddr =
            if is_v6_only(&node) { [0, 0, 0, 0, 0, 0, 0, 1].into() } else { [127, 0, 0, 1].into() };
        Ok(Self {
            role: args.role,
            xds,
            authority: upstreams.authority(discovery)?,
            renewal: renewal(flags)?,
            mounted,
            last_good: last_good(flags, &node),
            wasm: wasm(flags)?,
            dns: dns(args.role, flags, &node),
            file_quiet: flags.get(flags::FILE_DEBOUNCE_DURATION),
            sds_socket: Path::new(IDENTITY_SOCKETS).join(flags.get(flags::WORKLOAD_IDENTITY_SOCKET_FILE)),
            admin: SocketAddr::new(localhost, u16::try_from(config.message.proxy_admin_port)?),
            status_port: u16::try_from(config.message.status_port)?,
            without_envoy: flags.get(flags::DISABLE_ENVOY),
            user: proxy_user(flags),
            log_as_json: args.log.log_as_json,
            proxy_log_level: args.proxy_log_level.clone(),
            proxy_component_log_level: args.proxy_component_log_level.clone(),
            node,
        })
    }
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

fn is_v6_only(node: &Node) -> bool {
    let is_v6 = |address: &String| address.parse().is_ok_and(|address: IpAddr| address.is_ipv6());
    let addresses = &node.metadata.instance_ips.0;
    !addresses.is_empty() && addresses.iter().all(is_v6)
}

fn node(
    args: &ProxyArgs,
    flags: &Flags,
    config: &EffectiveConfig,
    addresses: Vec<String>,
    annotations: Option<BTreeMap<String, String>>,
    platform: Platform,
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
        file_credential_socket: Path::new(FILE_CREDENTIAL_SOCKET).exists(),
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

fn last_good(flags: &Flags, node: &Node) -> Option<LastGoodSettings> {
    let directory = flags.get(flags::CANOPUS_STATE_DIRECTORY);
    // State of another proxy, cluster or control plane is of no use to this one.
    let cluster = flags.get(flags::ISTIO_META_CLUSTER_ID);
    let owner = format!("{}|{cluster}|{}", node.id, node.config.message.discovery_address);
    (!directory.is_empty()).then(|| LastGoodSettings {
        directory: PathBuf::from(directory),
        max_bytes: u64::try_from(flags.get(flags::CANOPUS_STATE_MAX_BYTES)).unwrap_or_default(),
        owner,
    })
}

fn wasm(flags: &Flags) -> anyhow::Result<Option<(WasmSettings, AddressGuard)>> {
    if !flags.get(flags::ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION) {
        return Ok(None);
    }
    let blocked: Vec<String> =
        flags.get(flags::BLOCKED_CIDRS_IN_WASM_FETCH).iter().map(ToString::to_string).collect();
    let guard = AddressGuard::new(&blocked, flags.get(flags::CANOPUS_WASM_ALLOW_LOOPBACK));
    let settings = WasmSettings {
        directory: std::path::absolute(DATA)?,
        max_bytes: usize::try_from(flags.get(flags::ISTIO_WASM_MAX_BINARY_SIZE_BYTES)).unwrap_or_default(),
        insecure: flags.get(flags::WASM_INSECURE_REGISTRIES).iter().map(ToString::to_string).collect(),
        request_timeout: flags.get(flags::WASM_HTTP_REQUEST_TIMEOUT),
        tries: u32::try_from(flags.get(flags::WASM_HTTP_REQUEST_MAX_RETRIES)).unwrap_or(1),
        expiry: flags.get(flags::WASM_MODULE_EXPIRY),
        purge_interval: flags.get(flags::WASM_PURGE_INTERVAL),
    };
    Ok(Some((settings, guard.map_err(anyhow::Error::msg)?)))
}

/// Parity: names are served to sidecars whose queries are captured, and to whoever asks for the server alone.
fn dns(role: Role, flags: &Flags, node: &Node) -> Option<DnsSettings> {
    let captured = role == Role::Sidecar && flags.get(flags::ISTIO_META_DNS_CAPTURE);
    if !captured && !flags.get(flags::ISTIO_META_ENABLE_DNS_SERVER) {
        return None;
    }
    Some(DnsSettings {
        address: flags.get(flags::DNS_PROXY_ADDR).to_owned(),
        namespace: flags.get(flags::POD_NAMESPACE).to_owned(),
        domain: node.id.rsplit('~').next().unwrap_or_default().to_owned(),
        parallel: flags.get(flags::DNS_FORWARD_PARALLEL),
        timeout: flags.get(flags::DNS_FORWARD_TIMEOUT),
        is_root: nix::unistd::geteuid().is_root(),
    })
}

/// Variables that begin so are headers named by the rest.
fn headers(flags: &Flags, prefix: &str) -> Vec<(String, String)> {
    flags.prefixed(prefix).map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// Parity: a root agent that serves names on port 53 leaves Envoy its usual user.
fn proxy_user(flags: &Flags) -> Option<u32> {
    let on_port_53 = flags.get(flags::DNS_PROXY_ADDR).ends_with(":53");
    (nix::unistd::geteuid().is_root() && on_port_53).then_some(PROXY_USER)
}

/// The settings of the bootstrap that are variables.
pub(super) fn bootstrap_settings(flags: &Flags, log_as_json: bool) -> BootstrapSettings {
    BootstrapSettings {
        delta_xds: flags.get(flags::ISTIO_DELTA_XDS),
        dual_stack: flags.get(flags::ISTIO_DUAL_STACK),
        status_proxy_protocol: flags.get(flags::ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL),
        strip_fragment: flags.get(flags::HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED),
        compliance_policy: flags.get(flags::COMPLIANCE_POLICY).to_owned(),
        log_as_json,
        host_ip: flags.variable("HOST_IP").unwrap_or_default().to_owned(),
    }
}

/// A duration of the proxy configuration.
pub(super) fn duration(duration: Option<&google::protobuf::Duration>) -> Duration {
    let Some(duration) = duration else { return Duration::ZERO };
    let nanos = u32::try_from(duration.nanos).unwrap_or_default();
    Duration::new(u64::try_from(duration.seconds).unwrap_or_default(), nanos)
}
