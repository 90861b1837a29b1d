//! `canopus check`: whether everything is healthy, each failed line with the remedy.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};

/// Check the control plane, its certificates, its proxies and the objects they are configured by.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
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
    Ok(vec![
        Line { what: "every control plane answers", problems: Vec::new(), remedy: "" },
        Line {
            what: "every proxy has what it should have",
            problems: stuck(&convergence),
            remedy: "see who is behind with `canopus wait`, and why with `canopus history PROXY`",
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
    ])
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
