//! `canopusd discovery`: the control plane itself.
//!
//! [`run`] is the table of contents of the process. What it starts is composed in the modules below it: the [`Process`] and what
//! every part needs of it, the [`PushPath`] from changes to proxies with those who observe it, [`Identity`] (who clients are and
//! what certificates say), the `keepers` of what is fetched from elsewhere, and the ports (`serving`).

mod identity;
mod keepers;
mod process;
mod push_path;
mod serving;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use canopus_identity::authority::Authority;
use canopus_mesh::world::MeshSettings;
use canopus_runtime::core_dumps;
use canopus_runtime::flags::{CANOPUS_CONTROLLERS, CLUSTER_ID, Flags, POD_NAMESPACE, REVISION};
use canopus_runtime::log::{self, KlogFlags, LogFlags, Scope, Scopes};
use canopus_sources::kubernetes::{Cluster, RemoteRegistry};
use clap::Args;

use self::identity::Identity;
use self::process::Process;
use self::push_path::PushPath;
use crate::controllers::Controllers;
use crate::push::Reason;
use crate::serve::ports::PortArgs;
use crate::settings::SettingsKeeper;
use crate::sources::{Opened, Opener, Plan, SourceArgs};
use crate::validation_proof;

const SCOPES: &[Scope] = &[
    Scope::new("ads", "Streams of proxies").covering(&[
        "canopus_xds",
        "canopus_daemon::control_plane",
        "canopus_daemon::quarantine",
    ]),
    Scope::new("model", "Objects and what they add up to").covering(&[
        "canopus_sources",
        "canopus_daemon::apply",
        "canopus_daemon::sources",
        "canopus_daemon::jwks",
    ]),
    Scope::new("security", "Who clients are")
        .covering(&["canopus_daemon::authentication", "canopus_daemon::serve::tls"]),
];

const MESH: &str = "Mesh";

/// Threads that generate, or wait for files and names, beside those that serve.
const MOST_BLOCKING_THREADS: usize = 64;

/// Flags that manifests for istiod give and that change nothing here.
#[derive(Args, Debug)]
#[command(next_help_heading = "Taken for the sake of manifests, without effect")]
struct UnusedArgs {
    /// Whether to serve profiles: there is no profiler in the process, and /debug/pprof says so.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    profile: Option<String>,
    /// Port of the introspection page: /debug tells what it would.
    #[arg(long = "ctrlz_port", value_name = "PORT")]
    ctrlz_port: Option<String>,
    /// Address of the introspection page.
    #[arg(long = "ctrlz_address", value_name = "ADDRESS")]
    ctrlz_address: Option<String>,
}

impl UnusedArgs {
    /// The names of those that were given.
    fn given(&self) -> Vec<&'static str> {
        let Self { profile, ctrlz_port, ctrlz_address } = self;
        [("profile", profile), ("ctrlz_port", ctrlz_port), ("ctrlz_address", ctrlz_address)]
            .into_iter()
            .filter(|(_, value)| value.is_some())
            .map(|(name, _)| name)
            .collect()
    }
}

/// Flags of `canopusd discovery`. Names are pilot-discovery's.
#[derive(Args, Debug)]
pub struct DiscoveryArgs {
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    ports: PortArgs,
    #[command(flatten)]
    unused: UnusedArgs,
    /// File with the mesh configuration; Istio's defaults fill what it leaves out. Without it, the ConfigMap `istio` counts.
    #[arg(help_heading = MESH, long = "meshConfig", value_name = "FILE", default_value = "./etc/istio/config/mesh")]
    mesh_config: PathBuf,
    /// File with the networks of the mesh.
    #[arg(help_heading = MESH, long = "networksConfig", value_name = "FILE", default_value = "./etc/istio/config/meshNetworks")]
    networks_config: PathBuf,
    /// Directory with the injector's files `config` and `values`; without them, the ConfigMap istio-sidecar-injector counts.
    #[arg(help_heading = MESH, long = "injectionDirectory", value_name = "DIR", default_value = "./var/lib/istio/inject")]
    injection_directory: PathBuf,
    /// Namespace of the control plane; without, $POD_NAMESPACE or istio-system.
    #[arg(help_heading = MESH, short, long)]
    namespace: Option<String>,
    /// Namespace of the node agents whose nodes lose their taint when they are ready; without, that of the control plane.
    #[arg(help_heading = MESH, long = "cniNamespace", value_name = "NAMESPACE")]
    cni_namespace: Option<String>,
    /// DNS suffix of services that live in a namespace.
    #[arg(help_heading = MESH, long, default_value = "cluster.local")]
    domain: String,
    /// Name of the cluster this control plane belongs to; without, $CLUSTER_ID or Kubernetes.
    #[arg(help_heading = MESH, long = "clusterID", value_name = "NAME")]
    cluster_id: Option<String>,
    /// Other names of clusters, such as alias=Kubernetes, separated by commas: clients may say either.
    #[arg(help_heading = MESH, long = "clusterAliases", value_name = "ALIAS=NAME", value_delimiter = ',')]
    cluster_aliases: Vec<String>,
    /// Whether an object whose effect proxies reject is held at the value they last accepted; without, $CANOPUS_QUARANTINE
    /// or true.
    #[arg(help_heading = MESH, long, value_name = "BOOL")]
    quarantine: Option<bool>,
    #[command(flatten, next_help_heading = "Log")]
    log: LogFlags,
}

