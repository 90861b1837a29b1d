//! `canopus experimental check-inject`: why a pod is injected or not.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_admission::selection::{self, Verdict};
use canopus_api::Kind;
use canopus_base::labels::Labels;
use canopus_base::labels::selector::{Operator, Selector};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use crate::cluster::{Cluster, KubeArguments, object_path};
use crate::exit;
use crate::global::Global;
use crate::input;
use crate::output::{print, say};
use crate::persona::Persona;
use crate::proxy_config::target;

/// Explain which webhooks inject a pod, and why the others do not.
///
/// The objects are read from the cluster, or from files: the MutatingWebhookConfigurations, the namespace, and the pod unless
/// labels are given.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl get mutatingwebhookconfigurations,namespaces,pods -A -o yaml > cluster.yaml
  canopus experimental check-inject -f cluster.yaml details-v1-fcff6c49c-kqnfk.shop
  canopus experimental check-inject -f cluster.yaml -n shop -l app=details,version=v1")]
pub(crate) struct Arguments {
    /// The pod: `name`, `name.namespace` or `pod/name`.
    pod: Option<String>,
    /// Labels of a pod that does not exist yet, separated by commas.
    #[arg(short, long, value_name = "KEY=VALUE,…")]
    labels: Option<String>,
    /// File with the objects of the cluster, or `-` for standard input; may be repeated.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    filenames: Vec<String>,
}

