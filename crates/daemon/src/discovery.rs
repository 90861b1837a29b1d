//! `canopusd discovery`: the control plane itself.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_runtime::flags::{CLUSTER_ID, Flags, POD_NAMESPACE, REVISION};
use canopus_runtime::log::{self, LogFlags, Scope, Scopes};
use canopus_runtime::metrics::{self, Registry, catalogue::PILOT_INFO};
use canopus_runtime::ready::Readiness;
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::tasks::Tasks;
use canopus_runtime::version::BuildInfo;
use canopus_xds::server::{self, Options};
use clap::Args;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tracing::{info, warn};

use crate::apply::Applier;
use crate::control_plane::Mesh;
use crate::debug::{Debug, Nobody};
use crate::http;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::push::{Dispatcher, Stamp};
use crate::settings::SettingsKeeper;
use crate::sources::{Opened, Opener, Plan, SourceArgs};

const SCOPES: &[Scope] = &[
    Scope::new("ads", "Streams of proxies").covering(&["canopus_xds", "canopus_daemon::control_plane"]),
    Scope::new("model", "Objects and what they add up to").covering(&[
        "canopus_sources",
        "canopus_daemon::apply",
        "canopus_daemon::sources",
    ]),
];

/// Flags of `canopusd discovery`. Names are pilot-discovery's.
#[derive(Args, Debug)]
pub struct DiscoveryArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// Address to serve xDS on, without TLS.
    #[arg(long = "grpcAddr", value_name = "ADDRESS", default_value = ":15010")]
    grpc_addr: String,
    /// Address to serve readiness and the debug endpoints on.
    #[arg(long = "httpAddr", value_name = "ADDRESS", default_value = ":8080")]
    http_addr: String,
    /// Address to serve metrics, the version and the debug endpoints on; empty for nowhere.
    #[arg(long = "monitoringAddr", value_name = "ADDRESS", default_value = ":15014")]
    monitoring_addr: String,
    /// File with the mesh configuration; Istio's defaults fill what it leaves out. Without it, the ConfigMap `istio` counts.
    #[arg(long = "meshConfig", value_name = "FILE", default_value = "./etc/istio/config/mesh")]
    mesh_config: PathBuf,
    /// File with the networks of the mesh.
    #[arg(long = "networksConfig", value_name = "FILE", default_value = "./etc/istio/config/meshNetworks")]
    networks_config: PathBuf,
    /// Namespace of the control plane; without, $POD_NAMESPACE or istio-system.
    #[arg(short, long)]
    namespace: Option<String>,
    /// DNS suffix of services that live in a namespace.
    #[arg(long, default_value = "cluster.local")]
    domain: String,
    /// Name of the cluster this control plane belongs to; without, $CLUSTER_ID or Kubernetes.
    #[arg(long = "clusterID", value_name = "NAME")]
    cluster_id: Option<String>,
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
    let flags = Arc::new(Flags::from_env());
    for warning in flags.warnings() {
        warn!("{warning}");
    }
    let shutdown = Shutdown::new();
    shutdown.stop_on_signals().context("cannot handle signals")?;
    let readiness = Readiness::new();
    let tasks = Tasks::new(shutdown.clone());

    let settings =
        SettingsKeeper::new(mesh_settings(&args, &flags), &args.mesh_config, &args.networks_config)
            .context("mesh configuration")?;
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings.settings().clone());
    engine.apply(batch);
    let registry = registry();
    let metrics = Arc::new(Metrics::new(&registry));
    let dispatcher = Dispatcher::new(engine, vec![metrics.clone()]);
    crate::metrics::collect_model(&registry, &dispatcher);

    let plan = Plan::new(&args.sources, &flags, &settings.settings().mesh)?;
    let opener = Opener {
        args: &args.sources,
        flags: &flags,
        cluster: &settings.settings().cluster,
        selection: settings.selection(),
        readiness: &readiness,
        tasks: &tasks,
    };
    let Opened { intake, restored, keeper, guards } = opener.open(plan).await?;
    let pace = Pace::new(&flags);
    let mut applier =
        Applier { dispatcher: Arc::clone(&dispatcher), intake, metrics, pace, settings, keeper, guards };
    for update in restored {
        applier.apply(update, Stamp::now());
    }
    tasks.spawn("apply", applier.run(shutdown.register(Phase::Last, "apply")));

    let http = listen(&args.http_addr).await?;
    info!(http = %http.local_addr()?, "serving readiness");
    let served = http::Served {
        readiness: readiness.clone(),
        metrics: registry,
        debug: Arc::new(Debug::new(Arc::clone(&dispatcher))),
        authenticator: Arc::new(Nobody),
    };
    spawn_http(http, http::admin(served.clone()), &shutdown);
    if !args.monitoring_addr.is_empty() {
        let monitoring = listen(&args.monitoring_addr).await?;
        info!(monitoring = %monitoring.local_addr()?, "serving metrics");
        spawn_http(monitoring, http::monitoring(served), &shutdown);
    }
    // A proxy must never be told that a world nobody has read yet is an empty one.
    tokio::select! {
        () = readiness.wait() => {
            let grpc = listen(&args.grpc_addr).await?;
            info!(grpc = %grpc.local_addr()?, "serving proxies");
            spawn_xds(grpc, Mesh::new(dispatcher), &shutdown);
        }
        () = shutdown.requested() => {}
    }

    let outcome = shutdown.run(args.shutdown_duration).await;
    info!(?outcome, "stopped");
    Ok(())
}

/// What flags and environment say of the mesh.
fn mesh_settings(args: &DiscoveryArgs, flags: &Arc<Flags>) -> MeshSettings {
    let given = |flag: Option<&str>, variable: &str, otherwise: &Arc<str>| {
        let texts = [flag.unwrap_or_default(), variable];
        texts.into_iter().find(|text| !text.is_empty()).map_or_else(|| Arc::clone(otherwise), Arc::from)
    };
    let default = MeshSettings::default();
    let namespace = args.namespace.as_deref();
    MeshSettings {
        domain: args.domain.as_str().into(),
        cluster: given(args.cluster_id.as_deref(), flags.get(CLUSTER_ID), &default.cluster),
        system_namespace: given(namespace, flags.get(POD_NAMESPACE), &default.system_namespace),
        revision: given(None, flags.get(REVISION), &default.revision),
        flags: Arc::clone(flags),
        ..default
    }
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

fn spawn_http(listener: TcpListener, routes: Router, shutdown: &Shutdown) {
    let part = shutdown.register(Phase::Serving, "http");
    tokio::spawn(async move {
        let server = axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>());
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
    registry.family(PILOT_INFO).with([&BuildInfo::current().to_string()]).set(1.0);
    registry
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
