//! Charts from files.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use crate::value::{Elem, List, Map, MapKind, Str, Value};

/// A chart as its files describe it.
#[derive(Clone, Debug)]
pub struct Chart {
    name: String,
    /// `Chart.yaml`.
    about: Node,
    /// `values.yaml`.
    pub(super) values: Map,
    pub(super) templates: Vec<(String, Arc<str>)>,
    pub(super) files: Vec<(String, Str)>,
    pub(super) dependencies: Vec<Chart>,
    /// The dependencies that `Chart.yaml` names.
    pub(super) requirements: Vec<Requirement>,
}

/// A dependency as `Chart.yaml` names it.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    pub(super) name: String,
    pub(super) alias: String,
    pub(super) condition: String,
    pub(super) tags: Vec<String>,
}

/// Why a chart cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The chart has no `Chart.yaml`.
    #[error("chart {0:?}: Chart.yaml is missing; a chart's files are given by their path in its directory")]
    NoMetadata(String),
    /// A file is not what it should be.
    #[error("chart file {path}: {reason}")]
    BadFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The values for a dependency are no map.
    #[error("values for dependency {0}: a map is needed, since they become the dependency's own values")]
    NotATable(String),
    /// The values are too large.
    #[error(transparent)]
    Call(#[from] crate::CallError),
}

impl Chart {
    /// Reads a chart from its files, each named by its path in the chart's directory. Dependencies lie unpacked in `charts/`.
    pub fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, ChartError> {
        Self::build("", files.into_iter().collect())
    }

    fn build(place: &str, files: BTreeMap<String, Vec<u8>>) -> Result<Self, ChartError> {
        let mut about = None;
        let mut values = Map::new();
        let (mut templates, mut others) = (Vec::new(), Vec::new());
        let mut nested: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for (path, content) in files {
            let bad = |reason: String| ChartError::BadFile { path: format!("{place}{path}"), reason };
            if path == "Chart.yaml" {
                about = Some(
                    yaml::parse_one(&content, &Limits::default()).map_err(|error| bad(error.to_string()))?,
                );
            } else if path == "values.yaml" {
                let node =
                    yaml::parse_one(&content, &Limits::default()).map_err(|error| bad(error.to_string()))?;
                values = match Value::from(&node) {
                    Value::Nil => Map::new(),
                    Value::Map(map) => map,
                    _ => return Err(bad("the values are no map".to_owned())),
                };
            } else if matches!(path.as_str(), "values.schema.json" | "Chart.lock") {
                continue;
            } else if path.starts_with("templates/") {
                templates.push((path, String::from_utf8_lossy(&content).into()));
            } else if let Some(rest) = path.strip_prefix("charts/") {
                // Parity: what starts with an underscore or a dot is passed over.
                if let Some((name, rest)) =
                    rest.split_once('/').filter(|(name, _)| !name.starts_with(['_', '.']))
                {
                    nested.entry(name.to_owned()).or_default().insert(rest.to_owned(), content);
                }
            } else {
                others.push((path, Str::from(content)));
            }
        }
        let Some(about) = about else { return Err(ChartError::NoMetadata(place.to_owned())) };
        let dependencies = nested
            .into_iter()
            .map(|(name, files)| Self::build(&format!("{place}charts/{name}/"), files))
            .collect::<Result<_, _>>()?;
        let name = text(&about, "name");
        let requirements = requirements(&about, place)?;
        Ok(Self { name, about, values, templates, files: others, dependencies, requirements })
    }

    /// The texts of the custom resource definitions in `crds/`, by path, of dependencies too.
    pub fn definitions(&self) -> Vec<(String, String)> {
        let own = self.files.iter().filter(|(path, _)| path.starts_with("crds/") && path.ends_with(".yaml"));
        let mut found: Vec<_> = own.map(|(path, text)| (path.clone(), text.to_text().into_owned())).collect();
        found.extend(self.dependencies.iter().flat_map(Self::definitions));
        found.sort();
        found
    }

    /// The name, or the alias the chart is used under.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Whether the chart only has definitions for others.
    pub(super) fn is_library(&self) -> bool {
        text(&self.about, "type").eq_ignore_ascii_case("library")
    }

    /// `.Chart`: the fields of `Chart.yaml` under the names that templates know them by.
    pub(super) fn metadata(&self, is_root: bool) -> Value {
        let field = |key: &str| Value::string(text(&self.about, key));
        let list = |key: &str| match self.about.get(key).map(Value::from) {
            Some(list @ Value::List(_)) => list,
            _ => Value::list([]),
        };
        let strings = |key: &str| match self.about.get(key).map(Value::from) {
            Some(Value::List(list)) => Value::List(List::typed(Elem::String, list.items().to_vec())),
            _ => Value::List(List::typed(Elem::String, Vec::new())),
        };
        let annotations = match self.about.get("annotations").map(Value::from) {
            Some(Value::Map(map)) => map.with_kind(MapKind::String),
            _ => Map::nil(MapKind::String),
        };
        let truth = |key: &str| self.about.get(key).and_then(Node::as_bool).unwrap_or_default();
        Value::map([
            ("APIVersion", field("apiVersion")),
            ("Annotations", Value::Map(annotations)),
            ("AppVersion", field("appVersion")),
            ("Condition", field("condition")),
            ("Dependencies", list("dependencies")),
            ("Deprecated", Value::Bool(truth("deprecated"))),
            ("Description", field("description")),
            ("Home", field("home")),
            ("Icon", field("icon")),
            ("IsRoot", Value::Bool(is_root)),
            ("Keywords", strings("keywords")),
            ("KubeVersion", field("kubeVersion")),
            ("Maintainers", list("maintainers")),
            ("Name", Value::string(self.name())),
            ("Sources", strings("sources")),
            ("Tags", field("tags")),
            ("Type", field("type")),
            ("Version", field("version")),
        ])
    }
}

fn text(node: &Node, key: &str) -> String {
    node.get(key).and_then(Node::as_str).unwrap_or_default().to_owned()
}

fn requirements(about: &Node, place: &str) -> Result<Vec<Requirement>, ChartError> {
    let listed = about.get("dependencies").and_then(Node::as_list).unwrap_or_default();
    let read = |node: &Node| {
        if node.get("import-values").is_some() {
            let reason = "import-values is not supported; set the parent's values instead".to_owned();
            return Err(ChartError::BadFile { path: format!("{place}Chart.yaml"), reason });
        }
        let tags = node.get("tags").and_then(Node::as_list).unwrap_or_default();
        Ok(Requirement {
            name: text(node, "name"),
            alias: text(node, "alias"),
            condition: text(node, "condition"),
            tags: tags.iter().filter_map(Node::as_str).map(str::to_owned).collect(),
        })
    };
    listed.iter().map(read).collect()
}
