//! Which sources a process has, and how they are started.

mod remote;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_runtime::flags::{
    ENABLE_CLUSTER_TRUST_BUNDLE_API, Flags, ISTIO_WATCH_NAMESPACE, KUBERNETES_SERVICE_HOST,
    PILOT_IGNORE_RESOURCES, PILOT_INCLUDE_RESOURCES, POD_NAME, REVISION,
};
use canopus_runtime::ready::{Readiness, ReadyGuard};
use canopus_runtime::tasks::Tasks;
use canopus_sources::consul::{AgentOptions, Consul};
use canopus_sources::files::Files;
use canopus_sources::kubernetes::{
    Access, Cluster, Kubernetes, Options, RateLimit, RemoteRegistry, Selection, all_kinds, registry_kinds,
};
use canopus_sources::mcp::Mcp;
use canopus_sources::snapshot::{Keeper, Store};
use canopus_sources::{Intake, Source, SourceInfo, Update};
use clap::Args;
use tokio::sync::watch;
use tracing::{info, warn};

use self::upstream::Upstream;
use crate::served_config;

/// How names of sources begin that are files. They are on this machine already, so no snapshot is kept of them.
const FILES: &str = "files:";

/// The name of the source that a cluster is.
fn kubernetes_source_name(cluster: &str) -> String {
    format!("kubernetes:{cluster}")
}

/// Flags that say where objects come from. Names are pilot-discovery's, where it has them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sources")]
pub(crate) struct SourceArgs {
    /// Directory of YAML or JSON files (or one file) to read objects from; watched for changes. Istio's kinds are then read
    /// from there and not from Kubernetes.
    #[arg(long = "configDir", alias = "config", value_name = "PATH")]
    config_dir: Option<String>,
    /// Kubeconfig that leads to the API server; without, $KUBECONFIG, the pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Where services are registered, separated by commas: Kubernetes, Consul, or Mock for nowhere.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "Kubernetes")]
    registries: Vec<String>,
    /// Namespace of the Secrets that lead to remote clusters; without, that of the control plane.
    #[arg(long = "clusterRegistriesNamespace", value_name = "NAMESPACE")]
    cluster_registries_namespace: Option<String>,
    /// Requests to the Kubernetes API per second in the long run.
    #[arg(long = "kubernetesApiQPS", value_name = "NUMBER", default_value_t = 80.0)]
    kubernetes_api_qps: f64,
    /// Requests to the Kubernetes API at once.
    #[arg(long = "kubernetesApiBurst", value_name = "NUMBER", default_value_t = 160)]
    kubernetes_api_burst: u32,
    /// Address of the Consul agent; its token is $CONSUL_HTTP_TOKEN.
    #[arg(long = "consulserverURL", value_name = "URL", default_value = "http://127.0.0.1:8500")]
    consul_url: String,
    /// Directory to keep what was last read from Kubernetes and Consul in, to be served when they do not answer after a
    /// restart. Empty keeps nothing.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/canopus")]
    snapshot: String,
}

impl SourceArgs {
    /// The files that objects are read from, if there are any.
    pub(crate) fn configuration(&self) -> Option<PathBuf> {
        given(self.config_dir.as_ref()).map(PathBuf::from)
    }
}

/// The sources a process will have, in the order of their precedence.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    files: Vec<PathBuf>,
    upstreams: Vec<Upstream>,
    kubernetes: Option<(Access, BTreeSet<Kind>)>,
    consul: bool,
}

impl Plan {
    /// What flags, environment and mesh configuration add up to.
    pub(crate) fn new(args: &SourceArgs, flags: &Flags, mesh: &MeshConfig) -> anyhow::Result<Self> {
        let (mut from_kubernetes, consul) = registries(&args.registries)?;
        let mut kinds = if from_kubernetes { registry_kinds() } else { BTreeSet::new() };
        let configuration = ConfigSources::new(args, mesh)?;
        if configuration.kubernetes {
            kinds.extend(all_kinds().into_iter().filter(|kind| from_kubernetes || !is_registry(*kind)));
            from_kubernetes = true;
        }
        if from_kubernetes && flags.get(ENABLE_CLUSTER_TRUST_BUNDLE_API) {
            kinds.insert(Kind::ClusterTrustBundle);
        }
        ignore(&mut kinds, flags);
        let access = if from_kubernetes { access(args, flags)? } else { None };
        let ConfigSources { files, upstreams, .. } = configuration;
        match &access {
            None if files.is_empty() && upstreams.is_empty() && !consul => bail!(
                "there is nothing to read objects from: give a directory with --configDir, or a cluster with --kubeconfig"
            ),
            None if from_kubernetes => info!("no cluster is configured: objects come from elsewhere alone"),
            _ => {}
        }
        Ok(Self { files, upstreams, kubernetes: access.map(|access| (access, kinds)), consul })
    }

