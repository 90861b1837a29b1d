//! The objects that are analyzed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::{DecodeError, Kind, Object, Options, Typed, annotations};
use canopus_base::labels::Labels;
use canopus_base::tree::{Limits, Node, Value};
use canopus_base::yaml;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks};

/// The cluster of objects that were read from files or from the control plane's own cluster.
pub const HOME_CLUSTER: &str = "default";

/// Namespaces that belong to the cluster itself. Istio never analyzes their objects.
const IGNORED_NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// The place of an object in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The file as the user named it.
    pub file: Arc<str>,
    /// The line the object starts on.
    pub line: u32,
}

/// What a message says of the object it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The kind's name.
    pub kind: &'static str,
    /// The namespace; empty if it has none.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The cluster it was read from.
    pub cluster: Arc<str>,
    /// Where it stands, if it was read from a file.
    pub reference: Option<Reference>,
    /// The codes that its own annotation suppresses, separated by commas.
    pub suppressed_codes: Box<str>,
}

impl Origin {
    /// `namespace/name`, or the name alone.
    pub fn full_name(&self) -> Cow<'_, str> {
        if self.namespace.is_empty() {
            Cow::Borrowed(&self.name)
        } else {
            Cow::Owned(format!("{}/{}", self.namespace, self.name))
        }
    }

    /// `Kind namespace/name`.
    pub fn friendly_name(&self) -> String {
        format!("{} {}", self.kind, self.full_name())
    }

    /// The namespace that decides whether the object is reported: a Namespace is in itself.
    pub fn reported_namespace(&self) -> &str {
        if self.kind == "Namespace" { &self.name } else { &self.namespace }
    }
}

/// An object, the document it was read from, and where that stands.
#[derive(Clone, Debug)]
pub struct Resource {
    /// What messages say of it.
    pub origin: Arc<Origin>,
    /// The object.
    pub object: Object,
    /// The document: typed objects of Kubernetes leave out what the mesh does not need.
    pub document: Node,
}

impl Resource {
    /// Decodes a document of a known kind. Objects that have to be in a namespace and name none are put in the default one.
    pub fn read(
        kind: Kind,
        mut document: Node,
        default_namespace: &str,
        cluster: &Arc<str>,
        reference: Option<Reference>,
    ) -> Result<Self, DecodeError> {
        let info = kind.info();
        if info.is_namespaced() {
            give_namespace(&mut document, default_namespace);
        }
        let object = Object::decode_as(kind, &document, Options::lenient())?.value;
        Ok(Self::new(object, document, cluster, reference))
    }

    /// An object that was decoded already. Of Kubernetes' own kinds its document has what the mesh needs.
    pub fn from_object(object: Object, cluster: &Arc<str>) -> Self {
        let document = object.to_node();
        Self::new(object, document, cluster, None)
    }

    fn new(object: Object, document: Node, cluster: &Arc<str>, reference: Option<Reference>) -> Self {
        let (info, meta) = (object.kind().info(), object.meta());
        let origin = Origin {
            kind: info.kind,
            namespace: if info.is_namespaced() { meta.namespace.clone() } else { Box::default() },
            name: meta.name.clone(),
            cluster: cluster.clone(),
            reference,
            suppressed_codes: meta.annotation(&annotations::ANALYZE_SUPPRESS).unwrap_or_default().into(),
        };
        Self { origin: Arc::new(origin), object, document }
    }

    /// The namespace; empty if it has none.
    pub fn namespace(&self) -> &str {
        &self.origin.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.origin.name
    }

    /// `namespace/name`, or the name alone.
    pub fn full_name(&self) -> Cow<'_, str> {
        self.origin.full_name()
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.object.meta().labels
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object.meta().annotation(key)
    }

    /// The value at a path of keys and indices.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.document, |node, step| match &node.value {
            Value::Map(map) => map.get(step),
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The line of a scalar at a path. Parity: Istio knows no lines of lists and mappings.
    pub fn line_of(&self, path: &[&str]) -> Option<u32> {
        let node = self.at(path)?;
        let is_scalar = !matches!(node.value, Value::Map(_) | Value::List(_));
        (is_scalar && node.at.is_known()).then_some(node.at.line)
    }
}

fn give_namespace(document: &mut Node, namespace: &str) {
    if namespace.is_empty() {
        return;
    }
    if let Some(metadata) = document.get_mut("metadata").and_then(Node::as_map_mut)
        && metadata.get("namespace").is_none_or(|given| given.is_null() || given.as_str() == Some(""))
    {
        metadata.insert("namespace", Value::from(namespace).into());
    }
}

/// What tells an object apart: kind, namespace, name and cluster.
type Position = (Kind, Box<str>, Box<str>, Arc<str>);

/// All that is analyzed together.
#[derive(Clone, Debug)]
pub struct World {
    /// The mesh configuration.
    pub mesh_config: MeshConfig,
    /// The networks of the mesh.
    pub mesh_networks: MeshNetworks,
    /// The namespace of the control plane.
    pub system_namespace: Box<str>,
    resources: BTreeMap<Kind, Vec<Arc<Resource>>>,
    positions: BTreeMap<Position, usize>,
}

