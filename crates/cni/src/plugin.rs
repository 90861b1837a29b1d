//! The plugin: one call of a container runtime.
//!
//! The runtime says by variables what is to be done, gives the configuration on standard input and reads the result from
//! standard output. The plugin is the last of a chain and changes nothing of the result it is given.
//!
//! `ADD` decides what a pod is: one of no concern, one of ambient mode (the agent enrols it, and the pod waits for that), or
//! one with a sidecar (its rules are made here). What the API server has to be asked is asked until it answers. `DEL` and
//! `CHECK` have nothing to do: rules are gone with their namespace.

mod event;
mod protocol;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use canopus_base::labels::Labels;
use canopus_capture::CommandLine;
use canopus_runtime::flags::Flags;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};

pub use self::event::{AddEvent, AddressEvent, CMD_ADD, EVENT_SOCKET, IpNetwork};
pub use self::protocol::{Call, Failure, main};
use crate::install::KUBECONFIG;
use crate::pod::{Namespace, Pod};
use crate::selector::Enablement;

/// How often and at which pace the API server is asked for a pod.
const ATTEMPTS: u32 = 30;
const PACE: Duration = Duration::from_secs(1);

/// Pods of the agent have names that begin so. They must start without it.
const AGENT_POD: &str = "istio-cni-node-";

/// What was done for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// Nothing, for this reason.
    Ignored(String),
    /// The agent enrolled it.
    Ambient,
    /// The pod's rules redirect traffic to its sidecar.
    Sidecar,
}

/// Does what `ADD` asks for.
pub async fn add(call: &Call, flags: &Flags) -> Result<Added, Failure> {
    let config = &call.config;
    let (namespace, name) = (call.argument("K8S_POD_NAMESPACE"), call.argument("K8S_POD_NAME"));
    if namespace.is_empty() || name.is_empty() {
        return Ok(Added::Ignored("not a pod of Kubernetes".to_owned()));
    }
    if namespace == config.pod_namespace && name.starts_with(AGENT_POD) {
        return Ok(Added::Ignored("the agent's own pod".to_owned()));
    }
    if config.exclude_namespaces.iter().flatten().any(|excluded| excluded == namespace) {
        return Ok(Added::Ignored(format!("namespace {namespace} is excluded")));
    }
    let cluster = connect(Path::new(&config.cni_agent_run_dir)).await?;
    let pod = pod(&cluster, namespace, name).await?;
    if config.ambient_enabled && is_ambient(call, &cluster, &pod).await? {
        event::push(call, &pod).await?;
        return Ok(Added::Ambient);
    }
    match pod.sidecar() {
        Err(reason) => Ok(Added::Ignored(reason.to_string())),
        Ok(facts) => {
            let line = facts
                .command_line()
                .map_err(|error| Failure::invalid(format!("pod {}: {error}", pod.key())))?;
            redirect(line, &call.namespace, config.native_nftables, flags)
                .map_err(|error| Failure::other(format!("pod {}: {error}", pod.key())))?;
            Ok(Added::Sidecar)
        }
    }
}

/// Makes the rules of a sidecar in a network namespace.
pub fn redirect(
    line: CommandLine,
    namespace: &Path,
    native_nftables: bool,
    flags: &Flags,
) -> Result<(), canopus_capture::RunError> {
    let line = CommandLine {
        network_namespace: Some(namespace.display().to_string()),
        native_nftables: Some(native_nftables),
        ..line
    };
    let environment = |name: &str| flags.variable(name).map(str::to_owned);
    // A dry run's output would be taken for the result.
    canopus_capture::run(line, &environment, &mut io::stderr())
}

async fn connect(run_directory: &Path) -> Result<Cluster, Failure> {
    let access = Access::Kubeconfig(run_directory.join(KUBECONFIG));
    let connected = Cluster::connect(&access, RateLimit { qps: 1000.0, burst: 1000 }).await;
    connected.map_err(|error| {
        Failure::try_later(format!("{error}; the agent writes this file: is its pod running on this node?"))
    })
}

