//! `canopus diff`: what changed in a mesh between two moments.

use std::fmt::Write as _;
use std::process::ExitCode;

use canopus_base::tree::Node;
use canopus_base::yaml;
use serde_json::Value;
use similar::TextDiff;

use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};

/// Lines around a difference.
const CONTEXT: usize = 3;

/// Print what changed in a mesh between two moments: which objects, in which lines, and with --proxies what that changed at
/// the proxies that are connected.
///
/// The control plane remembers the values that objects had since it started, as far as 32 MiB of them go. Objects that change
/// by themselves all the time (endpoints, pods) are named, their values are not kept; neither are those of Secrets.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus diff --at 15m                                     since a quarter of an hour ago
  canopus diff --at 2026-01-31T12:00:00Z --at 2026-01-31T12:30:00Z
  canopus diff --at 41 --at 42                              what revision 42 changed, see `canopus history`
  canopus diff --at 15m --proxies

Exit codes: 0 printed (with --exit-code: nothing changed), 1 the control plane does not answer or has forgotten the first
moment, 2 with --exit-code: something changed, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// A moment: a time as in RFC 3339, a span before now, or a revision. Given twice, from the first to the second; given
    /// once, until now.
    #[arg(long, value_name = "MOMENT", required = true)]
    at: Vec<String>,
    /// Print also what that changed at the proxies that are connected now.
    #[arg(long)]
    proxies: bool,
    /// Exit with 2 if something changed.
    #[arg(long)]
    exit_code: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let (from, to) = match arguments.at.as_slice() {
        [from] => (from.as_str(), "now"),
        [from, to] => (from.as_str(), to.as_str()),
        _ => {
            return say(
                "Error: --at is given once or twice: the first moment and the second\n",
                exit::usage(),
            );
        }
    };
    let asked = arguments.control_plane.connect(global, kube).and_then(|plane| {
        let mut parameters = vec![("from", from), ("to", to)];
        if arguments.proxies {
            parameters.push(("proxies", ""));
        }
        plane.ask("/debug/changes", &parameters)
    });
    match asked {
        Ok(answer) => {
            let changed = answer["objects"].as_array().is_some_and(|objects| !objects.is_empty());
            let code = match answer["isWhole"] {
                Value::Bool(false) => exit::FAILURE,
                _ if arguments.exit_code && changed => ExitCode::from(2),
                _ => ExitCode::SUCCESS,
            };
            print(&arguments.output.render(&answer, text), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn text(answer: &Value) -> String {
    let mut text = String::new();
    if answer["isWhole"] == Value::Bool(false) {
        let begins = answer["historyBegins"]["time"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "Changes until {begins} are forgotten: what follows is what changed after that. Ask for a later moment.\n"
        );
    }
    let objects = answer["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    for object in objects {
        let word = |key: &str| object[key].as_str().unwrap_or_default();
        let times = object["times"].as_u64().unwrap_or(1);
        let often = if times > 1 { format!(", {times} times") } else { String::new() };
        let last = object["last"]["time"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "{} {}{often} (last at {last}, revision {})",
            word("object"),
            word("change"),
            object["last"]["revision"]
        );
        let (before, after) = (lines(&object["before"]), lines(&object["after"]));
        let compared = TextDiff::from_lines(&before, &after);
        for hunk in compared.unified_diff().context_radius(CONTEXT).iter_hunks() {
            for line in hunk.to_string().lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    if objects.is_empty() {
        text.push_str("nothing changed\n");
    }
    if let Some(impact) = answer.get("impact") {
        let _ = writeln!(
            text,
            "\nat the proxies that are connected now:\n{}",
            crate::what_if::impact_text(impact)
        );
    }
    text
}

/// A value as YAML; what nobody wrote is left out.
fn lines(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let mut value = value.clone();
    if let Some(meta) = value["metadata"].as_object_mut() {
        for key in ["resourceVersion", "uid", "generation", "managedFields", "creationTimestamp"] {
            meta.remove(key);
        }
    }
    yaml::node_to_string(&Node::from(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_shown_line_by_line() {
        let rule = |host: &str| json!({"kind": "DestinationRule", "metadata": {"name": "a", "uid": host}, "spec": {"host": host}});
        let answer = json!({
            "isWhole": true,
            "objects": [
                {"object": "DestinationRule/b/a", "change": "changed", "times": 2, "before": rule("one"), "after": rule("two"),
                 "last": {"time": "12:00", "revision": 7}},
                {"object": "EndpointSlice/b/e", "change": "changed", "times": 1, "before": null, "after": null,
                 "last": {"time": "12:01", "revision": 8}},
            ],
        });
        let shown = text(&answer);
        assert!(
            shown.contains("DestinationRule/b/a changed, 2 times (last at 12:00, revision 7)"),
            "{shown}"
        );
        assert!(shown.contains("-  host: one") && shown.contains("+  host: two"), "{shown}");
        assert!(!shown.contains("uid"), "{shown}");
        assert!(shown.ends_with("EndpointSlice/b/e changed (last at 12:01, revision 8)\n"), "{shown}");
        let forgotten = text(&json!({"isWhole": false, "historyBegins": {"time": "11:00"}, "objects": []}));
        assert!(
            forgotten.contains("until 11:00 are forgotten") && forgotten.contains("nothing changed"),
            "{forgotten}"
        );
    }
}
