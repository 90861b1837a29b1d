//! Sidecar injection in this process: where its configuration comes from, and what it knows of clusters.
//!
//! The configuration is that of files (`config` and `values` in a directory, as charts mount it) or, without them, of the
//! ConfigMap `istio-sidecar-injector`. A task builds an [`Injector`] of it whenever it or the mesh configuration changes;
//! one that cannot be used is reported, and the last good one stays. Answering only reads the current injector and the
//! objects that are known, so it works while the API server is away and does not wait for pushes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use canopus_admission::injection::webhook::{self, Surroundings};
use canopus_admission::injection::{Config, ConfigError, Injector, Values};
use canopus_api::kube::ConfigMap;
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_api::{Kind, Object, ObjectKey};
use canopus_controllers::Basis;
use canopus_engine::Engine;
use canopus_mesh::world::{ObjectIndex, Objects, Origin, Settings};
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use canopus_runtime::flags::{COMPLIANCE_POLICY, ENABLE_NATIVE_SIDECARS, Flags, INJECT_ENABLED, PLATFORM};
use canopus_runtime::ready::Readiness;
use tokio::sync::watch;
use tracing::{info, warn};

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(1);

/// Files that are larger are not read: the API server stores no ConfigMap of this size.
const MAX_FILE: u64 = 4 << 20;

/// Injects pods with the configuration that is in force.
pub struct Injection {
    current: ArcSwapOption<Injector>,
    /// Tells of new configurations; holds the current one too.
    changes: watch::Sender<Option<Arc<Injector>>>,
    engine: Engine,
    readiness: Readiness,
    cluster: Arc<str>,
    native: NativeSidecars,
    is_openshift: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NativeSidecars {
    On,
    Off,
    /// Where all nodes can run them.
    Auto,
}

impl Injection {
    /// Injects nothing until a configuration was read. None if injection is switched off.
    pub fn new(engine: Engine, readiness: Readiness, flags: &Flags) -> Option<Arc<Self>> {
        if !flags.get(INJECT_ENABLED) {
            return None;
        }
        let native = match flags.get(ENABLE_NATIVE_SIDECARS) {
            "true" => NativeSidecars::On,
            "auto" => NativeSidecars::Auto,
            _ => NativeSidecars::Off,
        };
        let cluster =
            engine.read::<Settings>(&()).map(|settings| Arc::clone(&settings.cluster)).unwrap_or_default();
        Some(Arc::new(Self {
            current: ArcSwapOption::empty(),
            changes: watch::Sender::new(None),
            engine,
            readiness,
            cluster,
            native,
            is_openshift: flags.get(PLATFORM) == "openshift",
        }))
    }

    /// Answers a request to the webhook.
    pub fn answer(&self, request: &webhook::Request<'_>) -> webhook::Answer {
        match &*self.current.load() {
            Some(injector) => webhook::answer(request, injector, self),
            None => webhook::unavailable(),
        }
    }

    /// The configuration in force, as it changes.
    pub(crate) fn injectors(&self) -> watch::Receiver<Option<Arc<Injector>>> {
        self.changes.subscribe()
    }

    /// The texts of the templates in force, by name.
    pub fn templates(&self) -> BTreeMap<String, String> {
        self.current.load().as_ref().map(|injector| injector.config.raw_templates.clone()).unwrap_or_default()
    }

    /// The kubelet's version on a node.
    fn kubelet(&self, node: &Origin) -> Option<String> {
        let object = self.engine.read::<Objects>(node)?;
        let Object::Node(node) = &*object else { return None };
        Some(node.status.node_info.kubelet_version.to_string())
    }

    /// Whether every node of a cluster can run native sidecars, or the one that is named.
    fn is_native(&self, cluster: &str, node: &str) -> bool {
        let cluster: Arc<str> = Arc::from(cluster);
        if !node.is_empty() {
            let origin = Origin::new(Arc::clone(&cluster), ObjectKey::new(Kind::Node, "", node));
            if let Some(kubelet) = self.kubelet(&origin) {
                return webhook::supports_native_sidecars(&kubelet);
            }
        }
        let nodes = self.engine.members::<Objects>(&ObjectIndex::InCluster(
            Kind::Node,
            Arc::clone(&cluster),
            "".into(),
        ));
        if nodes.is_empty() {
            // Nodes that were not read yet may be old, and every node runs ordinary containers.
            return cluster == self.cluster && self.readiness.is_ready();
        }
        let mut kubelets = nodes.iter().filter_map(|node| self.kubelet(node));
        kubelets.all(|kubelet| webhook::supports_native_sidecars(&kubelet))
    }
}

impl Surroundings for Injection {
    fn proxy_config(&self, mesh: &MeshConfig, target: ProxyTarget<'_>) -> Option<ProxyConfig> {
        let objects = self.engine.members::<Objects>(&ObjectIndex::Kind(Kind::ProxyConfig));
        if objects.is_empty() && target.annotation.is_none() {
            return None;
        }
        let objects: Vec<Arc<Object>> =
            objects.iter().filter_map(|origin| self.engine.read::<Objects>(origin)).collect();
        let configs = objects.iter().filter_map(|object| match &**object {
            Object::ProxyConfig(config) => Some(&**config),
            _ => None,
        });
        Some(mesh_config::effective_proxy_config(mesh, configs, target))
    }

