//! The agent as a process: everything it starts, and in which order it ends.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use canopus_runtime::flags::Flags;
use canopus_runtime::metrics::Registry;
use canopus_runtime::shutdown::Shutdown;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};
use http::StatusCode;

use super::settings::{AmbientSettings, Settings};
use crate::ambient::{Dataplane, NamespaceFinder, NodeAgent, Rules, ZtunnelServer};
use crate::install::Installer;
use crate::plugin::EVENT_SOCKET;
use crate::repair::Repair;
use crate::sockets::{self, Answer, Handler, LOG_SOCKET, PluginLog};

/// The DaemonSet that runs the agent.
const DAEMON_SET: &str = "istio-cni-node";

/// How long the API server may take to say whether the agent is being replaced.
const UPGRADE_CHECK: Duration = Duration::from_secs(3);

/// Answers probes.
struct Health {
    installed: AtomicBool,
    agent: Option<Arc<NodeAgent>>,
}

impl Handler for Health {
    async fn handle(&self, path: &str, _: Bytes) -> Answer {
        let is_ready = self.installed.load(Ordering::Relaxed)
            && self.agent.as_ref().is_none_or(|agent| agent.is_ready());
        match path {
            "/healthz" => (StatusCode::OK, String::new()),
            "/readyz" if is_ready => (StatusCode::OK, String::new()),
            "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable".to_owned()),
            _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
        }
    }
}

struct Metrics(Registry);

impl Handler for Metrics {
    async fn handle(&self, path: &str, _: Bytes) -> Answer {
        match path {
            "/metrics" => (StatusCode::OK, self.0.encode()),
            _ => (StatusCode::NOT_FOUND, "not found".to_owned()),
        }
    }
}

/// Runs until a signal asks for the end.
pub(super) async fn run(settings: Settings, flags: &Flags) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.stop_on_signals()?;
    let metrics = Registry::new();
    let access = settings.kubeconfig.clone().map_or(Access::Pod, Access::Kubeconfig);
    let needs_cluster = settings.ambient.is_some() || settings.repair.is_some();
    let cluster = match Cluster::connect(&access, RateLimit { qps: 100.0, burst: 200 }).await {
        Ok(cluster) => Some(cluster),
        Err(error) if needs_cluster => return Err(error.into()),
        Err(_) => None,
    };
    let ambient = match (&settings.ambient, &cluster) {
        (Some(ambient), Some(cluster)) => Some(node_agent(ambient, &settings, cluster, &metrics)?),
        _ => None,
    };
    let agent = ambient.as_ref().map(|(agent, _)| Arc::clone(agent));
    let health = Arc::new(Health { installed: AtomicBool::new(false), agent: agent.clone() });
    let mut installer = Installer::new(settings.install.clone());

    let log = sockets::listen(&settings.run_directory.join(LOG_SOCKET))?;
    let events = agent
        .as_ref()
        .map(|agent| {
            Ok::<_, anyhow::Error>((sockets::listen(&settings.run_directory.join(EVENT_SOCKET))?, agent))
        })
        .transpose()?;
    let serving_events = async {
        match events {
            Some((listener, agent)) => sockets::serve_unix(listener, Arc::clone(agent)).await,
            None => std::future::pending().await,
        }
    };
    let port = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let enrolling = async {
        match (&agent, &cluster) {
            (Some(agent), Some(cluster)) => agent.run(cluster).await,
            _ => std::future::pending().await,
        }
    };
    let repairing = async {
        match (settings.repair.clone(), &cluster) {
            (Some(repair), Some(cluster)) => {
                let proc = settings.host_root.join("proc");
                Repair::new(repair, cluster.clone(), &proc, flags, metrics.clone()).run().await;
            }
            _ => std::future::pending().await,
        }
    };
    let is_ready = |is_installed| health.installed.store(is_installed, Ordering::Relaxed);
    tokio::select! {
        () = shutdown.requested() => {}
        () = installer.run(&metrics, is_ready) => {}
        () = sockets::serve_unix(log, Arc::new(PluginLog)) => {}
        () = serving_events => {}
        () = enrolling => {}
        () = repairing => {}
        Err(error) = sockets::serve_tcp(port(settings.health_port), Arc::clone(&health)) => return Err(error.into()),
        Err(error) = sockets::serve_tcp(port(settings.monitoring_port), Arc::new(Metrics(metrics.clone()))) => {
            return Err(error.into());
        }
    }
    end(&settings, &installer, ambient.map(|(_, dataplane)| dataplane), cluster.as_ref()).await;
    Ok(())
}

fn node_agent(
    ambient: &AmbientSettings,
    settings: &Settings,
    cluster: &Cluster,
    metrics: &Registry,
) -> anyhow::Result<(Arc<NodeAgent>, Arc<Dataplane>)> {
    let proc = settings.host_root.join("proc");
    let finder = NamespaceFinder::new(&proc)
        .with_context(|| format!("{}: the host's processes have to be mounted there", proc.display()))?;
    let rules = Rules {
        config: ambient.config.clone(),
        native_nftables: ambient.native_nftables,
        variant: ambient.variant,
        tools: ambient.tools.clone(),
        host_namespace: ambient.host_namespace.clone(),
        kubelet: finder.kubelet_user()?.unwrap_or_default(),
    };
    let ztunnel = ZtunnelServer::new(metrics.clone());
    let dataplane = Arc::new(Dataplane::new(rules, ztunnel, finder, cluster.clone(), &settings.host_root));
    let agent = NodeAgent::new(ambient.agent.clone(), Arc::clone(&dataplane), metrics.clone());
    Ok((agent, dataplane))
}

/// Removes what was installed, unless another agent takes over: pods that start meanwhile must not run without the plugin.
async fn end(
    settings: &Settings,
    installer: &Installer,
    dataplane: Option<Arc<Dataplane>>,
    cluster: Option<&Cluster>,
) {
    let is_safe_upgrade = settings.ambient.as_ref().is_some_and(|ambient| !ambient.disable_safe_upgrade);
    if is_safe_upgrade
        && let Some(cluster) = cluster
        && is_replaced(cluster, settings).await
    {
        tracing::info!(
            "the DaemonSet {DAEMON_SET} is still there: another agent follows, so everything stays"
        );
        return;
    }
    if let Err(error) = installer.clean_up() {
        tracing::error!("{error}");
    }
    if let Some(dataplane) = dataplane
        && let Err(error) = dataplane.release_host().await
    {
        tracing::error!("{error}");
    }
}

async fn is_replaced(cluster: &Cluster, settings: &Settings) -> bool {
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{DAEMON_SET}", settings.namespace);
    match tokio::time::timeout(UPGRADE_CHECK, cluster.read_at(&path)).await {
        Ok(Ok(Some(found))) => found["metadata"]["deletionTimestamp"].is_null(),
        Ok(Ok(None)) => false,
        // Parity: with a configuration of its own, what is not known counts as an upgrade.
        Ok(Err(error)) => {
            tracing::warn!("{path}: {error}");
            settings.install.owned_config.is_some() && error.code != 401
        }
        Err(_) => settings.install.owned_config.is_some(),
    }
}
