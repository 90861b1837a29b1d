//! Our own definitions of Istio's kinds, made from the registry of kinds and the protobuf descriptors of their specs.
//!
//! What descriptors do not say (which fields are required, how long texts may be, the rules) stands in [`limits`], what
//! fields mean in [`words`]. A cluster with these definitions takes and refuses the same objects as one with Istio's.

mod columns;
mod kinds;
mod limits;
mod schema;
mod words;

#[cfg(test)]
mod tests;

use canopus_base::tree::{Map, Node, Value};
use canopus_base::yaml;

use crate::registry::Info;
use kinds::Definition;

/// The definitions of all of Istio's kinds, as documents for a cluster.
pub fn definitions() -> Vec<Node> {
    kinds::ALL.iter().map(document).collect()
}

/// A definition as a file of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the file: `virtualservices.networking.istio.io.yaml`.
    pub file: String,
    /// The manifest as YAML.
    pub text: String,
}

/// The definitions as files, for clusters that are set up without us.
pub fn manifests() -> Vec<Manifest> {
    let manifest = |definition: &Definition| Manifest {
        file: format!("{}.yaml", definition.kind.info().resource()),
        text: format!("{HEADER}{}", yaml::node_to_string(&document(definition))),
    };
    kinds::ALL.iter().map(manifest).collect()
}

const HEADER: &str = "# Made by `cargo xtask gen crds` from the registry of kinds. Do not edit.\n";

fn document(definition: &Definition) -> Node {
    let info = definition.kind.info();
    map([
        ("apiVersion", text("apiextensions.k8s.io/v1")),
        ("kind", text("CustomResourceDefinition")),
        ("metadata", metadata(definition, info)),
        ("spec", spec(definition, info)),
    ])
}

fn metadata(definition: &Definition, info: &Info) -> Node {
    // Charts, uninstallers and dashboards find Istio's definitions by these.
    let labels = [("app", "istio-pilot"), ("chart", "istio"), ("heritage", "Tiller"), ("release", "istio")];
    let labels = labels.into_iter().chain(definition.part_of.map(|part| ("istio", part)));
    map([
        ("annotations", map([("helm.sh/resource-policy", text("keep"))])),
        ("labels", map(labels.map(|(key, value)| (key, text(value))))),
        ("name", text(&info.resource())),
    ])
}

fn spec(definition: &Definition, info: &Info) -> Node {
    let group = info.group.replace('.', "-");
    let mut names = vec![
        ("categories", list(["istio-io", &group].map(text))),
        ("kind", text(info.kind)),
        ("listKind", text(&format!("{}List", info.kind))),
        ("plural", text(info.plural)),
        ("singular", text(&info.kind.to_ascii_lowercase())),
    ];
    if !info.short_names.is_empty() {
        names.push(("shortNames", list(info.short_names.iter().map(|name| text(name)))));
    }
    map([
        ("group", text(info.group)),
        ("names", map(names)),
        ("scope", text(if info.is_namespaced() { "Namespaced" } else { "Cluster" })),
        ("versions", list(info.versions.iter().map(|name| version(definition, info, name)))),
    ])
}

fn version(definition: &Definition, info: &Info, name: &str) -> Node {
    let mut version = vec![
        ("name", text(name)),
        ("schema", map([("openAPIV3Schema", schema::object(definition))])),
        ("served", Value::Bool(true).into()),
        ("storage", Value::Bool(name == definition.storage).into()),
        ("subresources", map([("status", map([]))])),
    ];
    if let Some(columns) = columns::printer_columns(info) {
        version.push(("additionalPrinterColumns", columns));
    }
    map(version)
}

fn text(text: &str) -> Node {
    Value::from(text).into()
}

fn int(int: i64) -> Node {
    Value::from(int).into()
}

fn list(items: impl IntoIterator<Item = Node>) -> Node {
    Value::List(items.into_iter().collect()).into()
}

fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Node)>) -> Node {
    Value::Map(entries.into_iter().collect::<Map>()).into()
}