    /// Whether configuration is read from a cluster, where its statuses can be written.
    pub(crate) fn reads_configuration_from_cluster(&self) -> bool {
        self.kubernetes.as_ref().is_some_and(|(_, kinds)| kinds.contains(&Kind::ServiceEntry))
    }
}

/// Whether services are registered in Kubernetes, and in Consul.
fn registries(names: &[String]) -> anyhow::Result<(bool, bool)> {
    let (mut kubernetes, mut consul) = (false, false);
    for name in names {
        match name.trim() {
            "Kubernetes" => kubernetes = true,
            "Consul" => consul = true,
            "Mock" | "" => {}
            other => bail!("registry {other:?} is not known; there are Kubernetes, Consul and Mock"),
        }
    }
    Ok((kubernetes, consul))
}

/// Where configuration is read from.
#[derive(Debug, Default)]
struct ConfigSources {
    files: Vec<PathBuf>,
    upstreams: Vec<Upstream>,
    kubernetes: bool,
}

impl ConfigSources {
    /// What flags and mesh configuration name.
    ///
    /// Parity: what the mesh configuration names is all there is; else a directory takes the place of Kubernetes.
    fn new(args: &SourceArgs, mesh: &MeshConfig) -> anyhow::Result<Self> {
        if mesh.config_sources.is_empty() {
            let files: Vec<PathBuf> =
                given(args.config_dir.as_ref()).map(PathBuf::from).into_iter().collect();
            let kubernetes = files.is_empty();
            return Ok(Self { files, kubernetes, ..Self::default() });
        }
        let mut found = Self::default();
        for source in &mesh.config_sources {
            match source.address.split_once("://") {
                Some(("fs", path)) if !path.is_empty() => found.files.push(PathBuf::from(path)),
                Some(("k8s", _)) => found.kubernetes = true,
                Some(("xds", address)) => found.upstreams.push(Upstream::new(address, source)?),
                _ => bail!(
                    "configuration source {:?} of the mesh configuration is not supported; there are fs:///PATH, \
                     xds://HOST:PORT and k8s://",
                    source.address
                ),
            }
        }
        Ok(found)
    }
}

/// The kinds that other control planes are asked for: what configures a mesh.
fn served_kinds(flags: &Flags) -> BTreeSet<Kind> {
    let mut kinds: BTreeSet<Kind> =
        all_kinds().into_iter().filter(|kind| served_config::is_configuration(*kind)).collect();
    ignore(&mut kinds, flags);
    kinds
}

/// Whether objects of a kind say which services and workloads there are.
fn is_registry(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Pod | Kind::Node)
}

/// Leaves out what `PILOT_IGNORE_RESOURCES` says, of the kinds a cluster has to be taught.
fn ignore(kinds: &mut BTreeSet<Kind>, flags: &Flags) {
    let (ignored, included) = (flags.get(PILOT_IGNORE_RESOURCES), flags.get(PILOT_INCLUDE_RESOURCES));
    let named = |names: &[String], resource: &str| {
        names.iter().map(|name| name.trim()).any(|name| match name.strip_prefix("*.") {
            // Parity: any suffix will do, not only a whole group.
            Some(suffix) => resource.ends_with(suffix),
            None => resource == name,
        })
    };
    let defined = |kind: &Kind| !registry_kinds().contains(kind);
    kinds.retain(|kind| {
        let resource = kind.info().resource();
        !defined(kind) || !named(ignored, &resource) || named(included, &resource)
    });
}

/// The text of a flag; templates leave some empty.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// The way to the API server that is given, or that the surroundings suggest.
fn access(args: &SourceArgs, flags: &Flags) -> anyhow::Result<Option<Access>> {
    if let Some(path) = given(args.kubeconfig.as_ref()).map(PathBuf::from) {
        if !path.is_file() {
            bail!("kubeconfig {} is not a file", path.display());
        }
        return Ok(Some(Access::Kubeconfig(path)));
    }
    let variable = flags.variable("KUBECONFIG").unwrap_or_default();
    if let Some(path) = variable.split(':').map(Path::new).find(|path| path.is_file()) {
        return Ok(Some(Access::Kubeconfig(path.to_owned())));
    }
    if !flags.get(KUBERNETES_SERVICE_HOST).is_empty() {
        return Ok(Some(Access::Pod));
    }
    // With a directory, the current context of a user's kubeconfig is not meant.
    let home = flags.variable("HOME").filter(|_| given(args.config_dir.as_ref()).is_none());
    let path = home.map(|home| Path::new(home).join(".kube/config")).filter(|path| path.is_file());
    Ok(path.map(Access::Kubeconfig))
}

