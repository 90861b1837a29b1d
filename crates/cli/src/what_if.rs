//! `canopus what-if`: what a change of objects changes at which proxies, before it is made.
//!
//! Two ways lead to the same account (`canopus_envoy::impact`): files are generated from twice, and a running control plane
//! tries the change out on a fork of its world.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::bail;
use bytes::Bytes;
use canopus_api::validate;
use canopus_envoy::bundle::Bundle;
use canopus_envoy::impact::Impact;
use canopus_mesh::world::Origin;
use clap::ValueEnum;
use serde_json::{Value, json};

use self::report::Report;
use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::files::{self, FileArguments, MeshArguments};
use crate::global::Global;
use crate::offline::OfflineMesh;
use crate::output::{print, say};
use crate::progress;
use crate::wait;

/// Print what a change would change: which proxies, resources and fields, how many bytes, which listeners would drain, which
/// requests would take another way.
///
/// The change is tried out, nothing is written. Without --config it is a running control plane that tries it out, on the
/// objects that it has and for the proxies that are connected to it. With --config the mesh is what the files say, and the
/// proxies are the sidecars of the pods in them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus what-if -f routes.yaml                            for the mesh of the current cluster
  canopus what-if -f routes.yaml --daemon http://localhost:8080
  canopus what-if --delete VirtualService/shop/cart
  canopus what-if -f routes.yaml --config mesh/
  canopus what-if -f routes.yaml --config mesh/ -o markdown >> \"$GITHUB_STEP_SUMMARY\"

Exit codes: 0 printed (with --exit-code: nothing changes), 1 something could not be read or generated, or an object would be
refused, 2 with --exit-code: something changes, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// File or directory of objects as they would be, or `-` for standard input; may be repeated.
    #[arg(short = 'f', long, value_name = "PATH", required_unless_present = "delete")]
    change: Vec<String>,
    /// An object that would be deleted, as `Kind/namespace/name`; may be repeated.
    #[arg(long, value_name = "OBJECT")]
    delete: Vec<String>,
    /// File or directory of the objects of the mesh as it is; may be repeated or separated by commas.
    #[arg(long, value_name = "PATH", value_delimiter = ',', conflicts_with = "daemon")]
    config: Vec<String>,
    #[command(flatten)]
    mesh: MeshArguments,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
    /// Exit with 2 if something changes.
    #[arg(long)]
    exit_code: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Yaml,
    Markdown,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let tried = match arguments.config.is_empty() {
        true => ask(global, kube, arguments),
        false => compare(global, arguments),
    };
    match tried {
        Ok(report) => {
            let text = match arguments.output {
                Format::Text => report.text(),
                Format::Json => format!("{:#}\n", report.json()),
                Format::Yaml => crate::format::Output::Yaml.render(&report.json(), |_| String::new()),
                Format::Markdown => report.markdown(),
            };
            let changes = arguments.exit_code && report.impact.changed_proxies > 0;
            let code = match (report.refused.is_empty(), changes) {
                (false, _) => exit::FAILURE,
                (true, true) => ExitCode::from(2),
                (true, false) => ExitCode::SUCCESS,
            };
            print(&text, code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// Asks a running control plane, or all of them: each knows the proxies that are connected to it.
fn ask(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<Report> {
    let (objects, passed_over) = files::read_objects(global, &arguments.change)?;
    for name in &arguments.delete {
        wait::object_key(name)?;
    }
    let plane = arguments.control_plane.connect(global, kube)?;
    let items: Vec<Value> = objects.iter().map(|object| object.to_node().to_json()).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let deleted = arguments.delete.join(",");
    let answers =
        plane.send_each("/debug/what_if", &[("delete", deleted.as_str())], &Bytes::from(list.to_string()))?;
    let mut report = Report::default();
    report.notices.extend(passed_over);
    for answer in answers {
        report = report.merge(serde_json::from_value(answer)?);
    }
    Ok(report)
}

/// Generates for files, without the change and with it.
fn compare(global: &Global, arguments: &Arguments) -> anyhow::Result<Report> {
    let _slow = progress::slow("generating");
    let (objects, passed_over) = files::read_objects(global, &arguments.change)?;
    let before = FileArguments { config: arguments.config.clone(), mesh: arguments.mesh.clone() };
    let mut changed = before.clone();
    changed.config.extend(arguments.change.iter().cloned());
    let before = OfflineMesh::read(global, &before)?;
    let after = OfflineMesh::read(global, &changed)?;
    for name in &arguments.delete {
        let origin = Origin::new(arguments.mesh.cluster.as_str(), wait::object_key(name)?);
        if !after.remove(&origin) {
            bail!("{name}: the files have no such object");
        }
    }
    if let Some(problem) = after.problems().first() {
        bail!("{problem}");
    }
    let known: BTreeSet<String> = before.pods().into_iter().collect();
    let kept = after.pods();
    let gone = known.iter().filter(|pod| arguments.delete.iter().any(|name| is_pod(name, pod)));
    let gone: BTreeSet<&String> = gone.collect();
    let mut proxies = Vec::new();
    for pod in kept.into_iter().filter(|pod| !gone.contains(pod)) {
        let old = if known.contains(&pod) { before.bundle(global, &pod)? } else { Bundle::default() };
        let new = after.bundle(global, &pod)?;
        proxies.push((pod, old.differences(&new)));
    }
    let mut report = Report { impact: Impact::new(proxies), notices: passed_over, ..Report::default() };
    for object in &objects {
        let faults = validate::validate(object);
        report.refused.extend(faults.errors.iter().map(|fault| match fault.path.as_str() {
            "" => format!("{}: {fault}", object.key()),
            path => format!("{}: {path}: {fault}", object.key()),
        }));
    }
    Ok(report)
}

/// Whether `Pod/shop/web-1` names the pod `web-1.shop`.
fn is_pod(object: &str, pod: &str) -> bool {
    let parts: Vec<&str> = object.split('/').collect();
    matches!(parts[..], ["Pod", namespace, name] if pod == format!("{name}.{namespace}"))
}

/// The account of an impact that a control plane has told, for people.
pub(crate) fn impact_text(impact: &Value) -> String {
    let impact = serde_json::from_value(impact.clone()).unwrap_or_default();
    Report { impact, ..Report::default() }.text()
}

/// The first names of many.
fn names(all: &[String], shown: usize) -> String {
    let named = all.iter().take(shown).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(shown) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Counts by key, in the order of the keys.
fn counted<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    words.fold(BTreeMap::new(), |mut counts, word| {
        *counts.entry(word).or_insert(0) += 1;
        counts
    })
}
