//! `canopus wait`: until every proxy has the last change of an object.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use canopus_base::duration::Duration as GoDuration;
use serde_json::Value;

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Wait until every proxy has acknowledged the last change of an object.
///
/// The control plane knows which connections an object's change was for, so this neither guesses nor polls proxies. It fails
/// at once when a proxy has rejected the change.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl apply -f cart.yaml && canopus wait VirtualService/shop/cart
  canopus wait --timeout 10s                      until all objects have arrived everywhere

Exit codes: 0 everybody has it, 1 somebody rejected it or the time is over, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// The object as `Kind/namespace/name`; all objects if not given.
    object: Option<String>,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: String,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let plane = arguments.control_plane.connect(global, kube);
    match plane.and_then(|plane| wait(&plane, arguments)) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn wait(plane: &ControlPlane, arguments: &Arguments) -> anyhow::Result<String> {
    let timeout = arguments.timeout.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
    let timeout = timeout
        .with_context(|| format!("--timeout {}: expected a duration such as 30s", arguments.timeout))?;
    let start = Instant::now();
    loop {
        let answer = plane.ask("/debug/convergence", &[])?;
        let missing = missing(&answer, arguments.object.as_deref());
        let subject = arguments.object.as_deref().unwrap_or("everything");
        if missing.rejected.is_empty() && missing.pending.is_empty() {
            let clients = answer["clients"].as_array().map_or(0, Vec::len);
            return Ok(format!("{subject} has arrived: {clients} proxies, {:?}\n", start.elapsed()));
        }
        if !missing.rejected.is_empty() {
            bail!(
                "{subject} is rejected by {}; `canopus proxy-status` and the proxies' logs say why",
                missing.rejected.join(", ")
            );
        }
        if start.elapsed() >= timeout {
            bail!("{subject} has not arrived after {timeout:?}: waiting for {}", missing.pending.join(", "));
        }
        thread::sleep(PAUSE);
    }
}

/// The connections that do not have an object.
struct Missing {
    pending: Vec<String>,
    rejected: Vec<String>,
}

fn missing(answer: &Value, object: Option<&str>) -> Missing {
    let open = answer["objects"].as_array().into_iter().flatten();
    let open: Vec<&Value> =
        open.filter(|state| object.is_none_or(|object| state["object"].as_str() == Some(object))).collect();
    let names = |key: &str| {
        let listed = open.iter().flat_map(|state| state[key].as_array().into_iter().flatten());
        let mut names: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    };
    Missing { pending: names("pending"), rejected: names("rejected") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_connections_of_the_object_are_missing() {
        let answer = json!({"objects": [
            {"object": "VirtualService/a/b", "pending": ["x-1"], "rejected": []},
            {"object": "Gateway/a/b", "pending": ["y-1"], "rejected": ["z-1"]},
        ]});
        let found = missing(&answer, Some("VirtualService/a/b"));
        assert_eq!((found.pending, found.rejected), (vec!["x-1".to_owned()], vec![]));
        assert_eq!(missing(&answer, None).pending.len(), 2);
        assert!(missing(&answer, Some("Gateway/a/c")).pending.is_empty());
    }
}