impl World {
    /// A world without objects.
    pub fn new(mesh_config: MeshConfig, mesh_networks: MeshNetworks, system_namespace: &str) -> Self {
        Self {
            mesh_config,
            mesh_networks,
            system_namespace: system_namespace.into(),
            resources: BTreeMap::new(),
            positions: BTreeMap::new(),
        }
    }

    /// Adds an object. It takes the place of one with the same name in the same cluster.
    pub fn insert(&mut self, resource: Resource) {
        self.put(resource, true);
    }

    /// Adds an object unless one with the same name in the same cluster is there already.
    pub fn insert_if_absent(&mut self, resource: Resource) {
        self.put(resource, false);
    }

    fn put(&mut self, resource: Resource, replaces: bool) {
        if IGNORED_NAMESPACES.contains(&resource.origin.reported_namespace()) {
            return;
        }
        let kind = resource.object.kind();
        let origin = &resource.origin;
        let key = (kind, origin.namespace.clone(), origin.name.clone(), origin.cluster.clone());
        let resources = self.resources.entry(kind).or_default();
        match self.positions.get(&key) {
            Some(at) if replaces => resources[*at] = Arc::new(resource),
            Some(_) => {}
            None => {
                self.positions.insert(key, resources.len());
                resources.push(Arc::new(resource));
            }
        }
    }

    /// The objects of a kind, in the order they were added.
    pub fn objects_of_kind(&self, kind: Kind) -> &[Arc<Resource>] {
        self.resources.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// The typed objects of a kind.
    pub fn each<T: Typed>(&self) -> impl Iterator<Item = (&Arc<Resource>, &Arc<T>)> {
        self.objects_of_kind(T::KIND)
            .iter()
            .filter_map(|resource| Some((resource, T::downcast(&resource.object)?)))
    }

    /// The object of a kind with this name, in whichever cluster.
    pub fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Resource>> {
        let from = (kind, Box::from(namespace), Box::from(name), Arc::from(""));
        let (key, at) = self.positions.range(from..).next()?;
        (key.0 == kind && &*key.1 == namespace && &*key.2 == name).then(|| &self.objects_of_kind(kind)[*at])
    }

    /// The typed object with this name, in whichever cluster.
    pub fn get<T: Typed>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        T::downcast(&self.find(T::KIND, namespace, name)?.object)
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values().flatten()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }
}

/// What a document of a file turned out to be.
#[derive(Debug)]
pub enum Parsed {
    /// An object.
    Resource(Box<Resource>),
    /// An object of a kind that is not analyzed.
    Skipped,
    /// Why nothing could be read, and from which document of the file.
    Broken {
        /// The document's number, from 0.
        document: usize,
        /// The reason.
        error: String,
    },
}

/// Reads the objects of a text, those of lists one by one.
pub fn read_text(
    file: &str,
    text: &[u8],
    default_namespace: &str,
    cluster: &Arc<str>,
    counts: impl Fn(Kind) -> bool,
) -> Vec<Parsed> {
    let file: Arc<str> = file.into();
    let mut parsed = Vec::new();
    for document in yaml::parse_all(text, &Limits::default()) {
        let document = match document {
            Ok(document) => document,
            Err(error) => {
                parsed.push(Parsed::Broken { document: error.document, error: error.to_string() });
                continue;
            }
        };
        let line = start_line(&text[document.text_range.clone()], document.start.line);
        let is_list = document.node.get("kind").and_then(Node::as_str) == Some("List");
        let nodes = match document.node.get("items").and_then(Node::as_list) {
            Some(items) if is_list => items.to_vec(),
            _ => vec![document.node],
        };
        for node in nodes {
            let line = if is_list { node.at.line } else { line };
            let text = |key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default();
            let kind = match Kind::lookup(text("apiVersion"), text("kind")) {
                Ok(kind) if counts(kind) => kind,
                // Parity: old versions of kinds are read as the present one.
                Err(_)
                    if text("kind") == "CustomResourceDefinition"
                        && counts(Kind::CustomResourceDefinition) =>
                {
                    Kind::CustomResourceDefinition
                }
                _ => {
                    parsed.push(Parsed::Skipped);
                    continue;
                }
            };
            let reference = Some(Reference { file: file.clone(), line });
            parsed.push(match Resource::read(kind, node, default_namespace, cluster, reference) {
                Ok(resource) => Parsed::Resource(Box::new(resource)),
                Err(error) => Parsed::Broken { document: document.index, error: error.to_string() },
            });
        }
    }
    parsed
}

/// The line on which a document starts for Istio: the first that is neither blank nor a marker.
fn start_line(text: &[u8], first: u32) -> u32 {
    let lines = text.split(|byte| *byte == b'\n');
    let before = lines.take_while(|line| matches!(line.trim_ascii_end(), b"" | b"---")).count();
    first + u32::try_from(before).unwrap_or(0)
}
