//! `canopus experimental precheck`: whether a mesh can be installed or upgraded safely.

use std::process::ExitCode;

use canopus_install::cluster::{Installer, Owner};
use serde_json::json;

use crate::blocking::block_on;
use crate::cluster::{Cluster, KubeArguments};
use crate::exit;
use crate::global::Global;
use crate::install_source::Source;
use crate::output::{print, say};

/// What an installer writes, as `verb` over `group/resource`.
const RIGHTS: [(&str, &str, &str); 8] = [
    ("create", "", "serviceaccounts"),
    ("create", "", "services"),
    ("create", "", "configmaps"),
    ("create", "apps", "deployments"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
];

/// Check whether the cluster is ready for a mesh, or for another version of it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit codes: 0 nothing is in the way, 1 something is or the cluster does not answer, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Version that runs now, such as 1.29.
    #[arg(short, long, value_name = "VERSION")]
    from_version: Option<String>,
    /// Output format: log, json or yaml.
    #[arg(short, long, default_value = "log", value_parser = ["log", "json", "yaml"])]
    output: String,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match findings(global, kube) {
        Ok(findings) if findings.is_empty() => say(
            "✔ No issues found when checking the cluster. Istio is safe to install or upgrade!\n  To get started, check out https://istio.io/latest/docs/setup/getting-started/.\n",
            ExitCode::SUCCESS,
        ),
        Ok(findings) => {
            let is_blocked = findings.iter().any(|(is_error, _)| *is_error);
            let code = if is_blocked { exit::FAILURE } else { ExitCode::SUCCESS };
            let level = |is_error: bool| if is_error { "Error" } else { "Warning" };
            if arguments.output == "log" {
                let lines: String = findings
                    .iter()
                    .map(|(is_error, text)| format!("{}: {text}\n", level(*is_error)))
                    .collect();
                return print(&lines, code);
            }
            let list: Vec<_> = findings
                .iter()
                .map(|(is_error, text)| json!({"level": level(*is_error), "message": text}))
                .collect();
            let format = if arguments.output == "json" {
                crate::format::Output::Json
            } else {
                crate::format::Output::Yaml
            };
            print(&format.render(&json!(list), |_| String::new()), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// What is in the way, and whether it stops an installation.
fn findings(global: &Global, kube: &KubeArguments) -> anyhow::Result<Vec<(bool, String)>> {
    let mut findings = block_on(async {
        let (package, operator) = Source::default_profile().load_for_install()?;
        let mut installer = Installer::new(kube.server().await?);
        let version = installer.kubernetes_version().await?;
        let generated = canopus_install::generate(&package, &operator, false, Some(&version))?;
        let found = installer.precheck(&generated, &Owner::new(&operator)).await?;
        Ok(found.into_iter().map(|finding| (finding.is_error, finding.message)).collect::<Vec<_>>())
    })?;
    let cluster = Cluster::connect(kube)?;
    for (verb, group, resource) in RIGHTS {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": global.istio_namespace, "verb": verb, "group": group, "resource": resource,
            }},
        });
        let answer = cluster.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)?;
        let is_allowed = answer.pointer("/status/allowed").and_then(canopus_base::tree::Node::as_bool);
        if is_allowed != Some(true) {
            let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            findings.push((
                true,
                format!("you may not {verb} {resource}: ask the cluster's administrator for the right to"),
            ));
        }
    }
    Ok(findings)
}
