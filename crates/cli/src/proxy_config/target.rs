//! Where an Envoy's answers come from.

use std::fs;
use std::io::{self, Read as _};

use anyhow::{Context as _, anyhow, bail};
use canopus_api::Kind;
use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use http::Method;

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::fetch;
use crate::global::Global;

/// How proxies are reached.
pub(crate) struct Access<'a> {
    pub(crate) global: &'a Global,
    pub(crate) kube: &'a KubeArguments,
    /// The port of the administration interface in pods.
    pub(crate) port: u16,
    /// The address of the one proxy that is meant, outside Kubernetes.
    pub(crate) address: Option<&'a str>,
}

/// One source of answers.
pub(crate) enum Source<'a> {
    /// A pod, or what pods are made from.
    Proxy(&'a str),
    /// A file with an answer, or `-`.
    File(&'a str),
    /// An administration interface.
    Address(&'a str),
}

impl Access<'_> {
    /// What the proxy answers; a file holds the answer already.
    pub(crate) fn get(&self, source: &Source<'_>, path: &str) -> anyhow::Result<Vec<u8>> {
        match source {
            Source::File(file) => read(file),
            Source::Address(address) => self.ask_address(address, Method::GET, path),
            Source::Proxy(proxy) => self.ask_proxy(proxy, Method::GET, path),
        }
    }

    pub(crate) fn ask_address(&self, address: &str, method: Method, path: &str) -> anyhow::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(fetch::request_at(address, method, path))?.to_vec())
    }

    pub(crate) fn ask_proxy(&self, proxy: &str, method: Method, path: &str) -> anyhow::Result<Vec<u8>> {
        let cluster = Cluster::connect(self.kube)?;
        let (pod, namespace) = pod(&cluster, proxy, &self.global.namespace)?;
        let answer = cluster.ask_pod(&namespace, &pod, self.port, method, path);
        Ok(answer
            .with_context(|| format!("failed to execute command on {pod}.{namespace} sidecar"))?
            .to_vec())
    }
}

fn read(file: &str) -> anyhow::Result<Vec<u8>> {
    if file == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    fs::read(file).map_err(|error| anyhow!("open {file}: {}", crate::input::reason(&error)))
}

/// The name and namespace that `[type/]name[.namespace]` means.
pub(crate) fn split<'a>(resource: &'a str, namespace: &'a str) -> (&'a str, &'a str, &'a str) {
    let (kind, rest) = resource.split_once('/').unwrap_or(("pod", resource));
    match rest.rsplit_once('.') {
        Some((name, given)) if !name.is_empty() => (kind, name, given),
        _ => (kind, rest, namespace),
    }
}

/// The pod that a user means by `[type/]name[.namespace]`: of a Deployment or Service the first that runs.
pub(crate) fn pod(cluster: &Cluster, resource: &str, namespace: &str) -> anyhow::Result<(String, String)> {
    let default = cluster.namespace(namespace);
    let (kind, name, namespace) = split(resource, &default);
    let (kind, pointer) = match kind {
        "pod" | "pods" | "po" => {
            cluster.find(Kind::Pod, namespace, name)?;
            return Ok((name.to_owned(), namespace.to_owned()));
        }
        "deployment" | "deployments" | "deploy" => (Kind::Deployment, "/spec/selector/matchLabels"),
        "daemonset" | "daemonsets" | "ds" => (Kind::DaemonSet, "/spec/selector/matchLabels"),
        "statefulset" | "statefulsets" | "sts" => (Kind::StatefulSet, "/spec/selector/matchLabels"),
        "service" | "services" | "svc" => (Kind::Service, "/spec/selector"),
        other => bail!("{other}/{name}: expected a pod, deployment, daemonset, statefulset or service"),
    };
    let object = cluster.find(kind, namespace, name)?;
    let selector = labels(object.pointer(pointer));
    let pods = cluster.list(Kind::Pod, namespace)?;
    let selected = |pod: &&Node| selector.selects(&labels(pod.pointer("/metadata/labels")));
    let running = |pod: &&Node| pod.pointer("/status/phase").and_then(Node::as_str) == Some("Running");
    let found = pods.iter().filter(selected).find(running).or_else(|| pods.iter().find(selected));
    let found = found.and_then(name_of);
    Ok((found.with_context(|| format!("no pods found for {resource}"))?, namespace.to_owned()))
}

fn labels(node: Option<&Node>) -> Labels {
    let map = node.and_then(Node::as_map);
    map.into_iter().flatten().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_split_at_the_last_dot() {
        assert_eq!(split("a", "n"), ("pod", "a", "n"));
        assert_eq!(split("a.b.c", "n"), ("pod", "a.b", "c"));
        assert_eq!(split("deployment/a.b", "n"), ("deployment", "a", "b"));
    }
}
