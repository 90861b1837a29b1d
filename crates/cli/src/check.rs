//! `canopus check`: whether everything is healthy, each failed line with the remedy.

mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use canopus_api::Kind;
use canopus_base::tree::Node;
use canopus_runtime::version::BuildInfo;
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments};
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};

/// Check the control plane, its webhooks and certificates, its proxies and the objects they are configured by.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus check
  canopus check --daemon http://localhost:8080 -o json

Exit codes: 0 everything is healthy, 1 something is not or the control plane does not answer,
64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

/// One line of the check.
struct Line {
    what: &'static str,
    /// What is wrong; empty if nothing is.
    problems: Vec<String>,
    remedy: &'static str,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match arguments.control_plane.connect(global, kube).and_then(|plane| lines(&plane)) {
        Ok(lines) => {
            let is_healthy = lines.iter().all(|line| line.problems.is_empty());
            let code = if is_healthy { ExitCode::SUCCESS } else { exit::FAILURE };
            print(&arguments.output.render(&json(&lines), |_| text(&lines)), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn lines(plane: &ControlPlane) -> anyhow::Result<Vec<Line>> {
    let convergence = plane.ask_all("/debug/convergence", &[])?;
    let certificates = plane.ask_all("/debug/certificates", &[])?;
    let diagnostics = plane.ask_all("/debug/diagnostics", &[])?;
    let versions: Vec<(String, String)> = plane
        .ask_each("/debug/activity", &[("limit", "0")])?
        .into_iter()
        .map(|(name, answer)| (name, answer["version"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let mut lines = Vec::new();
    if let ControlPlane::InPods { cluster, namespace, .. } = plane {
        lines.push(Line {
            what: "every pod of the control plane is ready",
            problems: not_ready(&control_planes(cluster, namespace)?),
            remedy: "`kubectl describe pod` and the pod's log say why; `canopus bug-report` collects both",
        });
        lines.push(Line {
            what: "the webhooks lead to the control plane",
            problems: webhooks::problems(cluster, namespace)?,
            remedy: "`canopus upgrade` writes the webhooks again; a control plane fills in the certificate when it starts",
        });
    } else {
        lines.push(Line { what: "the control plane answers", problems: Vec::new(), remedy: "" });
    }
    lines.extend([
        Line {
            what: "control planes and this program have one version",
            problems: skew(&versions),
            remedy: "use the program of the control plane's version; `canopus upgrade` brings a control plane up to date",
        },
        Line {
            what: "no proxy is two minor versions behind the newest",
            problems: old_proxies(&plane.ask_all("/debug/syncz", &[])?),
            remedy: "restart the workloads, so that they are injected with the present proxy",
        },
        Line {
            what: "every proxy has what it should have",
            problems: stuck(&convergence),
            remedy: "see who is behind with `canopus top`, and why with `canopus history OBJECT`",
        },
        Line {
            what: "nothing is held back in quarantine",
            problems: texts(&convergence["quarantined"]),
            remedy: "correct the objects; `canopus history OBJECT` shows the proxies that rejected them",
        },
        Line {
            what: "no certificate is about to expire",
            problems: expiring(&certificates),
            remedy: "renew the certificate; `canopus ca` looks at the mesh's own",
        },
        Line {
            what: "no object refers to nothing or conflicts with another",
            problems: wrong(&diagnostics),
            remedy: "`canopus analyze` names the fields and what to do",
        },
    ]);
    Ok(lines)
}

/// The pods of the control plane, whatever their state.
fn control_planes(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Node>> {
    let mut pods = cluster.list(Kind::Pod, namespace)?;
    pods.retain(|pod| pod.pointer("/metadata/labels/app").and_then(Node::as_str) == Some("istiod"));
    Ok(pods)
}

fn not_ready(pods: &[Node]) -> Vec<String> {
    let text = |pod: &Node, pointer: &str| {
        pod.pointer(pointer).and_then(Node::as_str).unwrap_or_default().to_owned()
    };
    let is_ready = |pod: &&Node| {
        let conditions = pod.pointer("/status/conditions").and_then(Node::as_list).unwrap_or_default();
        conditions.iter().any(|condition| {
            let says = |key: &str, wanted: &str| condition.get(key).and_then(Node::as_str) == Some(wanted);
            says("type", "Ready") && says("status", "True")
        })
    };
    // A pod that has done its work, or is being replaced, need not be ready.
    let is_over = |pod: &&Node| {
        matches!(text(pod, "/status/phase").as_str(), "Succeeded")
            || pod.pointer("/metadata/deletionTimestamp").is_some()
    };
    let waiting = pods.iter().filter(|pod| !is_ready(pod) && !is_over(pod));
    waiting.map(|pod| format!("{} is {}", text(pod, "/metadata/name"), text(pod, "/status/phase"))).collect()
}

/// Control planes that have another version than this program.
fn skew(versions: &[(String, String)]) -> Vec<String> {
    let own = BuildInfo::current().version;
    let others = versions.iter().filter(|(_, version)| *version != own);
    others.map(|(name, version)| format!("{name} has version {version}, this program {own}")).collect()
}

/// Proxies that are at least two minor versions behind the newest.
fn old_proxies(proxies: &Value) -> Vec<String> {
    let mut by_version: BTreeMap<(u32, u32), BTreeSet<&str>> = BTreeMap::new();
    for proxy in proxies.as_array().into_iter().flatten() {
        let version = proxy["istio_version"].as_str().unwrap_or_default();
        let mut parts = version.split(['.', '-']).map(str::parse);
        // A version that is no number is somebody's own build.
        if let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) {
            by_version.entry((major, minor)).or_default().insert(proxy["proxy"].as_str().unwrap_or_default());
        }
    }
    let Some(newest) = by_version.keys().next_back().copied() else { return Vec::new() };
    let is_old = |(major, minor): (u32, u32)| major < newest.0 || minor + 1 < newest.1;
    let old = by_version.iter().filter(|(version, _)| is_old(**version));
    old.map(|((major, minor), names)| {
        let some: Vec<&str> = names.iter().take(3).copied().collect();
        let more = names.len() - some.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{}{more}: {major}.{minor}, the newest proxies have {}.{}",
            some.join(", "),
            newest.0,
            newest.1
        )
    })
    .collect()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn stuck(convergence: &Value) -> Vec<String> {
    let open = convergence["objects"].as_array().into_iter().flatten();
    open.map(|state| {
        let object = state["object"].as_str().unwrap_or_default();
        let (pending, rejected) = (texts(&state["pending"]), texts(&state["rejected"]));
        match rejected.is_empty() {
            true => format!("{object} has not reached {}", pending.join(", ")),
            false => format!("{object} is rejected by {}", rejected.join(", ")),
        }
    })
    .collect()
}

fn expiring(certificates: &Value) -> Vec<String> {
    let all = certificates["certificates"].as_array().into_iter().flatten();
    let is_bad =
        |one: &&Value| one["verdict"].as_str().is_some_and(|verdict| verdict != "fine" && verdict != "ok");
    all.filter(is_bad)
        .map(|one| {
            let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            format!("{} {} expires on {}: {}", word("role"), word("holder"), word("expiresOn"), word("then"))
        })
        .collect()
}

fn wrong(diagnostics: &Value) -> Vec<String> {
    let listed = diagnostics.as_array().or_else(|| diagnostics["diagnostics"].as_array());
    let errors = listed.into_iter().flatten().filter(|one| one["severity"] == "error");
    errors
        .map(|one| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &one["object"];
            let name = match object.as_str() {
                Some(name) => name.to_owned(),
                None => format!(
                    "{} {}/{}",
                    word(&object["kind"]),
                    word(&object["namespace"]),
                    word(&object["name"])
                ),
            };
            format!("{name}: {}: {}", word(&one["field"]), word(&one["message"]))
        })
        .collect()
}

fn json(lines: &[Line]) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| json!({"check": line.what, "healthy": line.problems.is_empty(), "problems": line.problems, "remedy": line.remedy}))
        .collect();
    json!({"checks": lines})
}

fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let mark = if line.problems.is_empty() { '√' } else { '×' };
        let _ = writeln!(text, "{mark} {}", line.what);
        for problem in &line.problems {
            let _ = writeln!(text, "    {problem}");
        }
        if !line.problems.is_empty() {
            let _ = writeln!(text, "    {}", line.remedy);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_two_minor_versions_behind_are_named() {
        let proxy = |name: &str, version: &str| json!({"proxy": name, "istio_version": version});
        let all =
            json!([proxy("a", "1.32.0"), proxy("b", "1.31.9"), proxy("c", "1.30-alpha"), proxy("d", "own")]);
        assert_eq!(old_proxies(&all), ["c: 1.30, the newest proxies have 1.32"]);
        assert!(old_proxies(&json!([proxy("d", "own")])).is_empty());
    }

    #[test]
    fn pods_that_are_not_ready_are_named() {
        let pod = |name: &str, phase: &str, ready: &str| {
            Node::from(json!({"metadata": {"name": name}, "status": {"phase": phase, "conditions": [
                {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready},
            ]}}))
        };
        let pods =
            [pod("a", "Running", "True"), pod("b", "Running", "False"), pod("c", "Succeeded", "False")];
        assert_eq!(not_ready(&pods), ["b is Running"]);
    }

    #[test]
    fn another_version_of_a_control_plane_is_named() {
        let own = BuildInfo::current().version;
        assert!(skew(&[("istiod-1".to_owned(), own)]).is_empty());
        assert_eq!(skew(&[("istiod-2".to_owned(), "0.0.9".to_owned())]).len(), 1);
    }
}
