//! Istio's analyzers: objects in, messages out, compared by code and object.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use canopus_analysis::world::{HOME_CLUSTER, Parsed, read_text};
use canopus_analysis::{Selection, World, analyze};
use canopus_api::mesh_config;
use canopus_base::tree::Node;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;

const DEFAULT_OBJECTS: &str = "default-resources.yaml";

pub(super) struct Analyzers;

impl Suite for Analyzers {
    fn name(&self) -> &str {
        "analyzers"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let mut world =
        World::new(mesh_config::default_mesh_config(), mesh_config::default_networks(), "istio-system");
    if let Some(file) = case.text("meshConfigFile") {
        let text = text(case, file)?;
        world.mesh_config = mesh_config::apply(&text, &mesh_config::default_mesh_config())?.value;
    }
    if let Some(file) = case.text("meshNetworksFile") {
        world.mesh_networks = mesh_config::read_networks(&text(case, file)?)?.value;
    }
    if case.entry.get("cluster1").is_some() {
        for cluster in ["cluster1", "cluster2"] {
            for file in files(case, cluster) {
                add(case, file, cluster, &mut world)?;
            }
        }
    } else {
        add(case, DEFAULT_OBJECTS, HOME_CLUSTER, &mut world)?;
        for file in files(case, "inputFiles") {
            add(case, file, HOME_CLUSTER, &mut world)?;
        }
    }
    let analyzer = case.text("analyzer").context("no analyzer")?;
    let analyzer = analyzer.split(' ').next().unwrap_or_default();
    let selection = Selection { analyzers: vec![analyzer.to_owned()], ..Selection::default() };
    let outcome = analyze(&world, &selection, |_| true);
    if outcome.chosen != [analyzer] {
        bail!("there is no analyzer {analyzer}");
    }
    let found = outcome.messages.iter().map(|message| {
        let object = message.origin.as_ref().map(|origin| origin.friendly_name()).unwrap_or_default();
        format!("{} {object}", message.code)
    });
    let expected = case.entry.get("expected").and_then(Node::as_list).unwrap_or_default();
    let expected = expected.iter().map(|message| {
        let text = |key: &str| message.get(key).and_then(Node::as_str).unwrap_or_default();
        format!("{} {}", text("code"), text("resource"))
    });
    let (expected, found) = (counted(expected), counted(found));
    let all: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let times = |counts: &BTreeMap<String, usize>, key: &String| counts.get(key).copied().unwrap_or_default();
    Ok(all
        .into_iter()
        .filter(|key| times(&expected, key) != times(&found, key))
        .map(|key| Difference::new(key, times(&expected, key), times(&found, key)))
        .collect())
}

fn counted(messages: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    messages.for_each(|message| *counts.entry(message).or_default() += 1);
    counts
}

fn files<'a>(case: &'a Case, key: &str) -> impl Iterator<Item = &'a str> {
    let files = case.entry.get(key).and_then(Node::as_list).unwrap_or_default();
    files.iter().filter_map(Node::as_str)
}

fn text(case: &Case, file: &str) -> anyhow::Result<String> {
    String::from_utf8(case.corpus.bytes(&case.path(file))?).with_context(|| format!("{file} is no text"))
}

fn add(case: &Case, file: impl AsRef<Path>, cluster: &str, world: &mut World) -> anyhow::Result<()> {
    let file = file.as_ref().to_string_lossy();
    for parsed in read_text(&file, text(case, &file)?.as_bytes(), "", &Arc::from(cluster), |_| true) {
        match parsed {
            Parsed::Resource(resource) => world.insert(*resource),
            Parsed::Skipped => {}
            Parsed::Broken { document, error } => bail!("{file}[{document}]: {error}"),
        }
    }
    Ok(())
}
