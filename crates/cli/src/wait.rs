//! `canopus wait`: until every proxy has the last change of an object.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_api::registry::Category;
use canopus_base::duration::Duration as GoDuration;
use canopus_base::tree::Node;
use serde_json::Value;

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::global::Global;
use crate::names;
use crate::output::{print, say};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two looks at all objects, which are long.
const LOOK: Duration = Duration::from_millis(200);

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
    let start = Instant::now();
    if let Some(object) = &arguments.object {
        let wanted = Wanted::find(object, plane)?;
        wait_until_seen(plane, &wanted, timeout)?;
    }
    loop {
        let answer = plane.ask_all("/debug/convergence", &[])?;
        let missing = missing(&answer, arguments.object.as_deref());
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
        let mut parts = object.splitn(3, '/');
        let (Some(kind), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("{object:?}: expected Kind/namespace/name, such as VirtualService/shop/cart");
        };
        let known = Kind::ALL.iter().copied().find(|known| known.info().kind == kind);
        let kind = known.with_context(|| {
            let kinds: Vec<String> = Kind::ALL.iter().map(|known| known.info().kind.to_owned()).collect();
            format!("there is no kind {kind:?}{}", names::hint(kind, &kinds))
        })?;
        Ok(Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), version: None })
    }

    /// Whether a control plane that lists its objects has this one, as new as it is wanted.
    fn is_in(&self, objects: &Value) -> bool {
        objects.as_array().into_iter().flatten().any(|object| {
            let meta = &object["metadata"];
            let version = meta["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok());
            object["kind"] == self.kind.info().kind
                && meta["namespace"] == self.namespace.as_str()
                && meta["name"] == self.name.as_str()
                && self.version.is_none_or(|wanted| version.is_none_or(|own| own >= wanted))
        })
    }

    /// What a control plane knows that is called like it.
    fn hint(&self, objects: &Value) -> String {
        let same = objects.as_array().into_iter().flatten();
        let same = same.filter(|object| object["kind"] == self.kind.info().kind);
        let known: Vec<String> = same
            .map(|object| {
                let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
                format!("{}/{}", text("namespace"), text("name"))
            })
            .collect();
        names::hint(&format!("{}/{}", self.namespace, self.name), &known)
    }
}

/// Waits until every control plane has read the object. Which objects of Kubernetes' own kinds it has, it does not list.
fn wait_until_seen(plane: &ControlPlane, wanted: &Wanted, timeout: Duration) -> anyhow::Result<()> {
    if wanted.kind.info().category == Category::Kubernetes {
        return Ok(());
    }
    let start = Instant::now();
    loop {
        let answers = plane.ask_each("/debug/configz", &[])?;
        let Some((name, objects)) = answers.iter().find(|(_, objects)| !wanted.is_in(objects)) else {
            return Ok(());
        };
        if start.elapsed() >= timeout {
            bail!(
                "{name} has no {} {}/{} after {timeout:?}{}",
                wanted.kind.info().kind,
                wanted.namespace,
                wanted.name,
                wanted.hint(objects)
            );
        }
        thread::sleep(LOOK);
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
    fn an_object_counts_once_it_is_seen_as_it_is() {
        let objects = json!([
            {"kind": "VirtualService", "metadata": {"namespace": "shop", "name": "cart", "resourceVersion": "7"}},
        ]);
        let mut wanted = Wanted::parse("VirtualService/shop/cart").unwrap();
        assert!(wanted.is_in(&objects), "without an API server any version will do");
        wanted.version = Some(7);
        assert!(wanted.is_in(&objects));
        wanted.version = Some(8);
        assert!(!wanted.is_in(&objects), "the change has not been read yet");
        let typo = Wanted::parse("VirtualService/shop/carrt").unwrap();
        assert!(!typo.is_in(&objects));
        assert!(typo.hint(&objects).contains("shop/cart"), "{}", typo.hint(&objects));
        assert!(Wanted::parse("VirtualServise/shop/cart").is_err());
        assert!(Wanted::parse("cart").is_err());
    }

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
