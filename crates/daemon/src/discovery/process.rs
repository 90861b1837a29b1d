//! What every part of the process needs: flags, metrics, readiness, tasks, the way to stop.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use canopus_runtime::flags::Flags;
use canopus_runtime::metrics::{self, Registry, catalogue::PILOT_INFO};
use canopus_runtime::ready::Readiness;
use canopus_runtime::shutdown::Shutdown;
use canopus_runtime::tasks::Tasks;
use canopus_runtime::version::BuildInfo;
use tracing::{info, warn};

use super::DiscoveryArgs;
use crate::spans::Tracer;

/// The process itself.
pub(super) struct Process {
    pub(super) started: SystemTime,
    pub(super) flags: Arc<Flags>,
    pub(super) shutdown: Shutdown,
    pub(super) readiness: Readiness,
    pub(super) tasks: Tasks,
    pub(super) registry: Registry,
    pub(super) tracer: Arc<Tracer>,
}

impl Process {
    /// Reads the environment and handles signals from now on.
    pub(super) fn start(args: &DiscoveryArgs) -> anyhow::Result<Self> {
        let started = SystemTime::now();
        let flags = Arc::new(Flags::from_env());
        for warning in flags.warnings() {
            warn!("{warning}");
        }
        for flag in args.unused.given() {
            info!("flag --{flag} has no effect here");
        }
        let shutdown = Shutdown::new();
        shutdown.stop_on_signals().context("cannot handle signals")?;
        let tasks = Tasks::new(shutdown.clone());
        let (tracer, exporter) = Tracer::new(&flags)?;
        if let Some(exporter) = exporter {
            tasks.supervise_with("spans", exporter, |mut exporter| async move { exporter.run().await });
        }
        Ok(Self {
            started,
            flags,
            shutdown,
            readiness: Readiness::new(),
            tasks,
            registry: registry(),
            tracer: Arc::new(tracer),
        })
    }

    /// Stops every part in its turn, within this time.
    pub(super) async fn stop(&self, patience: Duration) -> anyhow::Result<()> {
        let outcome = self.shutdown.run(patience).await;
        info!(?outcome, "stopped");
        if outcome.failed {
            bail!("{}", outcome.reason);
        }
        Ok(())
    }
}

fn registry() -> Registry {
    let registry = Registry::new();
    metrics::register_process(&registry);
    metrics::register_build(&registry, "pilot", &BuildInfo::current());
    metrics::register_uptime(&registry);
    registry.family(PILOT_INFO).with([&BuildInfo::current().to_string()]).set(1.0);
    registry
}
