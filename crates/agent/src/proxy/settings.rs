//! From what was prepared and variables to what the parts of the agent need.

mod identity;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_runtime::flags::{self, Flags};

pub(super) use self::identity::control_plane_name;
use self::identity::{Upstreams, renewal};
use super::arguments::Role;
use super::prepared::Prepared;
use crate::address::HostPort;
use crate::certificates::files::MountedFiles;
use crate::certificates::{AuthorityClient, RenewalSettings, revocations};
use crate::dns::DnsSettings;
use crate::fetch::AddressGuard;
use crate::last_good::LastGoodSettings;
use crate::wasm::WasmSettings;
use crate::xds_proxy::{Patience, XdsProxySettings};

const IDENTITY_SOCKETS: &str = "./var/run/secrets/workload-spiffe-uds";
/// Where the agent keeps what it fetches.
const DATA: &str = "./var/lib/istio/data";

/// What the parts of the agent are started with.
pub(super) struct Settings {
    pub(super) xds: XdsProxySettings,
    pub(super) authority: AuthorityClient,
    pub(super) renewal: RenewalSettings,
    pub(super) mounted: Option<MountedFiles>,
    /// Where the mesh's revocation lists are, unless nobody is to look.
    pub(super) revocations: Option<PathBuf>,
    /// Where state is kept for an outage, if it is.
    pub(super) last_good: Option<LastGoodSettings>,
    /// How Wasm modules are fetched, if that is not left to Envoy, and from where.
    pub(super) wasm: Option<(WasmSettings, AddressGuard)>,
    /// The name server, if there is to be one.
    pub(super) dns: Option<DnsSettings>,
    pub(super) file_quiet: Duration,
    pub(super) sds_socket: PathBuf,
}

/// Where the workload's certificate is served.
pub(super) fn identity_socket(flags: &Flags) -> PathBuf {
    Path::new(IDENTITY_SOCKETS).join(flags.get(flags::WORKLOAD_IDENTITY_SOCKET_FILE))
}

impl Settings {
    pub(super) fn new(prepared: &Prepared, flags: &Flags) -> anyhow::Result<Self> {
        let discovery = HostPort::parse(&prepared.discovery_address).context("discoveryAddress")?;
        let provided = flags.get(flags::PROV_CERT);
        let provided = (!provided.is_empty()).then(|| PathBuf::from(provided));
        let mounted = flags.get(flags::FILE_MOUNTED_CERTS).then(MountedFiles::detect);
        if provided.is_some() && mounted.is_some() {
            bail!("PROV_CERT and FILE_MOUNTED_CERTS exclude each other; unset one of them");
        }
        let upstreams = Upstreams { flags, provided, mounted: mounted.clone() };
        let root = flags.get(flags::XDS_ROOT_CA);
        let xds = XdsProxySettings {
            socket: prepared.xds_socket.clone(),
            upstream: upstreams.to(discovery.clone(), root, !prepared.plaintext, false),
            cluster: flags.get(flags::ISTIO_META_CLUSTER_ID).to_owned(),
            headers: headers(flags, "XDS_HEADER_"),
            patience: Patience {
                keepalive_interval: flags.get(flags::GRPC_KEEPALIVE_INTERVAL),
                keepalive_timeout: flags.get(flags::GRPC_KEEPALIVE_TIMEOUT),
                ..Patience::default()
            },
        };
        Ok(Self {
            xds,
            authority: upstreams.authority(discovery)?,
            renewal: renewal(flags)?,
            // Parity: a certificate of the platform is the workload's; the control plane is reached as ever.
            mounted: mounted.or_else(MountedFiles::from_platform),
            revocations: flags.get(flags::PILOT_ENABLE_CA_CRL).then(|| PathBuf::from(revocations::FILE)),
            last_good: last_good(flags, prepared),
            wasm: wasm(flags)?,
            dns: dns(prepared, flags),
            file_quiet: flags.get(flags::FILE_DEBOUNCE_DURATION),
            sds_socket: identity_socket(flags),
        })
    }
}

fn last_good(flags: &Flags, prepared: &Prepared) -> Option<LastGoodSettings> {
    let directory = flags.get(flags::CANOPUS_STATE_DIRECTORY);
    // State of another proxy, cluster or control plane is of no use to this one.
    let cluster = flags.get(flags::ISTIO_META_CLUSTER_ID);
    let owner = format!("{}|{cluster}|{}", prepared.node, prepared.discovery_address);
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
fn dns(prepared: &Prepared, flags: &Flags) -> Option<DnsSettings> {
    let captured = prepared.role == Role::Sidecar && flags.get(flags::ISTIO_META_DNS_CAPTURE);
    if !captured && !flags.get(flags::ISTIO_META_ENABLE_DNS_SERVER) {
        return None;
    }
    Some(DnsSettings {
        address: flags.get(flags::DNS_PROXY_ADDR).to_owned(),
        namespace: flags.get(flags::POD_NAMESPACE).to_owned(),
        domain: prepared.node.rsplit('~').next().unwrap_or_default().to_owned(),
        parallel: flags.get(flags::DNS_FORWARD_PARALLEL),
        timeout: flags.get(flags::DNS_FORWARD_TIMEOUT),
        is_root: nix::unistd::geteuid().is_root(),
    })
}

/// Variables that begin so are headers named by the rest.
fn headers(flags: &Flags, prefix: &str) -> Vec<(String, String)> {
    flags.prefixed(prefix).map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}
