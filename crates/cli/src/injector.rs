//! `canopus experimental injector list`: who injects which namespaces.

use std::process::ExitCode;

use canopus_admission::selection;
use canopus_api::Kind;
use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use clap::{Args, Subcommand};

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::output::{print, say};
use crate::table::{aligned, row};

/// Look at the injectors of a cluster.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List injected namespaces with their injector, and the injectors.
    List,
}

pub(crate) fn run(kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let Command::List = arguments.command;
    match list(kube) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn list(kube: &KubeArguments) -> anyhow::Result<String> {
    let cluster = Cluster::connect(kube)?;
    let hooks = cluster.list(Kind::MutatingWebhookConfiguration, "")?;
    let hooks: Vec<Node> =
        hooks.into_iter().filter(|hook| label(hook, "app") == "sidecar-injector").collect();
    let pods = cluster.list(Kind::Pod, "")?;
    let mut namespaces = vec![row(["NAMESPACE", "ISTIO-REVISION", "POD-REVISIONS"])];
    for namespace in cluster.list(Kind::Namespace, "")? {
        let name = name_of(&namespace).unwrap_or_default();
        // A pod without labels of its own shows what the namespace alone decides.
        let verdicts = selection::explain(&hooks, &Labels::new(), &labels(&namespace));
        let Some(verdict) = verdicts.iter().find(|verdict| verdict.injects) else { continue };
        let own = pods
            .iter()
            .filter(|pod| pod.pointer("/metadata/namespace").and_then(Node::as_str) == Some(&name));
        let mut revisions: Vec<String> = own
            .map(|pod| {
                let revision =
                    pod.pointer("/metadata/annotations").and_then(|all| all.get("istio.io/rev")?.as_str());
                revision.map_or_else(|| "<non-Istio>".to_owned(), str::to_owned)
            })
            .collect();
        revisions.sort();
        revisions.dedup();
        let revisions = if revisions.is_empty() { "<no pods>".to_owned() } else { revisions.join(",") };
        namespaces.push(vec![name, verdict.revision.clone(), revisions]);
    }
    let mut injectors = vec![row(["NAMESPACES", "INJECTOR-HOOK", "ISTIO-REVISION", "SIDECAR-IMAGE"])];
    for hook in &hooks {
        let revision = label(hook, "istio.io/rev");
        let injected: Vec<&str> =
            namespaces[1..].iter().filter(|line| line[1] == revision).map(|line| line[0].as_str()).collect();
        let injected =
            if injected.is_empty() { "DOES NOT AUTOINJECT".to_owned() } else { injected.join(",") };
        injectors.push(vec![injected, name_of(hook).unwrap_or_default(), revision, String::new()]);
    }
    if hooks.is_empty() {
        return Ok("No Istio injection hooks present.\n".to_owned());
    }
    Ok(format!("{}\n{}", aligned(&namespaces, 1), aligned(&injectors, 1)))
}

fn label(object: &Node, name: &str) -> String {
    let value = object.pointer("/metadata/labels").and_then(|labels| labels.get(name)?.as_str());
    value.unwrap_or_default().to_owned()
}

fn labels(object: &Node) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Node::as_map);
    labels.into_iter().flatten().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect()
}