pub(crate) fn run(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> ExitCode {
    // Files are read for those who keep what it printed; a cluster is asked by those who look at it.
    let is_coloured = persona == Persona::Istioctl && arguments.filenames.is_empty();
    match explain(global, kube, arguments) {
        Ok(verdicts) => print(&table(&verdicts, is_coloured), ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn explain(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<Vec<Verdict>> {
    let default = if global.namespace.is_empty() { "default" } else { &global.namespace };
    let objects = if arguments.filenames.is_empty() {
        deciding_objects(&Cluster::connect(kube)?, arguments.pod.as_deref(), default)?
    } else {
        objects(&arguments.filenames)?
    };
    let (pod, namespace) = match (&arguments.pod, &arguments.labels) {
        (Some(_), Some(_)) | (None, None) => {
            bail!(
                "check-inject requires only [<resource-type>/]<resource-name>[.<namespace>], or specify labels flag"
            )
        }
        (None, Some(labels)) => (given_labels(labels)?, default),
        (Some(pod), None) => {
            let pod = pod.strip_prefix("pod/").unwrap_or(pod);
            let (name, namespace) = pod.rsplit_once('.').unwrap_or((pod, default));
            let found = find(&objects, "Pod", name, Some(namespace));
            let found = found.with_context(|| format!("pods {name:?} not found in namespace {namespace}"))?;
            (labels_of(found), namespace)
        }
    };
    let found = find(&objects, "Namespace", namespace, None);
    let found = found.with_context(|| format!("namespaces {namespace:?} not found"))?;
    let is_webhook = |object: &&Node| kind(object) == "MutatingWebhookConfiguration";
    let webhooks: Vec<Node> = objects.iter().filter(is_webhook).cloned().collect();
    Ok(selection::explain(&webhooks, &pod, &labels_of(found)))
}

/// The objects of a cluster that decide: its webhooks, the namespace, the pod.
fn deciding_objects(cluster: &Cluster, pod: Option<&str>, default: &str) -> anyhow::Result<Vec<Node>> {
    let mut objects = cluster.list(Kind::MutatingWebhookConfiguration, "")?;
    let (_, name, namespace) = target::split(pod.unwrap_or_default(), default);
    if !name.is_empty() {
        let found = cluster.get(&object_path(Kind::Pod, namespace, name))?;
        let found = found.with_context(|| {
            format!("failed retrieving: pods {name:?} not found in the {namespace:?} namespace")
        })?;
        objects.push(found);
    }
    objects.push(cluster.find(Kind::Namespace, "", namespace)?);
    Ok(objects)
}

/// All objects of the files, those of lists one by one.
fn objects(files: &[String]) -> anyhow::Result<Vec<Node>> {
    let mut objects = Vec::new();
    for input in input::find(files) {
        let bytes = input.read().map_err(anyhow::Error::msg)?;
        for document in yaml::parse_all(bytes, &Limits::default()) {
            let node = document.with_context(|| input.name())?.node;
            match node.get("items").and_then(Node::as_list) {
                Some(items) if kind(&node).ends_with("List") => objects.extend(items.iter().cloned()),
                _ => objects.push(node),
            }
        }
    }
    Ok(objects)
}

fn kind(object: &Node) -> &str {
    object.get("kind").and_then(Node::as_str).unwrap_or_default()
}

fn find<'a>(objects: &'a [Node], wanted: &str, name: &str, namespace: Option<&str>) -> Option<&'a Node> {
    let text = |object: &'a Node, pointer: &str| object.pointer(pointer).and_then(Node::as_str);
    objects.iter().find(|object| {
        kind(object) == wanted
            && text(object, "/metadata/name") == Some(name)
            && namespace.is_none_or(|namespace| text(object, "/metadata/namespace") == Some(namespace))
    })
}

fn labels_of(object: &Node) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Node::as_map);
    labels.into_iter().flatten().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect()
}

fn given_labels(text: &str) -> anyhow::Result<Labels> {
    let selector = Selector::parse(text).with_context(|| format!("--labels {text}"))?;
    let mut labels = Labels::new();
    for requirement in selector.requirements() {
        let value = requirement.values().next();
        let (Operator::Equals | Operator::DoubleEquals, Some(value)) = (requirement.operator(), value) else {
            bail!("--labels {text}: only key=value can be checked");
        };
        labels.insert(requirement.key(), value);
    }
    Ok(labels)
}

/// Parity: istioctl counts the bytes of a mark with its colour for the width of the column, and one for those of the mark.
const COLOURED_WIDTH: usize = 12;

fn table(verdicts: &[Verdict], is_coloured: bool) -> String {
    if verdicts.is_empty() {
        return "ERROR: no Istio injection hooks present.\n".to_owned();
    }
    let header = ["WEBHOOK", "REVISION", "INJECTED", "REASON"].map(str::to_owned);
    let rows = verdicts.iter().map(|verdict| {
        let mark = if verdict.injects { "✔" } else { "✘" };
        [verdict.webhook.clone(), verdict.revision.clone(), mark.to_owned(), verdict.reason.clone()]
    });
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let marks = if is_coloured { width(2).max(COLOURED_WIDTH) } else { width(2) };
    let (widths, padding) = ([width(0), width(1), marks], if is_coloured { 2 } else { 5 });
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            let spaces = " ".repeat(width - cell.chars().count() + padding);
            match cell.as_str() {
                "✔" if is_coloured => text.push_str(&format!("\u{1b}[32m{cell}\u{1b}[0m{spaces}")),
                "✘" if is_coloured => text.push_str(&format!("\u{1b}[31m{cell}\u{1b}[0m{spaces}")),
                _ => text.push_str(&format!("{cell}{spaces}")),
            }
        }
        text.push_str(&row[3]);
        text.push('\n');
    }
    if verdicts.iter().filter(|verdict| verdict.injects).count() > 1 {
        text.push_str("ERROR: multiple webhooks will inject, which can lead to errors\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_aligned_with_and_without_colour() {
        let verdict = |injects| Verdict {
            webhook: "hook".to_owned(),
            revision: "default".to_owned(),
            injects,
            reason: "why".to_owned(),
        };
        let plain = table(&[verdict(true)], false);
        assert_eq!(plain.lines().nth(1).unwrap(), "hook        default      ✔            why");
        let coloured = table(&[verdict(false)], true);
        let line = coloured.lines().nth(1).unwrap();
        assert_eq!(line, "hook     default   \u{1b}[31m✘\u{1b}[0m             why");
    }
}
