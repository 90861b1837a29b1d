//! `canopus wait`: until every proxy has the last change of an object.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use canopus_api::{Kind, ObjectKey};
use canopus_base::duration::Duration as GoDuration;
use canopus_base::tree::Node;
use serde_json::Value;

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::global::Global;
use crate::names;
use crate::output::{print, say};
use crate::progress;

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
    let subject = arguments.object.as_deref().unwrap_or("everything");
    let wanted = arguments.object.as_deref().map(|object| Wanted::find(object, plane)).transpose()?;
    let _slow = progress::slow(&format!("waiting until {subject} has arrived"));
    let start = Instant::now();
    loop {
        let is_late = start.elapsed() >= timeout;
        let state = match &wanted {
            Some(wanted) => wanted.state(plane)?,
            None => missing(&plane.ask_all("/debug/convergence", &[])?),
        };
        match state {
            State::Unseen(control_plane) if is_late => {
                bail!("{control_plane} has no {subject} after {timeout:?}{}", hint(plane, subject))
            }
            State::Open { rejected, .. } if !rejected.is_empty() => bail!(
                "{subject} is rejected by {}; `canopus proxy-status` and the proxies' logs say why",
                rejected.join(", ")
            ),
            State::Open { pending, clients, .. } if pending.is_empty() => {
                return Ok(format!("{subject} has arrived: {clients} proxies, {:?}\n", start.elapsed()));
            }
            State::Open { pending, .. } if is_late => {
                bail!("{subject} has not arrived after {timeout:?}: waiting for {}", pending.join(", "))
            }
            State::Unseen(_) | State::Open { .. } => thread::sleep(PAUSE),
        }
    }
}

/// How far the objects that are waited for have come.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// This control plane has not read the object yet, or not as it is now.
    Unseen(String),
    /// The connections that do not have it, and how many there are.
    Open { pending: Vec<String>, rejected: Vec<String>, clients: u64 },
}

/// Reads `Kind/namespace/name`, or `Kind/name` of an object of the whole cluster.
pub(crate) fn object_key(object: &str) -> anyhow::Result<ObjectKey> {
    let parts: Vec<&str> = object.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, namespace, name] => (kind, namespace, name),
        [kind, name] => (kind, "", name),
        _ => bail!("{object:?}: expected Kind/namespace/name, such as VirtualService/shop/cart"),
    };
    let known = Kind::ALL.iter().copied().find(|known| known.info().kind == kind);
    let kind = known.with_context(|| {
        let kinds: Vec<String> = Kind::ALL.iter().map(|known| known.info().kind.to_owned()).collect();
        format!("there is no kind {kind:?}{}", names::hint(kind, &kinds))
    })?;
    if kind.info().is_namespaced() && namespace.is_empty() {
        bail!("{object:?}: a {} is in a namespace: expected {0}/namespace/name", kind.info().kind);
    }
    Ok(ObjectKey::new(kind, namespace, name))
}

/// An object that is waited for.
struct Wanted {
    kind: Kind,
    namespace: String,
    name: String,
    /// The version that the API server has, if it can be asked.
    version: Option<u64>,
}

impl Wanted {
    /// Reads `Kind/namespace/name`. Where there is an API server, the object has to exist.
    fn find(object: &str, plane: &ControlPlane) -> anyhow::Result<Self> {
        let mut wanted = Self::parse(object)?;
        if let ControlPlane::InPods { cluster, .. } = plane {
            let found = cluster.find(wanted.kind, &wanted.namespace, &wanted.name)?;
            let version = found.pointer("/metadata/resourceVersion").and_then(Node::as_str);
            wanted.version = version.and_then(|version| version.parse().ok());
        }
        Ok(wanted)
    }

    fn parse(object: &str) -> anyhow::Result<Self> {
        let ObjectKey { kind, namespace, name } = object_key(object)?;
        Ok(Self { kind, namespace: namespace.into(), name: name.into(), version: None })
    }

    /// The name that control planes have for it.
    fn name(&self) -> String {
        let kind = self.kind.info().kind;
        match self.namespace.as_str() {
            "" => format!("{kind}/{}", self.name),
            namespace => format!("{kind}/{namespace}/{}", self.name),
        }
    }

    /// How far it is at all control planes.
    fn state(&self, plane: &ControlPlane) -> anyhow::Result<State> {
        let name = self.name();
        let (mut pending, mut rejected, mut clients) = (Vec::new(), Vec::new(), 0);
        for (control_plane, answer) in plane.ask_each("/debug/convergence", &[("object", name.as_str())])? {
            if !self.is_known(&answer) {
                return Ok(State::Unseen(control_plane));
            }
            pending.extend(connections(&answer, "pending"));
            rejected.extend(connections(&answer, "rejected"));
            clients += answer["connected"].as_u64().unwrap_or_default();
        }
        Ok(State::Open { pending, rejected, clients })
    }

    /// Whether a control plane has it, as new as it is wanted.
    fn is_known(&self, answer: &Value) -> bool {
        answer["known"].as_array().into_iter().flatten().any(|known| {
            let version = known["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok());
            self.version.is_none_or(|wanted| version.is_none_or(|own| own >= wanted))
        })
    }
}

/// The names of objects that are called like this one, where a control plane lists them.
fn hint(plane: &ControlPlane, subject: &str) -> String {
    let objects = plane.ask_all("/debug/configz", &[]).unwrap_or_default();
    let known: Vec<String> = objects
        .as_array()
        .into_iter()
        .flatten()
        .map(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let meta = &object["metadata"];
            format!("{}/{}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
        })
        .collect();
    names::hint(subject, &known)
}

/// The connections that do not have something.
fn missing(answer: &Value) -> State {
    let clients = answer["clients"].as_array().map_or(0, |clients| clients.len() as u64);
    State::Open {
        pending: connections(answer, "pending"),
        rejected: connections(answer, "rejected"),
        clients,
    }
}

fn connections(answer: &Value, key: &str) -> Vec<String> {
    let open = answer["objects"].as_array().into_iter().flatten();
    let listed = open.flat_map(|state| state[key].as_array().into_iter().flatten());
    let names: BTreeSet<&str> = listed.filter_map(Value::as_str).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_counts_once_it_is_seen_as_it_is() {
        let answer = json!({"known": [{"cluster": "c", "resourceVersion": "7"}]});
        let mut wanted = Wanted::parse("VirtualService/shop/cart").unwrap();
        assert!(wanted.is_known(&answer), "without an API server any version will do");
        wanted.version = Some(7);
        assert!(wanted.is_known(&answer));
        wanted.version = Some(8);
        assert!(!wanted.is_known(&answer), "the change has not been read yet");
        assert!(!wanted.is_known(&json!({"known": []})));
        assert!(Wanted::parse("VirtualServise/shop/cart").is_err());
        assert!(Wanted::parse("cart").is_err());
        assert!(Wanted::parse("VirtualService/cart").is_err());
        assert_eq!(Wanted::parse("Namespace/shop").unwrap().name(), "Namespace/shop");
    }

    #[test]
    fn connections_that_miss_something_are_named_once() {
        let answer = json!({"clients": [1, 2], "objects": [
            {"object": "VirtualService/a/b", "pending": ["x-1"], "rejected": []},
            {"object": "Gateway/a/b", "pending": ["y-1", "x-1"], "rejected": ["z-1"]},
        ]});
        let [x, y, z] = ["x-1", "y-1", "z-1"].map(str::to_owned);
        assert_eq!(missing(&answer), State::Open { pending: vec![x, y], rejected: vec![z], clients: 2 });
    }
}
