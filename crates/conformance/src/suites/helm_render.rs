//! Charts rendered with values, as Helm renders them.

use std::path::Path;

use anyhow::Context;
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_install::{ChartRelease, load_chart};
use serde_json::{Value as Json, json};

use super::Suite;
use super::rendered;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;

pub(super) struct HelmRender;

impl Suite for HelmRender {
    fn name(&self) -> &str {
        "helm-render"
    }

    fn run(&self, case: &Case, dump: &Dump) -> Outcome {
        compare(case, dump).into()
    }
}

fn compare(case: &Case, _: &Dump) -> anyhow::Result<Vec<Difference>> {
    let text = |key: &str| case.text(key).with_context(|| format!("no {key}"));
    // The entry names the file and goes on to say what is in it.
    let input = text("values")?.split_whitespace().next().unwrap_or_default();
    let document = case.corpus.document(&case.path(input))?;
    let values = document.pointer("/spec/values").map_or_else(|| json!({}), Node::to_json);
    let chart = load_chart(&case.corpus.absolute(Path::new(text("chart")?)))?;
    let version =
        case.shared.pointer("/defaults/kubeVersion").and_then(Node::as_str).context("no version")?;
    let release = ChartRelease {
        kubernetes_version: version.to_owned(),
        is_upgrade: case.entry.get("isUpgrade").and_then(Node::as_bool).unwrap_or_default(),
        ..ChartRelease::new(text("releaseName")?, text("namespace")?)
    };
    let values = if values.is_null() { json!({}) } else { values };
    let mut objects: Vec<Json> = Vec::new();
    for (path, text) in release.render(&chart, &values)? {
        if path.ends_with(".txt") {
            continue;
        }
        for document in yaml::parse_all(&text, &Limits::default()) {
            objects.push(document.with_context(|| path.clone())?.node.to_json());
        }
    }
    let golden = case.corpus.documents(&case.path(text("golden")?))?;
    rendered::difference(golden, objects, case.text("diffSelect"))
}
