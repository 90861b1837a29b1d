//! Starting the servers that are not Envoy's sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use canopus_proto::Message as _;
use canopus_proto::istio::networking::v1alpha3::ReadinessProbe;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::metrics::{Registry, catalogue};
use canopus_runtime::tasks::Tasks;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Role;
use super::prepared::Prepared;
use super::settings::Settings;
use crate::certificates::files::DirectoryWatch;
use crate::dns::NameServer;
use crate::envoy::{Admin, Control};
use crate::fetch::{AddressGuard, Fetcher};
use crate::health::HealthCheck;
use crate::last_good::LastGood;
use crate::status::metrics::{MetricsSettings, targets};
use crate::status::probes::{AppProbes, ProbeSettings};
use crate::status::ready::{Condition, Readiness, condition, grpc_is_missing};
use crate::status::{self, Status};
use crate::sts::{self, OauthBackend, OauthSettings};
use crate::upstream::Roots;
use crate::wasm::WasmModules;
use crate::xds_proxy::{HealthReport, XdsProxy};

/// What the status server answers from.
pub(super) struct StatusSources {
    pub(super) admin: Option<Admin>,
    pub(super) names: Option<Arc<NameServer>>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) xds: Arc<XdsProxy>,
    pub(super) control: Arc<Control>,
}

/// When the proxy is ready.
pub(super) fn readiness(
    flags: &Flags,
    admin: Option<Admin>,
    names: Option<&Arc<NameServer>>,
    registry: &Registry,
) -> Arc<Readiness> {
    let mut conditions: Vec<Condition> =
        names.into_iter().map(|names| condition(names, name_table_is_missing)).collect();
    let bootstrap = PathBuf::from(flags.get(flags::GRPC_XDS_BOOTSTRAP));
    if admin.is_none() && !bootstrap.as_os_str().is_empty() {
        conditions.push(Box::new(move || grpc_is_missing(&bootstrap)));
    }
    Arc::new(Readiness::new(admin, conditions, registry.value(catalogue::STARTUP_DURATION_SECONDS)))
}

/// Fetches Wasm modules, unless that is left to Envoy.
pub(super) fn start_wasm(
    settings: &Settings,
    state: Option<Arc<LastGood>>,
    registry: &Registry,
    tasks: &Tasks,
) -> Option<Arc<WasmModules>> {
    let (wasm, guard) = settings.wasm.clone()?;
    let modules = WasmModules::new(wasm, Fetcher::new(guard, Roots::System), registry);
    let is_needed = move |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        state.as_ref().is_some_and(|state| state.mentions(canopus_xds::types::EXTENSION, name))
    };
    let purged = Arc::clone(&modules);
    tasks.supervise("removal of Wasm modules", move || Arc::clone(&purged).purge(is_needed.clone()));
    Some(modules)
}

/// Checks the application, if the proxy configuration says how.
pub(super) fn start_health(
    probe: &[u8],
    flags: &Flags,
    envoy: Option<Arc<Readiness>>,
    tasks: &Tasks,
) -> anyhow::Result<Option<watch::Receiver<Option<HealthReport>>>> {
    let probe = ReadinessProbe::decode(probe)?;
    let check = HealthCheck::new(&probe, probe_settings(flags), envoy).map_err(anyhow::Error::msg)?;
    let Some(check) = check else { return Ok(None) };
    let (reports, receiver) = watch::channel(None);
    let (check, reports) = (Arc::new(check), Arc::new(reports));
    tasks.supervise("checks of the application", move || {
        let (check, reports) = (Arc::clone(&check), Arc::clone(&reports));
        async move { check.run(&reports).await }
    });
    Ok(Some(receiver))
}

/// Exchanges tokens, if there is a port for it and a server that can.
pub(super) async fn start_token_exchange(port: u16, flags: &Flags, tasks: &Tasks) -> anyhow::Result<()> {
    let url = flags.get(flags::CANOPUS_STS_TOKEN_URL);
    if port == 0 {
        return Ok(());
    }
    if url.is_empty() {
        // Parity: the port alone is only reported to the control plane.
        warn!(
            "--stsPort={port}: nothing listens there; set CANOPUS_STS_TOKEN_URL to the OAuth server that exchanges tokens"
        );
        return Ok(());
    }
    let secret = flags.get(flags::CANOPUS_STS_CLIENT_SECRET_FILE);
    let oauth = OauthSettings {
        url: url.to_owned(),
        client: flags.get(flags::CANOPUS_STS_CLIENT_ID).to_owned(),
        secret: (!secret.is_empty()).then(|| PathBuf::from(secret)),
        audience: flags.get(flags::CANOPUS_STS_AUDIENCE).to_owned(),
    };
    let roots = match flags.get(flags::CANOPUS_STS_ROOT_CA) {
        "SYSTEM" | "" => Roots::System,
        path => Roots::File(PathBuf::from(path)),
    };
    let backend = OauthBackend::new(oauth, Fetcher::new(AddressGuard::open(), roots))?;
    let listener = sts::bind(port)
        .await
        .with_context(|| format!("--stsPort: port {port} cannot be opened; free it, or choose another"))?;
    tasks.spawn("token exchange", sts::serve(listener, Arc::new(backend)));
    Ok(())
}

