//! The world that files describe, for commands that look at one without a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use canopus_api::kube::Pod;
use canopus_api::registry::Category;
use canopus_api::{Kind, Object, Options, mesh_config};
use canopus_base::tree::{Limits, Node, Value};
use canopus_base::yaml;
use canopus_engine::Batch;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_runtime::flags::Flags;

use crate::global::Global;
use crate::input::{self, Input};

/// Where objects and settings are read from.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FileArguments {
    /// File or directory of objects, or `-` for standard input; may be repeated or separated by commas.
    #[arg(short = 'f', long = "config", value_name = "PATH", value_delimiter = ',', required = true)]
    pub(crate) config: Vec<String>,
    #[command(flatten)]
    pub(crate) mesh: MeshArguments,
}

/// What files of objects do not say of a mesh.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MeshArguments {
    /// Objects of another cluster, of which only Kubernetes' own kinds count; may be repeated.
    #[arg(long, value_name = "CLUSTER=PATH")]
    cluster_config: Vec<String>,
    /// Mesh configuration: the file itself, or the `istio` ConfigMap that holds it.
    #[arg(long, value_name = "FILE")]
    mesh_config: Option<PathBuf>,
    /// The networks of the mesh.
    #[arg(long, value_name = "FILE")]
    mesh_networks: Option<PathBuf>,
    /// A setting of the control plane's process, such as `PILOT_ENABLE_QUIC_LISTENERS=true`; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// The cluster of the objects.
    #[arg(long, value_name = "NAME", default_value = "Kubernetes")]
    pub(crate) cluster: String,
    /// DNS suffix of services.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    domain: String,
}

/// The objects and settings of the files.
pub(crate) struct LoadedMesh {
    /// All objects and settings as one batch for an engine.
    pub(crate) batch: Batch,
    /// The mesh-wide settings.
    pub(crate) settings: MeshSettings,
    /// The pods, with the clusters they are in.
    pub(crate) pods: Vec<(Arc<str>, Arc<Pod>)>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
}

/// Reads the files that the command line names. Objects that cannot be decoded are reported and left out.
pub(crate) fn read(global: &Global, arguments: &FileArguments) -> anyhow::Result<LoadedMesh> {
    let settings = settings(global, arguments)?;
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings.clone());
    let mut world = LoadedMesh { batch, settings, pods: Vec::new(), problems: Vec::new() };
    let mut reader = Reader { namespace: default_namespace(global), world: &mut world };
    for input in input::find(&arguments.config) {
        reader.read(&arguments.mesh.cluster, &input, |_| true);
    }
    for given in &arguments.mesh.cluster_config {
        let (cluster, path) = pair(given, "--cluster-config")?;
        for input in input::find(&[path.to_owned()]) {
            // Istio's objects are read from the control plane's own cluster only.
            reader.read(cluster, &input, |kind| kind.info().category == Category::Kubernetes);
        }
    }
    Ok(world)
}

/// The namespace of objects without one.
pub(crate) fn default_namespace(global: &Global) -> &str {
    if global.namespace.is_empty() { "default" } else { &global.namespace }
}

/// Splits `name=value`.
pub(crate) fn pair<'a>(text: &'a str, flag: &str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once('=').ok_or_else(|| anyhow!("{flag} {text:?}: expected NAME=VALUE"))
}

fn settings(global: &Global, arguments: &FileArguments) -> anyhow::Result<MeshSettings> {
    let environment = arguments.mesh.environment.iter().map(|given| pair(given, "--env"));
    let environment: BTreeMap<String, String> =
        environment.map(|pair| pair.map(|(k, v)| (k.to_owned(), v.to_owned()))).collect::<Result<_, _>>()?;
    let mut settings = MeshSettings {
        cluster: arguments.mesh.cluster.as_str().into(),
        domain: arguments.mesh.domain.as_str().into(),
        system_namespace: global.istio_namespace.as_str().into(),
        flags: Arc::new(Flags::read(&environment)),
        ..MeshSettings::default()
    };
    if let Some(file) = &arguments.mesh.mesh_config {
        let written = text(file)?;
        let (mesh, networks) = read_config_map(&written).unwrap_or((Some(written), None));
        if let Some(mesh) = mesh {
            let applied = mesh_config::apply_usable(&mesh, &settings.mesh);
            settings.mesh = applied.with_context(|| file.display().to_string())?.value;
        }
        if let Some(networks) = networks {
            let read = mesh_config::read_networks(&networks);
            settings.networks = read.with_context(|| format!("{}: meshNetworks", file.display()))?.value;
        }
    }
    if let Some(file) = &arguments.mesh.mesh_networks {
        let read = mesh_config::read_networks(&text(file)?);
        settings.networks = read.with_context(|| file.display().to_string())?.value;
    }
    Ok(settings)
}

