//! Scenario files: objects, a proxy, and the excerpt of its configuration that matters.
//!
//! A scenario is one YAML file that reads like an example in documentation. The first document describes the proxy and what
//! to show, the following ones are the objects of the mesh, and the part after `--- # expected` is generated:
//!
//! ```yaml
//! # Requests with the header go to the canary subset.
//! proxy: {namespace: shop, labels: {app: web}}
//! show:
//! - rds 80 virtualHosts[name=cart.shop.svc.cluster.local:80].routes[*]{match,route}
//! ---
//! {apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {ports: [{name: http, port: 80}]}}
//! --- # expected
//! rds 80 virtualHosts[name=cart.shop.svc.cluster.local:80].routes[*]{match,route}:
//! - match: …
//! ```
//!
//! [`check_all`] compares every scenario below a directory with what a generator returns. With `UPDATE_GOLDENS=1` it writes
//! the expected part instead, so that a change of meaning shows as a diff in review.
//!
//! Used by tests only. Does not know what generates resources: the caller passes that in.

mod excerpt;
mod proxy;
mod scenario;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use canopus_base::tree::{Map, Node, Value};
use canopus_base::yaml;
use canopus_engine::{Engine, Snapshot};
use canopus_mesh::proxy::Proxy;
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json;
use canopus_proto::resource::Resource;

use excerpt::Excerpt;
use scenario::Scenario;

/// What can be shown under one short name, such as `lds`.
pub struct Shown {
    kind: &'static str,
    content: Content,
}

enum Content {
    /// Encoded messages of one type.
    Messages(&'static str, Vec<Resource>),
    /// Documents by name.
    Documents(Vec<(String, Node)>),
}

impl Shown {
    /// The resources of one type, whose messages have this full name.
    pub fn resources(kind: &'static str, message: &'static str, resources: Vec<Resource>) -> Self {
        Self { kind, content: Content::Messages(message, resources) }
    }

    /// Documents by name.
    pub fn documents(kind: &'static str, documents: Vec<(String, Node)>) -> Self {
        Self { kind, content: Content::Documents(documents) }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.content {
            Content::Messages(_, resources) => {
                resources.iter().map(|resource| resource.name.to_string()).collect()
            }
            Content::Documents(documents) => documents.iter().map(|(name, _)| name.clone()).collect(),
        };
        names.sort();
        names
    }

    /// The document of this name; null if there is none.
    fn find(&self, name: &str) -> anyhow::Result<Node> {
        match &self.content {
            Content::Messages(message, resources) => {
                let found = resources.iter().find(|resource| *resource.name == *name);
                let Some(resource) = found else { return Ok(Node::default()) };
                let descriptor = descriptors::message(message).context("a message without a descriptor")?;
                let message = DynamicMessage::decode(descriptor, resource.body.clone())?;
                Ok(json::write_dynamic(&message))
            }
            Content::Documents(documents) => {
                let found = documents.iter().find(|(own, _)| own == name);
                Ok(found.map(|(_, document)| document.clone()).unwrap_or_default())
            }
        }
    }
}

/// What a generator gets: the mesh of a scenario and its proxy.
pub struct Subject {
    /// The engine that has the objects and settings.
    pub engine: Engine,
    /// The mesh.
    pub mesh: Snapshot,
    /// The proxy.
    pub proxy: Proxy,
    /// The listeners that a proxyless client asks for.
    pub listeners: Vec<String>,
}

/// Generates what can be shown of a scenario.
pub type Generator = fn(&Subject) -> anyhow::Result<Vec<Shown>>;

/// Checks all scenarios below a directory, or updates them if `UPDATE_GOLDENS` is set. Returns how many there are.
pub fn check_all(directory: &Path, generate: Generator) -> anyhow::Result<usize> {
    #[expect(clippy::disallowed_methods, reason = "a switch of tests alone")]
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let mut files = Vec::new();
    scenario_files(directory, &mut files)?;
    files.sort();
    let mut differences = Vec::new();
    for file in &files {
        let name = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(name)?;
        let scenario = Scenario::parse(&text).with_context(name)?;
        let generated = expected(&scenario, generate).with_context(name)?;
        if generated == scenario.expected {
            continue;
        }
        if update {
            fs::write(file, scenario.with_expected(&generated)).with_context(name)?;
        } else {
            differences.push(format!("{}:\n{}", name(), difference(&scenario.expected, &generated)));
        }
    }
    ensure!(
        differences.is_empty(),
        "{} of {} scenarios differ. Review the differences; UPDATE_GOLDENS=1 writes what is generated.\n{}",
        differences.len(),
        files.len(),
        differences.join("\n")
    );
    Ok(files.len())
}

fn scenario_files(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            scenario_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}

/// The expected part of a scenario: every excerpt under its label, which is its text unless the scenario names another.
fn expected(scenario: &Scenario, generate: Generator) -> anyhow::Result<String> {
    let generated = generate(&scenario.subject()?)?;
    let mut shown = Map::new();
    for (label, text) in &scenario.show {
        let excerpt = Excerpt::parse(text).with_context(|| format!("show: {text}"))?;
        let found = generated.iter().find(|shown| shown.kind == excerpt.kind);
        let found = found.with_context(|| format!("show: {text}: nothing is called {}", excerpt.kind))?;
        shown.insert(label, cut_out(found, &excerpt)?);
    }
    Ok(yaml::node_to_string(&Value::Map(shown).into()))
}

fn cut_out(shown: &Shown, excerpt: &Excerpt) -> anyhow::Result<Node> {
    let Some(name) = &excerpt.name else {
        let names = shown.names().into_iter().map(|name| Value::from(name).into());
        return Ok(Value::List(names.collect()).into());
    };
    Ok(excerpt.apply(&shown.find(name)?))
}

/// The lines around the first difference of two texts.
fn difference(expected: &str, generated: &str) -> String {
    const SHOWN: usize = 12;
    let same = expected.lines().zip(generated.lines()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(3);
    let lines = |text: &str, sign: char| {
        let lines = text.lines().skip(from).take(SHOWN);
        lines.map(|line| format!("  {sign} {line}\n")).collect::<String>()
    };
    format!(
        "  from line {} of the expected part:\n{}{}",
        from + 1,
        lines(expected, '-'),
        lines(generated, '+')
    )
}
