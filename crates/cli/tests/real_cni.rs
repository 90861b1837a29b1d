//! The CNI plugin on a real node: chained behind the plugins of containerd, it captures the traffic of pods that have no right to
//! do so themselves. Pods that start without it are repaired, and none runs outside of the mesh.
#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "the cluster is shared with others")]

#[path = "real_mesh/cluster.rs"]
mod cluster;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_testkit::{KubeCluster, eventually};
use serde_json::Value;

use cluster::MeshCluster;

const PATIENCE: Duration = Duration::from_secs(180);
const AGENT: &str = "daemonset/istio-cni-node";
const URL: &str = "http://cart.shop.svc.cluster.local/index.html";

/// A server and a stranger, in a mesh that takes nothing but mutual TLS: who is answered was captured, and so was the server.
const SHOP: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: outside}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  selector: {app: cart}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop, labels: {app: cart}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/test/pause:1
    imagePullPolicy: Never
    command: [/busybox, sh, -c, "mkdir -p /www; echo sold >/www/index.html; exec /busybox httpd -f -p 8080 -h /www"]
    readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: outside}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: "localhost/test/pause:1", imagePullPolicy: Never, command: [/busybox, sleep, "100000"]}
"#;

/// A pod of the mesh that can ask others.
fn caller(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n  - {{name: app, image: \"localhost/test/pause:1\", imagePullPolicy: Never, command: [/busybox, sleep, \
         \"100000\"]}}\n"
    )
}

struct Node {
    cluster: MeshCluster,
}

impl Node {
    async fn start() -> Result<Self> {
        let cluster = MeshCluster::start().await?;
        cluster.load_node_agent().await?;
        let places = [
            format!("--set=values.cni.cniBinDir={}", cluster.cni_directories().programs.display()),
            format!("--set=values.cni.cniConfDir={}", cluster.cni_directories().configurations.display()),
            "--set=values.cni.cniNetnsDir=/run/netns".to_owned(),
        ];
        let mut arguments = vec![
            "install",
            "--skip-confirmation",
            "--set=profile=minimal",
            "--set=components.cni.enabled=true",
        ];
        arguments.extend(places.iter().map(String::as_str));
        let node = Self { cluster };
        if let Err(error) = node.cluster.canopus(&arguments).await {
            return Err(error.context(node.seen().await));
        }
        node.cluster.rollout("istio-system", AGENT).await?;
        Ok(node)
    }

    /// What the agent and the pods say, for the message of a failed test.
    async fn seen(&self) -> String {
        let log = self.agent_log().await.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(40)..].join("\n");
        let (system, shop) =
            (self.cluster.describe("istio-system").await, self.cluster.describe("shop").await);
        format!("agent:\n{last}\n{system}\n{shop}")
    }

    async fn agent_log(&self) -> Result<String> {
        self.cluster.kubectl(&["logs", "-n", "istio-system", AGENT, "--tail=-1"]).await
    }

    /// The plugins of the first network configuration, in their order.
    fn chain(&self) -> Result<Vec<String>> {
        let mut files: Vec<_> = fs::read_dir(self.cluster.cni_directories().configurations)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|end| end == "conflist" || end == "conf"));
        files.sort();
        let first = files.first().context("no network configuration")?;
        let config: Value = serde_json::from_slice(&fs::read(first)?)?;
        let plugins = config["plugins"].as_array().context("no plugins")?;
        Ok(plugins.iter().map(|plugin| plugin["type"].as_str().unwrap_or_default().to_owned()).collect())
    }

    async fn wait_ready(&self, pod: &str, namespace: &str) -> Result<()> {
        let pod = format!("pod/{pod}");
        let waiting = ["wait", "--for=condition=Ready", "--timeout=180s", "-n", namespace, &pod];
        match self.cluster.kubectl(&waiting).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.context(self.seen().await)),
        }
    }

    /// What the server answers to a pod.
    async fn ask(&self, pod: &str, namespace: &str) -> Result<String> {
        let exec = ["exec", "-n", namespace, pod, "-c", "app", "--", "/busybox", "wget", "-qO-", URL];
        self.cluster.kubectl(&exec).await
    }

    async fn is_answered(&self, pod: &str) -> Result<()> {
        let answer = eventually("an answer over mutual TLS", PATIENCE, async || {
            let answer = self.ask(pod, "shop").await?;
            ensure!(answer == "sold\n", "{answer}");
            Ok(())
        });
        match answer.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.seen().await)),
        }
    }

    async fn init_containers(&self, pod: &str) -> Result<String> {
        let format = "jsonpath={.spec.initContainers[*].name}";
        self.cluster.kubectl(&["get", "pod", pod, "-n", "shop", "-o", format]).await
    }

    /// Lets the agent run on this node, or on none.
    async fn schedule_agent(&self, here: bool) -> Result<()> {
        let value = if here { "null" } else { "\"yes\"" };
        let patch = format!(
            "{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{{\"nowhere\":{value}}}}}}}}}}}"
        );
        self.cluster.kubectl(&["patch", AGENT, "-n", "istio-system", "-p", &patch]).await?;
        Ok(())
    }

    /// Kills the agent's process, as running out of memory would.
    async fn kill_agent(&self) -> Result<()> {
        let format = "jsonpath={.items[0].metadata.uid}";
        let selector = ["get", "pods", "-n", "istio-system", "-l", "k8s-app=istio-cni-node", "-o", format];
        let uid = self.cluster.kubectl(&selector).await?;
        let is_agent = |process: &Path| {
            let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
            read("cgroup").replace('_', "-").contains(&uid) && read("cmdline").starts_with("install-cni")
        };
        let mut processes = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path()));
        let agent = processes.find(|process| is_agent(process)).context("the agent has no process")?;
        let id = agent.file_name().and_then(|name| name.to_str()).context("a process id")?;
        ensure!(Command::new("kill").args(["-KILL", id]).status()?.success(), "the agent lives");
        Ok(())
    }

    async fn agent_is_gone(&self) -> Result<()> {
        eventually("the end of the agent", PATIENCE, async || {
            let pods = ["get", "pods", "-n", "istio-system", "-l", "k8s-app=istio-cni-node", "-o", "name"];
            let pods = self.cluster.kubectl(&pods).await?;
            ensure!(pods.trim().is_empty(), "{pods}");
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn real_cni_captures_pods_that_have_no_right_to() -> Result<()> {
    if !KubeCluster::is_available() {
        return Ok(());
    }
    let node = Node::start().await?;
    ensure!(node.chain()? == ["bridge", "istio-cni"], "the chain is {:?}", node.chain()?);

    node.cluster.apply(SHOP).await?;
    node.cluster.apply(&caller("caller")).await?;
    node.wait_ready("cart", "shop").await?;
    node.wait_ready("caller", "shop").await?;
    let init = node.init_containers("caller").await?;
    ensure!(init.contains("istio-validation") && !init.contains("istio-init"), "init containers: {init}");
    node.is_answered("caller").await.context("captured by the plugin")?;
    node.wait_ready("stranger", "outside").await?;
    let refused = node.ask("stranger", "outside").await;
    ensure!(refused.is_err(), "a stranger was answered: {refused:?}");
    let log = node.agent_log().await?;
    ensure!(log.contains("pod shop/caller: traffic goes to its sidecar"), "not logged:\n{log}");

    killed_agent(&node).await.context("pods that start after the agent was killed")?;
    missed_pod(&node).await.context("a pod that started without the plugin")?;

    node.cluster.canopus(&["uninstall", "--purge", "--skip-confirmation"]).await.context("uninstall")?;
    eventually("a chain without the plugin", PATIENCE, async || {
        ensure!(node.chain()? == ["bridge"], "the chain is {:?}", node.chain()?);
        Ok(())
    })
    .await?;
    ensure!(!node.cluster.cni_directories().programs.join("istio-cni").exists(), "the plugin is left");
    Ok(())
}

/// The agent is killed. Its plugin is still in the chain, so a pod that starts meanwhile is captured all the same.
async fn killed_agent(node: &Node) -> Result<()> {
    node.kill_agent().await?;
    node.cluster.apply(&caller("late")).await?;
    ensure!(node.chain()? == ["bridge", "istio-cni"], "the chain is {:?}", node.chain()?);
    node.wait_ready("late", "shop").await?;
    node.is_answered("late").await
}

/// A pod that starts on a node without the plugin does not come up; the agent repairs it.
async fn missed_pod(node: &Node) -> Result<()> {
    node.cluster.rollout("istio-system", AGENT).await?;
    node.schedule_agent(false).await?;
    node.agent_is_gone().await?;
    eventually("a chain without the plugin", PATIENCE, async || {
        ensure!(node.chain()? == ["bridge"], "the chain is {:?}", node.chain()?);
        Ok(())
    })
    .await?;
    node.cluster.apply(&caller("early")).await?;
    eventually("the validation to notice", PATIENCE, async || {
        let format = "jsonpath={.status.initContainerStatuses[?(@.name==\"istio-validation\")].lastState.terminated.exitCode}";
        let code = node.cluster.kubectl(&["get", "pod", "early", "-n", "shop", "-o", format]).await?;
        ensure!(code == "126", "exit code {code:?}");
        Ok(())
    })
    .await?;
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let status = node.cluster.kubectl(&["get", "pod", "early", "-n", "shop", "-o", ready]).await?;
    ensure!(status == "False", "a pod outside of the mesh is ready");
    node.schedule_agent(true).await?;
    node.wait_ready("early", "shop").await.context("repaired")?;
    node.is_answered("early").await
}
