//! `canopusd discovery`: the control plane itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use canopus_api::mesh_config;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_runtime::flags::Flags;
use canopus_runtime::log::{self, LogFlags, Scope, Scopes};
use canopus_runtime::metrics::{self, Registry};
use canopus_runtime::ready::Readiness;
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::version::BuildInfo;
use canopus_sources::files::Files;
use canopus_sources::{Intake, Source as _, SourceInfo};
use canopus_xds::server::{self, Options};
use clap::Args;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tracing::{info, warn};

use crate::control_plane::Mesh;
use crate::{apply, http};

const SCOPES: &[Scope] = &[
    Scope::new("ads", "Streams of proxies").covering(&["canopus_xds", "canopus_daemon::control_plane"]),
    Scope::new("model", "Objects and what they add up to")
        .covering(&["canopus_sources", "canopus_daemon::apply"]),
];

/// Flags of `canopusd discovery`. Names are pilot-discovery's.
#[derive(Args, Debug)]
pub struct DiscoveryArgs {
    /// Directory of YAML or JSON files (or one file) to read objects from; watched for changes.
    #[arg(long = "configDir", value_name = "PATH")]
    config_dir: PathBuf,
    /// Address to serve xDS on, without TLS.
    #[arg(long = "grpcAddr", value_name = "ADDRESS", default_value = ":15010")]
    grpc_addr: String,
    /// Address to serve readiness, metrics and version on.
    #[arg(long = "httpAddr", value_name = "ADDRESS", default_value = ":8080")]
    http_addr: String,
    /// File with the mesh configuration; Istio's defaults fill what it leaves out.
    #[arg(long = "meshConfig", value_name = "FILE", default_value = "./etc/istio/config/mesh")]
    mesh_config: PathBuf,
    /// DNS suffix of services that live in a namespace.
    #[arg(long, default_value = "cluster.local")]
    domain: String,
    /// Name of the cluster this control plane belongs to.
    #[arg(long = "clusterID", default_value = "Kubernetes")]
    cluster_id: String,
    /// How long streams may take to end when the process is asked to stop.
    #[arg(long = "shutdownDuration", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    shutdown_duration: Duration,
    #[command(flatten)]
    log: LogFlags,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: canopus_base::duration::Duration = text.parse().map_err(|e| format!("{e}"))?;
    parsed.to_std().ok_or_else(|| "must not be negative".to_owned())
}

/// Runs until a signal asks to stop.
pub fn main(args: DiscoveryArgs) -> ExitCode {
    let scopes = Scopes::new();
    scopes.register(SCOPES);
    let _log = match log::install(&scopes, &args.log) {
        Ok(guard) => guard,
        Err(error) => return fail(&error.into()),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    match runtime.block_on(run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The log may not be up yet, and the person who started the process must see it.
#[allow(clippy::print_stderr)]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("canopusd: {error:#}");
    ExitCode::FAILURE
}

async fn run(args: DiscoveryArgs) -> anyhow::Result<()> {
    for warning in Flags::from_env().warnings() {
        warn!("{warning}");
    }
    let shutdown = Shutdown::new();
    shutdown.stop_on_signals().context("cannot handle signals")?;
    let readiness = Readiness::new();
    let synced = readiness.register("sources");

    let engine = Engine::new();
    engine.apply(settings(&args)?);
    let (announce, revision) = watch::channel(engine.revision().number());
    let mut intake = Intake::new();
    let files = SourceInfo::new(format!("files:{}", args.config_dir.display()), args.cluster_id.as_str(), 0);
    tokio::spawn(Files::new(&args.config_dir).run(intake.feed(files)));
    tokio::spawn(apply::run(engine.clone(), intake, announce, synced));

    let http = listen(&args.http_addr).await?;
    info!(http = %http.local_addr()?, "serving readiness and metrics");
    spawn_http(http, http::Served { readiness: readiness.clone(), metrics: registry() }, &shutdown);
    // A proxy must never be told that a world nobody has read yet is an empty one.
    tokio::select! {
        () = readiness.wait() => {
            let grpc = listen(&args.grpc_addr).await?;
            info!(grpc = %grpc.local_addr()?, "serving proxies");
            spawn_xds(grpc, Mesh::new(engine, revision), &shutdown);
        }
        () = shutdown.requested() => {}
    }

    let outcome = shutdown.run(args.shutdown_duration).await;
    info!(?outcome, "stopped");
    Ok(())
}

fn spawn_xds(listener: TcpListener, mesh: Mesh, shutdown: &Shutdown) {
    let part = shutdown.register(Phase::Serving, "xds");
    tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        if let Err(error) = server::serve(incoming, Arc::new(mesh), Options::default(), part.stopping()).await
        {
            warn!(%error, "the xDS server ended");
        }
    });
}

fn spawn_http(listener: TcpListener, served: http::Served, shutdown: &Shutdown) {
    let part = shutdown.register(Phase::Serving, "http");
    tokio::spawn(async move {
        let server = axum::serve(listener, http::router(served));
        tokio::select! {
            ended = server => warn!(?ended, "the HTTP server ended"),
            () = part.stopping() => {}
        }
    });
}

fn registry() -> Registry {
    let registry = Registry::new();
    metrics::register_process(&registry);
    metrics::register_build(&registry, "pilot", &BuildInfo::current());
    metrics::register_uptime(&registry);
    registry
}

/// The settings the process was started with.
fn settings(args: &DiscoveryArgs) -> anyhow::Result<Batch> {
    let mesh = mesh_config(&args.mesh_config)
        .with_context(|| format!("mesh configuration {}", args.mesh_config.display()))?;
    let settings = MeshSettings {
        mesh,
        domain: args.domain.as_str().into(),
        cluster: args.cluster_id.as_str().into(),
        flags: Arc::new(Flags::from_env()),
        ..MeshSettings::default()
    };
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings);
    Ok(batch)
}

/// The mesh configuration in a file over Istio's defaults; the defaults alone if there is no such file.
fn mesh_config(path: &Path) -> anyhow::Result<MeshConfig> {
    let defaults = mesh_config::default_mesh_config();
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(defaults),
        text => text?,
    };
    let decoded = mesh_config::apply(&text, &defaults)?;
    for problem in &decoded.ignored {
        warn!("mesh configuration {}: {problem}", path.display());
    }
    Ok(decoded.value)
}

/// Binds `host:port`. As in Go, no host means every address of the machine.
async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // A machine without IPv6.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    bound.with_context(|| format!("cannot listen on {address}"))
}
