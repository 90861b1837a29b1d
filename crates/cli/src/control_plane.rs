//! A running control plane, asked over its debug port: at an address, or through the cluster it runs in.

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_base::tree::Node;
use http::Method;
use serde_json::Value;

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::daemon::{self, escaped};
use crate::global::Global;

/// The port of the control plane's debug server.
const DEBUG_PORT: u16 = 8080;

/// Which control plane is asked.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ControlPlaneArguments {
    /// Address of the control plane's debug port; without it, a pod labelled app=istiod is asked through Kubernetes.
    #[arg(long, value_name = "URL")]
    daemon: Option<String>,
}

/// A control plane that answers.
pub(crate) enum ControlPlane {
    At(String),
    InPod { cluster: Box<Cluster>, namespace: String, pod: String },
}

impl ControlPlaneArguments {
    pub(crate) fn connect(&self, global: &Global, kube: &KubeArguments) -> anyhow::Result<ControlPlane> {
        if let Some(url) = &self.daemon {
            return Ok(ControlPlane::At(url.clone()));
        }
        if !kube.is_configured() {
            bail!("no control plane is named and no kubeconfig was found; use --daemon http://HOST:8080");
        }
        let cluster = Cluster::connect(kube)?;
        let namespace = global.istio_namespace.clone();
        let text = |pod: &Node, pointer: &str| pod.pointer(pointer).and_then(Node::as_str).map(str::to_owned);
        let is_running = |pod: &&Node| {
            text(pod, "/metadata/labels/app").as_deref() == Some("istiod")
                && text(pod, "/status/phase").as_deref() == Some("Running")
        };
        let pods = cluster.list(Kind::Pod, &namespace)?;
        let pod = pods.iter().find(is_running).and_then(name_of);
        let pod = pod.with_context(|| format!("no running Istio pods in {namespace:?}"))?;
        Ok(ControlPlane::InPod { cluster: Box::new(cluster), namespace, pod })
    }
}

impl ControlPlane {
    /// What tables call it: its pod, or its address.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::At(url) => url,
            Self::InPod { pod, .. } => pod,
        }
    }

    /// The JSON that is answered about `path`, such as `/debug/ledger`.
    pub(crate) fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        match self {
            Self::At(url) => daemon::ask(url, path, parameters),
            Self::InPod { cluster, namespace, pod } => {
                let query: Vec<String> =
                    parameters.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
                let path = format!("{path}?{}", query.join("&"));
                let answer = cluster.ask_pod(namespace, pod, DEBUG_PORT, Method::GET, &path)?;
                serde_json::from_slice(&answer).with_context(|| format!("{path} is not JSON"))
            }
        }
    }
}
