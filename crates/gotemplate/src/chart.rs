//! Helm's engine: from a chart's files and values to manifests, as `helm template` gives them.
//!
//! A [`Chart`] is read from files in memory ([`Chart::from_files`]); [`render`] coalesces the values, drops dependencies that
//! conditions or tags switch off, renders every template and gives the manifests in the order Helm installs them.
//!
//! Left to the caller: unpacking archives, `.helmignore`, checking values against `values.schema.json`. `import-values` of
//! dependencies is refused.

mod coalesce;
mod dependencies;
mod load;
mod manifest;

use std::sync::Arc;

pub use load::{Chart, ChartError};
pub use manifest::Manifest;

use crate::error::{ParseError, RenderError};
use crate::exec::without_no_value;
use crate::helm::{self, Capabilities, Files};
use crate::limits::{Budget, Limits};
use crate::sprig;
use crate::template::{MissingKey, Templates};
use crate::value::{Functions, Map, MapKind, Value};

/// The release a chart is rendered for, and the world around it.
#[derive(Clone, Debug)]
pub struct Release {
    /// The name of the release.
    pub name: String,
    /// The namespace it goes to.
    pub namespace: String,
    /// Whether it replaces an earlier revision.
    pub is_upgrade: bool,
    /// The revision, from 1.
    pub revision: i64,
    /// What the cluster can do.
    pub capabilities: Capabilities,
    /// What templates may ask the machine for.
    pub options: sprig::Options,
    /// Bounds of the whole rendering.
    pub limits: Limits,
}

impl Release {
    /// The first revision of a release, on a cluster that nothing is known of.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            is_upgrade: false,
            revision: 1,
            capabilities: Capabilities::default(),
            options: sprig::Options::default(),
            limits: Limits::default(),
        }
    }
}

/// Why a chart could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The chart or its values do not fit together.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// A template is not well formed.
    #[error("parse error at ({}:{}): {}", .0.name, .0.line, .0.message)]
    Parse(#[from] ParseError),
    /// A template failed; `fail` and `required` speak for themselves.
    #[error("{}", .0.raised().map_or_else(|| .0.to_string(), |message| format!("execution error at ({}): {message}", .0.location())))]
    Render(#[from] RenderError),
    /// A rendered document is no YAML.
    #[error("YAML parse error on {path}: {error}")]
    Yaml {
        /// The template.
        path: String,
        /// What is wrong with it.
        error: canopus_base::yaml::Error,
    },
}

/// Renders a chart with the user's values.
pub fn render(chart: &Chart, values: &Value, release: &Release) -> Result<Vec<Manifest>, Error> {
    render_with(chart, values, release, |_| {})
}

/// Renders a chart with functions of the caller: they are added to Helm's, or replace them.
pub fn render_with(
    chart: &Chart,
    values: &Value,
    release: &Release,
    customize: impl FnOnce(&mut Functions),
) -> Result<Vec<Manifest>, Error> {
    manifest::sorted(rendered_files(chart, values, release, customize)?)
}

/// Renders the templates of a chart, notes included, and gives each one's text by its path under the chart's name.
pub fn render_files(
    chart: &Chart,
    values: &Value,
    release: &Release,
) -> Result<Vec<(String, String)>, Error> {
    rendered_files(chart, values, release, |_| {})
}

fn rendered_files(
    chart: &Chart,
    values: &Value,
    release: &Release,
    customize: impl FnOnce(&mut Functions),
) -> Result<Vec<(String, String)>, Error> {
    let budget = Budget::new(release.limits);
    let user = values.as_map().cloned().unwrap_or_default();
    let mut chart = chart.clone();
    dependencies::select(&budget, &mut chart, &user, "")?;
    dependencies::fold_values(&budget, &mut chart)?;
    let values = coalesce::coalesce(&budget, &chart, &coalesce::copy(&budget, &user)?, false)?;

    let mut functions = Functions::builtin();
    helm::add_to(&mut functions, &release.options);
    customize(&mut functions);
    let mut templates =
        Templates::new("gotpl", functions).with_missing_key(MissingKey::Zero).with_limits(release.limits);

    let mut pending = Vec::new();
    let scope =
        Scope { release: release_value(release), capabilities: Value::object(release.capabilities.clone()) };
    scope.collect(&chart, &values, "", &mut pending);
    // Templates nearer to the root come last, so that their definitions win.
    pending.sort_by(|a, b| (slashes(&b.path), &b.path).cmp(&(slashes(&a.path), &a.path)));
    for template in &pending {
        templates.parse(&template.path, &template.text)?;
    }
    let mut rendered = Vec::new();
    for template in pending {
        if template.is_partial() {
            continue;
        }
        let about = [("Name", template.path.as_str()), ("BasePath", &template.base_path)];
        let about: Map = about.into_iter().collect();
        template.dot.insert("Template", Value::Map(about.with_kind(VALUES)));
        let mut out = Vec::new();
        templates.render_into(&template.path, &Value::Map(template.dot.clone()), &budget, &mut out)?;
        let text = String::from_utf8_lossy(&without_no_value(out)).into_owned();
        rendered.push((template.path, text));
    }
    Ok(rendered)
}

/// The type of `.Values`.
const VALUES: MapKind = MapKind::Named("common.Values");

fn slashes(path: &str) -> usize {
    path.matches('/').count()
}

fn release_value(release: &Release) -> Value {
    Value::map([
        ("Name", Value::string(release.name.as_str())),
        ("Namespace", Value::string(release.namespace.as_str())),
        ("IsUpgrade", Value::Bool(release.is_upgrade)),
        ("IsInstall", Value::Bool(!release.is_upgrade)),
        ("Revision", Value::int(release.revision)),
        ("Service", Value::string("Helm")),
    ])
}

/// A template and the dot it is rendered with.
struct Pending {
    path: String,
    base_path: String,
    text: Arc<str>,
    dot: Map,
}

impl Pending {
    fn is_partial(&self) -> bool {
        self.path.rsplit('/').next().is_some_and(|name| name.starts_with('_'))
    }
}

/// What the templates of all charts see.
struct Scope {
    release: Value,
    capabilities: Value,
}

impl Scope {
    /// Gathers the templates of a chart and of its dependencies, each with its own values.
    fn collect(&self, chart: &Chart, values: &Map, parent: &str, pending: &mut Vec<Pending>) -> Map {
        let path = if parent.is_empty() {
            chart.name().to_owned()
        } else {
            format!("{parent}/charts/{}", chart.name())
        };
        let subcharts = Map::new();
        let files: Files = chart.files.iter().cloned().collect();
        let dot: Map = [
            ("Chart", chart.metadata(parent.is_empty())),
            ("Files", Value::object(files)),
            ("Release", self.release.clone()),
            ("Capabilities", self.capabilities.clone()),
            ("Values", Value::Map(values.clone().with_kind(VALUES))),
            ("Subcharts", Value::Map(subcharts.clone())),
        ]
        .into_iter()
        .collect();
        for dependency in &chart.dependencies {
            let own = values.get(dependency.name());
            let own = own.as_ref().and_then(Value::as_map).cloned().unwrap_or_default();
            let inner = self.collect(dependency, &own, &path, pending);
            subcharts.insert(dependency.name(), Value::Map(inner));
        }
        let library = chart.is_library();
        for (name, text) in &chart.templates {
            let template = Pending {
                path: format!("{path}/{name}"),
                base_path: format!("{path}/templates"),
                text: Arc::clone(text),
                dot: dot.clone(),
            };
            if !library || template.is_partial() {
                pending.push(template);
            }
        }
        dot
    }
}