/// Serves readiness, probes and metrics, unless there is no port for them.
pub(super) async fn start_status(
    prepared: &Prepared,
    flags: &Flags,
    sources: StatusSources,
    registry: &Arc<Registry>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    if prepared.status_port == 0 {
        return Ok(());
    }
    let is_sidecar = prepared.role == Role::Sidecar;
    // Parity: a gateway's port 15020 is reachable from outside, so applications are not scraped through it.
    let annotations = if is_sidecar { flags.get(flags::ISTIO_PROMETHEUS_ANNOTATIONS) } else { "" };
    let targets = if flags.is_set(flags::ISTIO_PROMETHEUS_ANNOTATIONS) {
        targets(annotations, prepared.status_port).map_err(anyhow::Error::msg)?
    } else {
        Vec::new()
    };
    let StatusSources { admin, names, readiness, xds, control } = sources;
    let merged = admin.is_some() && flags.get(flags::PILOT_AGENT_MERGE_ENVOY_STATS);
    let envoy_port = merged.then_some(prepared.prometheus_port);
    let local_only = flags.get(flags::METRICS_LOCALHOST_ACCESS_ONLY);
    let probes = AppProbes::parse(flags.get(flags::ISTIO_KUBE_APP_PROBERS), probe_settings(flags));
    let status = Status {
        readiness,
        metrics: MetricsSettings::new(Arc::clone(registry), envoy_port, targets, local_only),
        probes: probes.map_err(anyhow::Error::msg)?,
        control,
        admin,
        inbound_only: is_sidecar,
        names,
        xds,
    };
    let port = prepared.status_port;
    let listener = status::bind(port).await.with_context(|| {
        format!("status port {port} cannot be opened; free it, or set statusPort of the proxy configuration")
    })?;
    info!("status is served on port {port}");
    tasks.spawn("status port", status::serve(listener, Arc::new(status)));
    Ok(())
}

/// Parity: a workload whose names are captured is not ready before names can be resolved.
fn name_table_is_missing(names: &NameServer) -> Option<String> {
    (!names.is_ready()).then(|| "DNS lookup table is not ready yet".to_owned())
}

fn probe_settings(flags: &Flags) -> ProbeSettings {
    let local = flags.get(flags::REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION);
    let own = flags.get(flags::INSTANCE_IP).parse::<IpAddr>().ok().filter(|_| !local);
    ProbeSettings {
        destination: own.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        http2: flags.get(flags::ISTIO_ENABLE_HTTP2_PROBING),
    }
}

/// Connects anew when the roots of the control plane change, so that an old root is not trusted for longer than needed.
pub(super) fn follow_root(settings: &Settings, xds: &Arc<XdsProxy>, tasks: &Tasks) {
    let Some(Roots::File(path)) = settings.xds.upstream.tls.as_ref().map(|tls| tls.roots.clone()) else {
        return;
    };
    let Some(directory) = path.parent().filter(|directory| directory.is_dir()) else { return };
    let watch = match DirectoryWatch::new([directory]) {
        Ok(watch) => Arc::new(watch),
        Err(error) => return warn!("{}: changes are not noticed: {error}", directory.display()),
    };
    let (xds, quiet) = (Arc::clone(xds), settings.file_quiet);
    tasks.supervise("roots of the control plane", move || {
        let (watch, xds, path) = (Arc::clone(&watch), Arc::clone(&xds), path.clone());
        async move {
            let mut known = std::fs::read(&path).ok();
            loop {
                watch.settled(quiet).await;
                let now = std::fs::read(&path).ok();
                if now.is_some() && now != known {
                    info!(target: "xdsproxy", "{} changed; connecting anew", path.display());
                    known = now;
                    xds.reconnect();
                }
            }
        }
    });
}