/// Runs until a signal asks to stop.
pub fn main(args: DiscoveryArgs, klog: KlogFlags) -> ExitCode {
    let scopes = Scopes::new();
    scopes.register(SCOPES);
    klog.apply(&scopes);
    let _log = match log::install(&scopes, &args.log) {
        Ok(guard) => guard,
        Err(error) => return fail(&error.into()),
    };
    // A rush of proxies has many threads started, each of which keeps memory at hand for as long as it lives.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(MOST_BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(1))
        .build();
    let runtime = match runtime {
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
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("canopusd: {error:#}");
    ExitCode::FAILURE
}

/// Starts everything, in the order in which it is needed, and stops when a signal asks to.
async fn run(args: DiscoveryArgs) -> anyhow::Result<()> {
    core_dumps::forbid().context("cannot turn core dumps off")?;
    let process = Process::start(&args)?;
    let settings = settings(&process, &args)?;
    let mesh = settings.settings().clone();
    let push = PushPath::start(&process, &args, &mesh);
    let sources = open_sources(&process, &args, &settings).await?;
    let (cluster, remote) = (sources.cluster.clone(), sources.remote.clone());

    let identity = Identity::start(&process, &push, &args, &mesh, cluster.as_ref(), &remote).await?;
    let injection = keepers::start(&process, &push, &args, cluster.as_ref());
    push.follow_secret_access(&process, &mesh, cluster.clone());
    push.follow_machines(&process, cluster.as_ref());
    push.start_applying(&process, settings, sources);

    let opened = process.readiness.register("ports");
    let authority = identity.authority.clone();
    let ports = serving::ports(&process, &push, &args, identity, injection, remote.clone());
    ports.open_early().await?;
    // A proxy must never be told that a world nobody has read yet is an empty one, nor be sent to a port that is not open.
    tokio::select! {
        () = process.readiness.wait_for_others(&opened) => {
            ports.open(&process.tasks).await?;
            if let Some(cluster) = cluster {
                prove_validation(&process, &push, &mesh, cluster.clone());
                controllers(&process, &push, &mesh, cluster, authority, remote, &args).start()?;
            }
            opened.ready();
            process.tracer.started(process.started);
        }
        () = process.shutdown.requested() => {}
    }
    process.stop(args.ports.shutdown_duration).await
}

/// The settings of the mesh, which follow their files.
fn settings(process: &Process, args: &DiscoveryArgs) -> anyhow::Result<SettingsKeeper> {
    let mut settings =
        SettingsKeeper::new(mesh_settings(args, &process.flags), &args.mesh_config, &args.networks_config)
            .context("mesh configuration")?;
    let plan = Plan::new(&args.sources, &process.flags, &settings.settings().mesh)?;
    if !plan.reads_configuration_from_cluster() || process.flags.get(CANOPUS_CONTROLLERS) != "on" {
        settings.without_stored_statuses();
    }
    Ok(settings)
}

/// Opens what objects come from.
async fn open_sources(
    process: &Process,
    args: &DiscoveryArgs,
    settings: &SettingsKeeper,
) -> anyhow::Result<Opened> {
    let plan = Plan::new(&args.sources, &process.flags, &settings.settings().mesh)?;
    let opener = Opener {
        args: &args.sources,
        flags: &process.flags,
        cluster: &settings.settings().cluster,
        system_namespace: &settings.settings().system_namespace,
        selection: settings.selection(),
        readiness: &process.readiness,
        tasks: &process.tasks,
    };
    opener.open(plan).await
}

/// Finds out when the API server gets answers of the validation webhook.
fn prove_validation(process: &Process, push: &PushPath, settings: &MeshSettings, cluster: Cluster) {
    let revision = if settings.revision.is_empty() { "default" } else { &*settings.revision };
    let namespace = settings.system_namespace.to_string();
    let store = push.store(Reason::Global);
    let revision = revision.to_owned();
    process.tasks.supervise("validation proof", move || {
        validation_proof::prove(cluster.clone(), namespace.clone(), revision.clone(), store.clone())
    });
}

/// What is written to the cluster.
fn controllers<'a>(
    process: &'a Process,
    push: &PushPath,
    settings: &'a MeshSettings,
    cluster: Cluster,
    authority: Option<Arc<Authority>>,
    remote: RemoteRegistry,
    args: &DiscoveryArgs,
) -> Controllers<'a> {
    let agents = args.cni_namespace.as_deref();
    Controllers {
        cluster,
        engine: push.dispatcher.engine().clone(),
        revisions: push.revision.clone(),
        settings,
        authority,
        remote,
        registry: &process.registry,
        tasks: &process.tasks,
        shutdown: &process.shutdown,
        longest_connection: args.ports.keepalive_max_server_connection_age,
        leaders: push.leaders.clone(),
        agent_namespace: agents.map_or_else(|| settings.system_namespace.clone(), Arc::from),
        store: Arc::new(push.store(Reason::Global)),
    }
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