    fn native_sidecars(&self, cluster: &str, node: &str) -> bool {
        match self.native {
            NativeSidecars::On => true,
            NativeSidecars::Off => false,
            NativeSidecars::Auto => self.is_native(cluster, node),
        }
    }

    fn namespace_annotations(&self, cluster: &str, namespace: &str) -> Option<BTreeMap<String, String>> {
        if !self.is_openshift {
            return None;
        }
        let origin = Origin::new(Arc::from(cluster), ObjectKey::new(Kind::Namespace, "", namespace));
        let object = self.engine.read::<Objects>(&origin);
        let annotations = object.as_ref().map(|object| &object.meta().annotations);
        let annotations = annotations.into_iter().flat_map(canopus_base::labels::Labels::iter);
        Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

/// What an injector is made of.
#[derive(Clone, PartialEq)]
struct Source {
    config: String,
    values: String,
    mesh: MeshConfig,
    revision: Arc<str>,
}

/// Keeps an injection's configuration current.
pub struct InjectionKeeper {
    injection: Arc<Injection>,
    directory: PathBuf,
    revision: watch::Receiver<u64>,
    variables: BTreeMap<String, String>,
    compliance_policy: String,
    /// What was read last, whether it can be used or not.
    seen: Option<Source>,
}

impl InjectionKeeper {
    /// Reads files of this directory, or the ConfigMap of the revision; looks again when the engine has another revision.
    pub fn new(
        injection: Arc<Injection>,
        directory: PathBuf,
        revision: watch::Receiver<u64>,
        flags: &Flags,
    ) -> Self {
        let variables = flags.prefixed("").map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let compliance_policy = flags.get(COMPLIANCE_POLICY).to_owned();
        Self { injection, directory, revision, variables, compliance_policy, seen: None }
    }

    /// Follows the configuration until the process ends.
    pub async fn run(&mut self) {
        loop {
            self.revision.borrow_and_update();
            let basis = self.basis();
            tokio::task::block_in_place(|| self.look());
            let mut poll = pin!(tokio::time::sleep(POLL));
            // Most revisions have nothing to do with injection.
            while basis == self.basis() {
                tokio::select! {
                    changed = self.revision.changed() => {
                        if changed.is_err() {
                            return;
                        }
                    }
                    () = &mut poll => break,
                }
            }
        }
    }

    /// What the configuration is made from, as far as the engine has it.
    fn basis(&self) -> Basis {
        let world = self.injection.engine.snapshot();
        let settings = world.read::<Settings>(&()).unwrap_or_default();
        let origin = self.config_map_origin(&settings.revision, &settings.system_namespace);
        Basis::default().and_input::<Settings>(&world, &()).and_input::<Objects>(&world, &origin)
    }

    /// Takes the configuration that is there now, if it is another one and can be used.
    fn look(&mut self) {
        let Some(source) = self.source() else { return };
        if self.seen.as_ref() == Some(&source) {
            return;
        }
        match self.build(&source) {
            Ok(injector) => {
                for warning in &injector.config.warnings {
                    warn!("injector configuration: {warning}");
                }
                info!(
                    templates = injector.config.raw_templates.len(),
                    "the injector has a new configuration"
                );
                let injector = Arc::new(injector);
                self.injection.current.store(Some(Arc::clone(&injector)));
                self.injection.changes.send_replace(Some(injector));
            }
            Err(error) => warn!("the injector keeps its configuration: {error}"),
        }
        self.seen = Some(source);
    }

    fn build(&self, source: &Source) -> Result<Injector, ConfigError> {
        let config = Config::read(&source.config, &self.variables)?;
        let values = Values::read(&source.values)?;
        let mut injector = Injector::new(config, values, source.mesh.clone(), &*source.revision);
        injector.compliance_policy.clone_from(&self.compliance_policy);
        Ok(injector)
    }

    fn source(&self) -> Option<Source> {
        let settings = self.injection.engine.read::<Settings>(&())?;
        let (config, values) = match (self.file("config"), self.file("values")) {
            (Some(config), Some(values)) => (config, values),
            _ => self.config_map(&settings.revision, &settings.system_namespace)?,
        };
        Some(Source { config, values, mesh: settings.mesh.clone(), revision: Arc::clone(&settings.revision) })
    }

    fn file(&self, name: &str) -> Option<String> {
        let path = self.directory.join(name);
        let size = fs::metadata(&path).ok()?.len();
        if size > MAX_FILE {
            warn!("{} is larger than {MAX_FILE} bytes and not read", path.display());
            return None;
        }
        fs::read_to_string(path).ok()
    }

    fn config_map_origin(&self, revision: &str, namespace: &str) -> Origin {
        let name = match revision {
            "" | "default" => "istio-sidecar-injector".to_owned(),
            revision => format!("istio-sidecar-injector-{revision}"),
        };
        let key = ObjectKey::new(Kind::ConfigMap, namespace, &name);
        Origin::new(Arc::clone(&self.injection.cluster), key)
    }

    fn config_map(&self, revision: &str, namespace: &str) -> Option<(String, String)> {
        let origin = self.config_map_origin(revision, namespace);
        let object = self.injection.engine.read::<Objects>(&origin)?;
        let map = object.get::<ConfigMap>()?;
        Some((map.spec.get("config")?.to_owned(), map.spec.get("values")?.to_owned()))
    }
}