async fn pod(cluster: &Cluster, namespace: &str, name: &str) -> Result<Pod, Failure> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", plain(namespace)?, plain(name)?);
    read(cluster, &path, ATTEMPTS).await
}

async fn is_ambient(call: &Call, cluster: &Cluster, pod: &Pod) -> Result<bool, Failure> {
    let enablement = Enablement::new(&call.config.enablement_selectors)
        .map_err(|error| Failure::invalid(format!("enablement_selectors: {error}")))?;
    let path = format!("/api/v1/namespaces/{}", plain(&pod.metadata.namespace)?);
    let namespace: Namespace = read(cluster, &path, ATTEMPTS).await?;
    let labels: &Labels = &namespace.metadata.labels;
    Ok(enablement.selects(pod, labels))
}

/// Names come from the container runtime, and could lead to another path.
fn plain(name: &str) -> Result<&str, Failure> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    if name.len() <= 253 && name.bytes().all(is_plain) && !name.contains("..") {
        return Ok(name);
    }
    Err(Failure::environment(format!("CNI_ARGS: {name:?} is not a name of Kubernetes")))
}

async fn read<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    path: &str,
    attempts: u32,
) -> Result<T, Failure> {
    let mut last = String::new();
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(PACE).await;
        }
        match cluster.read_at(path).await {
            Ok(Some(object)) => {
                return serde_json::from_value(object)
                    .map_err(|error| Failure::other(format!("{path}: cannot be understood: {error}")));
            }
            Ok(None) => last = "the API server does not have it".to_owned(),
            Err(error) => last = error.to_string(),
        }
        tracing::warn!("{path}: {last}");
    }
    Err(Failure::try_later(format!("{path}: {last}")))
}

/// The addresses of a result, whichever version of the specification it follows.
fn addresses(result: &serde_json::Value) -> Vec<(IpAddr, u8)> {
    let prefix = |text: &str| {
        let (address, length) = text.split_once('/')?;
        Some((address.parse().ok()?, length.parse().ok()?))
    };
    let listed = result["ips"].as_array().into_iter().flatten().map(|entry| &entry["address"]);
    let older = [&result["ip4"]["ip"], &result["ip6"]["ip"]];
    listed.chain(older).filter_map(|text| prefix(text.as_str()?)).collect()
}

/// Reports a call to the agent's log as one line.
fn report(call: &Call, outcome: &Result<Added, Failure>, began: Instant) -> (&'static str, String) {
    let pod = format!("{}/{}", call.argument("K8S_POD_NAMESPACE"), call.argument("K8S_POD_NAME"));
    let took = began.elapsed();
    match outcome {
        Ok(Added::Ignored(reason)) => ("info", format!("pod {pod}: not captured: {reason}")),
        Ok(Added::Ambient) => ("info", format!("pod {pod}: enrolled in ambient mode in {took:?}")),
        Ok(Added::Sidecar) => ("info", format!("pod {pod}: traffic goes to its sidecar, set up in {took:?}")),
        Err(failure) => ("error", format!("pod {pod}: {failure}")),
    }
}

fn log_socket(run_directory: &Path) -> PathBuf {
    run_directory.join(crate::sockets::LOG_SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_read_of_all_versions() {
        let new =
            json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}, {"address": "fd00::2/64"}]});
        assert_eq!(addresses(&new).len(), 2);
        let old = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}});
        assert_eq!(addresses(&old), [("10.0.0.2".parse().unwrap(), 24)]);
        assert!(addresses(&json!({"ips": [{"address": 7}, {}]})).is_empty());
    }

    #[test]
    fn names_cannot_be_paths() {
        for name in ["../secrets", "a/b", "A", "a?b"] {
            assert!(plain(name).is_err(), "{name}");
        }
        assert!(plain("web-0.v1").is_ok());
    }
}