/// The sources of a process, under way.
pub(crate) struct Opened {
    /// Where they all lead to.
    pub(crate) intake: Intake,
    /// What was known before any of them has answered.
    pub(crate) restored: Vec<Update>,
    /// Keeps the snapshots, if there are any.
    pub(crate) keeper: Option<Keeper>,
    /// What the process is not ready without.
    pub(crate) guards: BTreeMap<Box<str>, ReadyGuard>,
    /// The API server, if there is one.
    pub(crate) cluster: Option<Cluster>,
    /// The remote clusters.
    pub(crate) remote: RemoteRegistry,
}

/// What sources are opened with.
pub(crate) struct Opener<'a> {
    /// The flags that say how.
    pub(crate) args: &'a SourceArgs,
    /// The environment.
    pub(crate) flags: &'a Flags,
    /// The cluster the objects of all of them belong to.
    pub(crate) cluster: &'a str,
    /// The namespace of the control plane.
    pub(crate) system_namespace: &'a str,
    /// The namespaces that are seen.
    pub(crate) selection: watch::Receiver<Selection>,
    /// Where to say what the process is not ready without.
    pub(crate) readiness: &'a Readiness,
    /// Where they run.
    pub(crate) tasks: &'a Tasks,
}

impl Opener<'_> {
    /// Starts the sources of a plan.
    pub(crate) async fn open(&self, plan: Plan) -> anyhow::Result<Opened> {
        let store = self.store();
        let mut opened = Opened {
            intake: Intake::new(),
            restored: Vec::new(),
            keeper: None,
            guards: BTreeMap::new(),
            cluster: None,
            remote: RemoteRegistry::default(),
        };
        for path in plan.files {
            self.start(Files::new(&path), &format!("{FILES}{}", path.display()), None, &mut opened);
        }
        for upstream in plan.upstreams {
            let name = format!("xds:{}", upstream.address);
            let pod = match self.flags.get(POD_NAME) {
                "" => "canopusd",
                name => name,
            };
            let node = upstream::introduction(self.cluster, self.system_namespace, pod);
            self.start(
                Mcp::new(upstream, node, served_kinds(self.flags)),
                &name,
                store.as_ref(),
                &mut opened,
            );
        }
        if let Some((access, kinds)) = plan.kubernetes {
            let cluster = self.connect(&access).await?;
            let source = self.kubernetes(cluster.clone(), kinds);
            self.start(source, &kubernetes_source_name(self.cluster), store.as_ref(), &mut opened);
            self.follow_remote_clusters(&cluster, store.as_ref(), &mut opened).await?;
            opened.cluster = Some(cluster);
        }
        if plan.consul {
            let token = self.flags.variable("CONSUL_HTTP_TOKEN").map(str::to_owned);
            let source = Consul::new(&AgentOptions { url: self.args.consul_url.clone(), token })?;
            let name = format!("consul:{}", self.args.consul_url);
            self.start(source, &name, store.as_ref(), &mut opened);
        }
        opened.keeper = store.map(|store| Keeper::new(store, |source| !source.name.starts_with(FILES)));
        Ok(opened)
    }

    async fn connect(&self, access: &Access) -> anyhow::Result<Cluster> {
        let limit = RateLimit { qps: self.args.kubernetes_api_qps, burst: self.args.kubernetes_api_burst };
        Cluster::connect(access, limit).await.context("cannot reach Kubernetes")
    }

    fn kubernetes(&self, cluster: Cluster, kinds: BTreeSet<Kind>) -> Kubernetes {
        let namespace = Some(self.flags.get(ISTIO_WATCH_NAMESPACE)).filter(|namespace| !namespace.is_empty());
        let options = Options {
            namespace: namespace.map(Box::from),
            revision: self.flags.get(REVISION).into(),
            selection: self.selection.clone(),
            ..Options::new(kinds)
        };
        Kubernetes::new(cluster, options)
    }

    /// Starts a source behind those that were started before, with what it had in an earlier life.
    fn start(&self, source: impl Source, name: &str, store: Option<&Store>, opened: &mut Opened) {
        let rank = u16::try_from(opened.guards.len()).unwrap_or(u16::MAX);
        let feed = opened.intake.feed(SourceInfo::new(name, self.cluster, rank));
        let info = Arc::clone(feed.source());
        opened.guards.insert(info.name.clone(), self.readiness.register(name));
        match store.map(|store| store.load(&info)) {
            Some(Ok(Some(saved))) => {
                info!(source = name, objects = saved.objects.len(), "restored from the snapshot");
                opened.restored.push(opened.intake.restore(&info, saved));
            }
            Some(Err(error)) => warn!(source = name, %error, "the snapshot cannot be used"),
            Some(Ok(None)) | None => {}
        }
        self.tasks.spawn(name, source.run(feed));
    }

    fn store(&self) -> Option<Store> {
        if self.args.snapshot.is_empty() {
            return None;
        }
        match Store::open(&self.args.snapshot) {
            Ok(store) => Some(store),
            Err(error) => {
                info!(%error, "no snapshot is kept");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
