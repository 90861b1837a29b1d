//! From a merged IstioOperator to objects.

use canopus_base::yaml;
use serde_json::Value as Json;

use crate::component::{COMPONENTS, Component, Instance};
use crate::manifest::Manifest;
use crate::package::{ChartRelease, OLDEST_KUBERNETES, Package};
use crate::tree;
use crate::{Error, Operator, post_process, validate};

/// What an installation amounts to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// The objects, in the order they are applied in.
    pub manifests: Vec<Manifest>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The name that all charts are released under.
const RELEASE: &str = "istio";

/// Renders an installation. With `force`, what is wrong with the configuration is a warning.
pub fn generate(
    package: &Package,
    operator: &Operator,
    force: bool,
    kubernetes_version: Option<&str>,
) -> Result<Generated, Error> {
    let checked = validate::check(operator);
    let mut warnings = checked.warnings;
    if !checked.errors.is_empty() {
        if !force {
            return Err(Error::Invalid(checked.errors));
        }
        let errors = checked.errors.join(", ");
        warnings.push(format!("spec invalid; continuing because of --force: {errors}"));
    }
    let operator = with_unvalidated(operator);
    let mut manifests = Vec::new();
    for component in &COMPONENTS {
        for instance in component.instances(&operator)? {
            let rendered = render(package, &operator, component, &instance, kubernetes_version)?;
            warnings.extend(rendered.warnings);
            let patched = post_process::apply(component, &instance, rendered.manifests, &rendered.values)?;
            warnings.extend(patched.warnings);
            let named = |manifest| Manifest { component: component.name, ..manifest };
            manifests.extend(patched.manifests.into_iter().map(named));
        }
    }
    Manifest::sort(&mut manifests);
    Ok(Generated { manifests, warnings })
}

/// The operator with the values that nobody checks.
pub(crate) fn with_unvalidated(operator: &Operator) -> Operator {
    let mut operator = operator.clone();
    if let Some(values @ Json::Object(_)) = tree::get(&operator.tree, "spec.unvalidatedValues").cloned() {
        tree::merge(&mut operator.tree, tree::nested(values, &["spec", "values"]));
    }
    operator
}

/// What a chart made of an instance.
pub(crate) struct Rendered {
    pub(crate) values: Json,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn render(
    package: &Package,
    operator: &Operator,
    component: &Component,
    instance: &Instance,
    kubernetes_version: Option<&str>,
) -> Result<Rendered, Error> {
    let values = package.values_for(component, component.values(instance, operator)?);
    let chart = package.chart(component.chart)?;
    let release = ChartRelease {
        kubernetes_version: kubernetes_version.unwrap_or(OLDEST_KUBERNETES).to_owned(),
        ..ChartRelease::new(RELEASE, &instance.namespace)
    };
    let files = release
        .render(&chart, &values)
        .map_err(|error| Error::Chart { chart: component.chart.to_owned(), error: Box::new(error) })?;
    let mut rendered = Rendered { values, manifests: Vec::new(), warnings: Vec::new() };
    for (path, text) in files {
        if path.ends_with(".txt") {
            let warnings = text.lines().filter_map(|line| line.strip_prefix("WARNING: "));
            rendered.warnings.extend(warnings.map(str::to_owned));
        } else {
            rendered.manifests.extend(read(&path, &text)?);
        }
    }
    let wants_definitions = component.key != "base"
        || tree::get(rendered.values.as_object().unwrap_or(&tree::Tree::new()), "base.enableIstioConfigCRDs")
            != Some(&Json::Bool(false));
    for (path, text) in chart.definitions().into_iter().filter(|_| wants_definitions) {
        rendered.manifests.extend(read(&path, &text)?);
    }
    Ok(rendered)
}

fn read(path: &str, text: &str) -> Result<Vec<Manifest>, Error> {
    Manifest::read_all(text).map_err(|error: yaml::Error| Error::Syntax { file: path.to_owned(), error })
}
