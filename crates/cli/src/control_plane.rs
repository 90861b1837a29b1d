//! Running control planes, asked over their debug port: one at an address, or all that run in a cluster.
//!
//! Each proxy is connected to one of several control planes, and only that one knows how far it is. So a question about
//! everything is asked of all and the answers are merged; a question about one proxy is answered by whoever knows it.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use canopus_api::Kind;
use canopus_base::labels::Labels;
use canopus_base::labels::selector::Selector;
use canopus_base::tree::Node;
use http::Method;
use serde_json::Value;

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::daemon;
use crate::global::Global;

/// The port of the control plane's debug server.
const DEBUG_PORT: u16 = 8080;

/// The label that control planes have.
const SELECTOR: &str = "app=istiod";

/// Which control planes are asked.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ControlPlaneArguments {
    /// Address of the control plane's debug port; without it, all pods labelled app=istiod are asked through Kubernetes.
    #[arg(long, value_name = "URL")]
    pub(crate) daemon: Option<String>,
}

/// Control planes that can be asked.
pub(crate) enum ControlPlane {
    At(String),
    InPods { cluster: Box<Cluster>, namespace: String, pods: Vec<String> },
}

impl ControlPlaneArguments {
    pub(crate) fn connect(&self, global: &Global, kube: &KubeArguments) -> anyhow::Result<ControlPlane> {
        self.connect_to(global, kube, None, None)
    }

    /// The same, of the pods with these labels, and of one revision.
    pub(crate) fn connect_to(
        &self,
        global: &Global,
        kube: &KubeArguments,
        selector: Option<&str>,
        revision: Option<&str>,
    ) -> anyhow::Result<ControlPlane> {
        if let Some(url) = &self.daemon {
            return Ok(ControlPlane::At(url.clone()));
        }
        if !kube.is_configured() {
            bail!("no control plane is named and no kubeconfig was found; use --daemon http://HOST:8080");
        }
        let cluster = Cluster::connect(kube)?;
        let namespace = global.istio_namespace.clone();
        let pods = running(&cluster, &namespace, selector, revision)?;
        if pods.is_empty() {
            bail!("no running Istio pods in {namespace:?}");
        }
        let pods = pods.iter().filter_map(name_of).collect();
        Ok(ControlPlane::InPods { cluster: Box::new(cluster), namespace, pods })
    }
}

/// The pods of running control planes.
pub(crate) fn running(
    cluster: &Cluster,
    namespace: &str,
    selector: Option<&str>,
    revision: Option<&str>,
) -> anyhow::Result<Vec<Node>> {
    let selector = selector.unwrap_or(SELECTOR);
    let selector = Selector::parse(selector).with_context(|| format!("label selector {selector:?}"))?;
    let mut pods = cluster.list(Kind::Pod, namespace)?;
    pods.retain(|pod| {
        let labels = pod.pointer("/metadata/labels").and_then(Node::as_map).into_iter().flatten();
        let labels: Labels = labels.filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect();
        selector.matches(&labels)
            && revision.is_none_or(|revision| labels.get("istio.io/rev") == Some(revision))
            && pod.pointer("/status/phase").and_then(Node::as_str) == Some("Running")
    });
    Ok(pods)
}

impl ControlPlane {
    /// What every control plane answers about `path`, such as `/debug/syncz`, with its name: its pod, or its address.
    pub(crate) fn ask_each(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> anyhow::Result<Vec<(String, Value)>> {
        match self {
            Self::At(url) => Ok(vec![(url.clone(), daemon::ask(url, path, parameters)?)]),
            Self::InPods { pods, .. } => {
                let ask = |pod: &String| Ok((pod.clone(), self.ask_pod(pod, path, parameters)?));
                pods.iter().map(ask).collect()
            }
        }
    }

    /// What all control planes answer together.
    pub(crate) fn ask_all(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let mut answers = self.ask_each(path, parameters)?.into_iter().map(|(_, answer)| answer);
        let first = answers.next().unwrap_or_default();
        Ok(answers.fold(first, merge))
    }

    /// What the first control plane answers that can: a proxy is known to the one it is connected to.
    pub(crate) fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        match self {
            Self::At(url) => daemon::ask(url, path, parameters),
            Self::InPods { pods, .. } => {
                let mut failure = anyhow!("there is no control plane");
                for pod in pods {
                    match self.ask_pod(pod, path, parameters) {
                        Ok(answer) => return Ok(answer),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }

    fn ask_pod(&self, pod: &str, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let Self::InPods { cluster, namespace, .. } = self else { bail!("there are no pods") };
        let path = daemon::target(path, parameters);
        let answer = cluster.ask_pod(namespace, pod, DEBUG_PORT, Method::GET, &path)?;
        serde_json::from_slice(&answer).with_context(|| format!("{path} is not JSON"))
    }

    /// What every control plane answers to a question with a body.
    pub(crate) fn send_each(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        body: &Bytes,
    ) -> anyhow::Result<Vec<Value>> {
        match self {
            Self::At(url) => Ok(vec![daemon::send(url, path, parameters, body.clone())?]),
            Self::InPods { cluster, namespace, pods } => {
                let path = daemon::target(path, parameters);
                let send = |pod: &String| {
                    let body = body.clone();
                    let answer =
                        cluster.send_to_pod(namespace, pod, DEBUG_PORT, Method::POST, &path, body)?;
                    serde_json::from_slice(&answer).with_context(|| format!("{path} is not JSON"))
                };
                pods.iter().map(send).collect()
            }
        }
    }
}

/// Two answers as one: lists are joined without what both have, of anything else the first one's counts.
fn merge(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (key, value) in second {
                let own = first.remove(&key);
                let merged = match own {
                    Some(own @ Value::Array(_)) => merge(own, value),
                    Some(own) => own,
                    None => value,
                };
                first.insert(key, merged);
            }
            Value::Object(first)
        }
        (Value::Array(mut first), Value::Array(second)) => {
            let known: BTreeSet<String> = first.iter().map(Value::to_string).collect();
            first.extend(second.into_iter().filter(|item| !known.contains(&item.to_string())));
            Value::Array(first)
        }
        (first, _) => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_of_several_control_planes_are_joined() {
        let merged = merge(
            json!({"revision": 3, "objects": [{"object": "a"}], "clients": [1]}),
            json!({"revision": 4, "objects": [{"object": "a"}, {"object": "b"}], "clients": [2], "more": true}),
        );
        let expected = json!({"revision": 3, "objects": [{"object": "a"}, {"object": "b"}], "clients": [1, 2], "more": true});
        assert_eq!(merged, expected);
        assert_eq!(merge(json!([1, 2]), json!([2, 3])), json!([1, 2, 3]));
    }
}