fn text(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Mesh configuration and networks, if the text is a ConfigMap that holds them.
fn read_config_map(text: &str) -> Option<(Option<String>, Option<String>)> {
    let node = yaml::parse_one(text, &Limits::default()).ok()?;
    if node.get("kind").and_then(Node::as_str) != Some("ConfigMap") {
        return None;
    }
    let data = |key: &str| node.get("data")?.get(key)?.as_str().map(str::to_owned);
    Some((data("mesh"), data("meshNetworks")))
}

/// Reads objects that a control plane is to be asked about: each as it is written, in the namespace it would be in. What the
/// mesh does not read is named in the second list.
pub(crate) fn read_objects(global: &Global, paths: &[String]) -> anyhow::Result<(Vec<Object>, Vec<String>)> {
    let (mut read, mut passed_over, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for input in input::find(paths) {
        let name = input.name();
        let text = input.read().map_err(|message| anyhow!(message))?;
        for document in yaml::parse_all(&text, &Limits::default()) {
            let document = document.with_context(|| name.clone())?;
            for mut node in objects(document.node).into_iter().filter(|node| !node.is_null()) {
                let text = |key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
                let Ok(kind) = Kind::lookup(&text("apiVersion"), &text("kind")) else {
                    passed_over.push(format!(
                        "{name}: the mesh does not read {} {}",
                        text("apiVersion"),
                        text("kind")
                    ));
                    continue;
                };
                if kind.info().is_namespaced() {
                    give_namespace(&mut node, default_namespace(global));
                }
                match Object::decode_as(kind, &node, Options::strict()) {
                    Ok(decoded) => read.push(decoded.value),
                    Err(error) => problems.push(format!("{name}: {error}")),
                }
            }
        }
    }
    if !problems.is_empty() {
        bail!(problems.join("\n"));
    }
    Ok((read, passed_over))
}

fn give_namespace(node: &mut Node, namespace: &str) {
    let Some(Value::Map(metadata)) = node.get_mut("metadata").map(|metadata| &mut metadata.value) else {
        return;
    };
    if metadata.get("namespace").is_none_or(Node::is_null) {
        metadata.insert("namespace", Value::from(namespace).into());
    }
}

struct Reader<'a> {
    namespace: &'a str,
    world: &'a mut LoadedMesh,
}

impl Reader<'_> {
    fn read(&mut self, cluster: &str, input: &Input, counts: impl Fn(Kind) -> bool) {
        let text = match input.read() {
            Ok(text) => text,
            Err(message) => return self.world.problems.push(message),
        };
        for document in yaml::parse_all(&text, &Limits::default()) {
            match document {
                Ok(document) => {
                    for node in objects(document.node) {
                        if let Err(error) = self.object(cluster, node, &counts) {
                            self.world.problems.push(format!("{}: {error:#}", input.name()));
                        }
                    }
                }
                Err(error) => self.world.problems.push(format!("{}: {error}", input.name())),
            }
        }
    }

    fn object(&mut self, cluster: &str, mut node: Node, counts: impl Fn(Kind) -> bool) -> anyhow::Result<()> {
        if node.is_null() {
            return Ok(());
        }
        let text = |key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default();
        // Kinds that the mesh does not read are ignored.
        let Ok(kind) = Kind::lookup(text("apiVersion"), text("kind")) else { return Ok(()) };
        if !counts(kind) {
            return Ok(());
        }
        if kind.info().is_namespaced() {
            give_namespace(&mut node, self.namespace);
        }
        let object = match Object::decode_as(kind, &node, Options::lenient()) {
            Ok(decoded) => decoded.value,
            Err(error) => bail!(error),
        };
        if let Object::Pod(pod) = &object {
            self.world.pods.push((cluster.into(), pod.clone()));
        }
        self.world.batch.set::<Objects>(Origin::new(cluster, object.key()), object);
        Ok(())
    }
}

/// The objects of a document, which may be a list of them.
fn objects(node: Node) -> Vec<Node> {
    let is_list = node.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"));
    match node.get("items").and_then(Node::as_list) {
        Some(items) if is_list => items.to_vec(),
        _ => vec![node],
    }
}
