//! `canopusd discovery`: the control plane itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use canopus_engine::{Batch, Engine};
use canopus_identity::service::CertificateService;
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_runtime::flags::{
    CANOPUS_QUARANTINE, CLUSTER_ID, Flags, ISTIOD_CUSTOM_HOST, PILOT_MAX_REQUESTS_PER_SECOND, POD_NAMESPACE,
    REVISION,
};
use canopus_runtime::log::{self, LogFlags, Scope, Scopes};
use canopus_runtime::metrics::{self, Registry, catalogue::PILOT_INFO};
use canopus_runtime::ready::Readiness;
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::tasks::Tasks;
use canopus_runtime::version::BuildInfo;
use clap::Args;
use tracing::{info, warn};

use crate::apply::Applier;
use crate::authentication::{Authenticators, TokenCluster};
use crate::certificate_authority::{self, CertificateAuthority, IssuedCertificates, Nodes, Places, Signers};
use crate::control_plane::Mesh;
use crate::controllers::{Controllers, follow_roots};
use crate::debug::Debug;
use crate::envoy_filters;
use crate::forecast::Forecast;
use crate::http;
use crate::injection::{Injection, InjectionKeeper};
use crate::jwks::KeyKeeper;
use crate::metrics::{AdmissionMetrics, CallMetrics, IssuingMetrics, Metrics};
use crate::pace::Pace;
use crate::push::{Cause, Dispatcher, Observer, Reason, Revisions, Stamp};
use crate::quarantine::QuarantineController;
use crate::secret_access::{self, AccessKeeper};
use crate::serve::certificates::Certificates;
use crate::serve::grpc::Grpc;
use crate::serve::identity_documents::IdentityDocuments;
use crate::serve::issuing::Issuing;
use crate::serve::ports::{PortArgs, Ports};
use crate::serve::webhook::Admission;
use crate::settings::SettingsKeeper;
use crate::sources::{Opened, Opener, Plan, SourceArgs};
use crate::spans::Tracer;
use crate::trust_anchors::BundleKeeper;

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
    /// Namespace of the secrets that lead to remote clusters: they are not read yet.
    #[arg(long = "clusterRegistriesNamespace", value_name = "NAMESPACE")]
    cluster_registries_namespace: Option<String>,
    /// Namespace of the node agent: nodes are not untainted yet.
    #[arg(long = "cniNamespace", value_name = "NAMESPACE")]
    cni_namespace: Option<String>,
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
        let Self { cluster_registries_namespace, cni_namespace, profile, ctrlz_port, ctrlz_address } = self;
        [
            ("clusterRegistriesNamespace", cluster_registries_namespace),
            ("cniNamespace", cni_namespace),
            ("profile", profile),
            ("ctrlz_port", ctrlz_port),
            ("ctrlz_address", ctrlz_address),
        ]
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
pub fn main(args: DiscoveryArgs) -> ExitCode {
    let scopes = Scopes::new();
    scopes.register(SCOPES);
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

async fn run(args: DiscoveryArgs) -> anyhow::Result<()> {
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
    let (tracer, exporter) = Tracer::new(&flags)?;
    let tracer = Arc::new(tracer);
    if let Some(exporter) = exporter {
        tasks.spawn("spans", exporter.run());
    }
    let (wishes, wanted) = secret_access::channel();
    let (revisions, revision) = Revisions::new(engine.revision().number());
    let observers: Vec<Arc<dyn Observer>> =
        vec![metrics.clone(), Arc::new(revisions), Arc::new(wishes), tracer.clone()];
    let dispatcher = Dispatcher::new(engine, observers);
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
    let Opened { intake, restored, keeper, guards, cluster } = opener.open(plan).await?;
    let mut names = certificate_names(settings.settings(), &flags);
    if cluster.is_none() {
        // Without a cluster there is nobody who would resolve the names of services.
        names.push("localhost".to_owned());
    }
    let store = |reason| {
        let dispatcher = Arc::clone(&dispatcher);
        move |batch| {
            tokio::task::block_in_place(|| dispatcher.apply(batch, Cause::reason(reason)));
        }
    };
    let fetched = store(Reason::DependentResource);
    let injection = Injection::new(dispatcher.engine().clone(), readiness.clone(), &flags);
    if let Some(injection) = &injection {
        let directory = args.injection_directory.clone();
        let keeper = InjectionKeeper::new(Arc::clone(injection), directory, revision.clone(), &flags);
        tasks.spawn("injector configuration", keeper.run());
    }
    let keys = KeyKeeper::new(dispatcher.engine().clone(), revision.clone(), &flags, &registry, fetched);
    tasks.spawn("jwks", keys.run());
    envoy_filters::register(&registry, &flags, &dispatcher);
    let own = Arc::clone(&settings.settings().cluster);
    let tokens =
        cluster.clone().map(|cluster| TokenCluster { cluster, names: names_of(&own, &args.cluster_aliases) });
    let namespace = Arc::clone(&settings.settings().system_namespace);
    let places = Places {
        cluster: cluster.clone().map(|cluster| (cluster, namespace)),
        configuration: args.sources.configuration(),
    };
    let join_tokens = certificate_authority::join_tokens(&flags, &places).await?;
    let mut authenticators = Authenticators::new(dispatcher.engine().clone(), &flags, tokens)?;
    if let Some(issuer) = &join_tokens {
        authenticators = authenticators.with_join_tokens(Arc::clone(issuer));
    }
    let authenticators = Arc::new(authenticators);
    let external = certificate_authority::external(&flags, dispatcher.engine(), &places)?;
    let ca = CertificateAuthority::open(&flags, settings.settings().trust_domain(), places).await?;
    let authority = ca.as_ref().map(CertificateAuthority::authority);
    let issued = Arc::new(IssuedCertificates::default());
    let mut forecast = Forecast::new(dispatcher.engine().clone());
    if let Some(ca) = ca {
        forecast = forecast.of_authority(ca.authority(), ca.rotation(), Arc::clone(&issued));
        tasks.spawn("certificate authority", ca.run());
    }
    let issuing = match &authority {
        Some(authority) => {
            let mut service = CertificateService::new(Arc::new(IssuingMetrics::new(&registry, authority)));
            if let Some(nodes) = Nodes::new(dispatcher.engine(), &own, &flags) {
                service = service.with_nodes(Arc::new(nodes));
            }
            let mut signers = Signers::new(Arc::clone(authority)).context("threads that sign")?;
            if let Some(external) = external {
                signers = signers.handing_on(external);
            }
            Some(Issuing::new(service, signers, Arc::clone(&authenticators), issued))
        }
        None => None,
    };
    let certificates =
        Certificates::new(&args.ports.tls, &names, dispatcher.engine(), authority.clone(), &flags)?;
    tasks.spawn("distributed roots", follow_roots(certificates.roots(), store(Reason::Global)));
    let bundles = BundleKeeper::new(
        dispatcher.engine().clone(),
        revision.clone(),
        &flags,
        store(Reason::DependentResource),
    );
    tasks.spawn("SPIFFE bundles", bundles.run());
    let forecast = Arc::new(forecast.of_server(certificates.leaf()));
    forecast.register(&registry);
    tasks.spawn("certificate reminders", Forecast::clone(&forecast).remind());
    let mesh_settings = settings.settings().clone();
    let access = AccessKeeper::new(own, cluster.clone(), wanted, store(Reason::Secret));
    tasks.spawn("secret access", access.run());
    let pace = Pace::new(&flags);
    let quarantine = args.quarantine.unwrap_or_else(|| flags.get(CANOPUS_QUARANTINE));
    let quarantine = QuarantineController::new(Arc::clone(&dispatcher), quarantine);
    let mut applier = Applier {
        dispatcher: Arc::clone(&dispatcher),
        intake,
        metrics,
        pace,
        settings,
        quarantine,
        keeper,
        guards,
    };
    for update in restored {
        applier.apply(update, Stamp::now());
    }
    tasks.spawn("apply", applier.run(shutdown.register(Phase::Last, "apply")));

    let mut mesh = Mesh::new(Arc::clone(&dispatcher))
        .guarded(readiness.clone(), flags.request_limit())
        .recognising(Arc::clone(&authenticators))
        .forecasting(Arc::clone(&forecast))
        .traced(Arc::clone(&tracer));
    if flags.get(PILOT_MAX_REQUESTS_PER_SECOND) <= 0.0 {
        mesh = mesh.with_peer_allowance();
    }
    let admission = Admission {
        metrics: Arc::new(AdmissionMetrics::new(&registry)),
        tracer: Arc::clone(&tracer),
        injection,
    };
    let ports = Ports {
        args: &args.ports,
        grpc: Grpc::new(Arc::new(mesh), args.ports.options(&flags))
            .counting(CallMetrics::new(&registry))
            .issuing(issuing),
        certificates,
        served: http::Served {
            readiness: readiness.clone(),
            metrics: registry.clone(),
            debug: Arc::new(Debug::new(Arc::clone(&dispatcher)).with_forecast(forecast)),
            authenticator: authenticators,
            documents: IdentityDocuments { authority: authority.clone(), tokens: join_tokens },
        },
        admission,
        shutdown: &shutdown,
    };
    let opened = readiness.register("ports");
    ports.open_early().await?;
    // A proxy must never be told that a world nobody has read yet is an empty one, nor be sent to a port that is not open.
    tokio::select! {
        () = readiness.wait_for_others(&opened) => {
            ports.open(&tasks).await?;
            if let Some(cluster) = cluster {
                let controllers = Controllers {
                    cluster,
                    engine: dispatcher.engine().clone(),
                    revisions: revision,
                    settings: &mesh_settings,
                    authority,
                    registry: &registry,
                    tasks: &tasks,
                    shutdown: &shutdown,
                };
                controllers.start()?;
            }
            opened.ready();
            tracer.started(started);
        }
        () = shutdown.requested() => {}
    }

    let outcome = shutdown.run(args.ports.shutdown_duration).await;
    info!(?outcome, "stopped");
    if outcome.failed {
        bail!("{}", outcome.reason);
    }
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

/// The names that a cluster goes by: its own, and the aliases that stand for it.
fn names_of(cluster: &Arc<str>, aliases: &[String]) -> Vec<Arc<str>> {
    let pairs = aliases.iter().filter_map(|alias| alias.split_once('='));
    let own = pairs.filter(|(_, name)| name.trim() == &**cluster).map(|(alias, _)| Arc::from(alias.trim()));
    [Arc::clone(cluster)].into_iter().chain(own).collect()
}

/// The names the control plane is called by, for a certificate of its own.
fn certificate_names(settings: &MeshSettings, flags: &Flags) -> Vec<String> {
    let namespace = &settings.system_namespace;
    let mut services = vec!["istiod".to_owned(), "istiod-remote".to_owned(), "istio-pilot".to_owned()];
    if !matches!(&*settings.revision, "" | "default") {
        services.push(format!("istiod-{}", settings.revision));
    }
    let mut names: Vec<String> =
        services.iter().map(|service| format!("{service}.{namespace}.svc")).collect();
    let discovery = settings.mesh.default_config.as_ref().map(|config| config.discovery_address.as_str());
    let host = discovery.and_then(|address| address.rsplit_once(':')).map(|(host, _)| host.to_owned());
    names.extend(host);
    names.extend(flags.get(ISTIOD_CUSTOM_HOST).iter().cloned());
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

fn registry() -> Registry {
    let registry = Registry::new();
    metrics::register_process(&registry);
    metrics::register_build(&registry, "pilot", &BuildInfo::current());
    metrics::register_uptime(&registry);
    registry.family(PILOT_INFO).with([&BuildInfo::current().to_string()]).set(1.0);
    registry
}
