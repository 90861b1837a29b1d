//! Starting the servers that are not Envoy's sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::Context as _;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::metrics::{Registry, catalogue};
use tracing::{info, warn};

use super::Role;
use super::settings::Settings;
use crate::certificates::files::DirectoryWatch;
use crate::envoy::{Admin, Control};
use crate::status::metrics::{MetricsSettings, targets};
use crate::status::probes::{AppProbes, ProbeSettings};
use crate::status::ready::Readiness;
use crate::status::{self, Status};
use crate::upstream::Roots;
use crate::xds_proxy::XdsProxy;

/// Serves readiness, probes and metrics, unless there is no port for them.
pub(super) async fn start_status(
    settings: &Settings,
    flags: &Flags,
    admin: Option<Admin>,
    control: &Arc<Control>,
    registry: &Arc<Registry>,
) -> anyhow::Result<()> {
    if settings.status_port == 0 {
        return Ok(());
    }
    let is_sidecar = settings.role == Role::Sidecar;
    // Parity: a gateway's port 15020 is reachable from outside, so applications are not scraped through it.
    let annotations = if is_sidecar { flags.get(flags::ISTIO_PROMETHEUS_ANNOTATIONS) } else { "" };
    let targets = if flags.is_set(flags::ISTIO_PROMETHEUS_ANNOTATIONS) {
        targets(annotations, settings.status_port).map_err(anyhow::Error::msg)?
    } else {
        Vec::new()
    };
    let merged = admin.is_some() && flags.get(flags::PILOT_AGENT_MERGE_ENVOY_STATS);
    let envoy_port = merged.then_some(settings.node.metadata.envoy_prometheus_port);
    let local_only = flags.get(flags::METRICS_LOCALHOST_ACCESS_ONLY);
    let probes = AppProbes::parse(flags.get(flags::ISTIO_KUBE_APP_PROBERS), probe_settings(flags));
    let duration = registry.value(catalogue::STARTUP_DURATION_SECONDS);
    let status = Status {
        readiness: Readiness::new(admin, Vec::new(), duration),
        metrics: MetricsSettings::new(Arc::clone(registry), envoy_port, targets, local_only),
        probes: probes.map_err(anyhow::Error::msg)?,
        control: Arc::clone(control),
        admin,
        inbound_only: is_sidecar,
    };
    let port = settings.status_port;
    let listener = status::bind(port).await.with_context(|| {
        format!("status port {port} cannot be opened; free it, or set statusPort of the proxy configuration")
    })?;
    info!("status is served on port {port}");
    tokio::spawn(status::serve(listener, Arc::new(status)));
    Ok(())
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
pub(super) fn follow_root(settings: &Settings, xds: &Arc<XdsProxy>) {
    let Some(Roots::File(path)) = settings.xds.upstream.tls.as_ref().map(|tls| tls.roots.clone()) else {
        return;
    };
    let Some(directory) = path.parent().filter(|directory| directory.is_dir()) else { return };
    let watch = match DirectoryWatch::new([directory]) {
        Ok(watch) => watch,
        Err(error) => return warn!("{}: changes are not noticed: {error}", directory.display()),
    };
    let (xds, quiet) = (Arc::clone(xds), settings.file_quiet);
    let mut known = std::fs::read(&path).ok();
    tokio::spawn(async move {
        loop {
            watch.settled(quiet).await;
            let now = std::fs::read(&path).ok();
            if now.is_some() && now != known {
                info!(target: "xdsproxy", "{} changed; connecting anew", path.display());
                known = now;
                xds.reconnect();
            }
        }
    });
}
