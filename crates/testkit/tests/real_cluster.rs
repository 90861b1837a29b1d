//! A cluster with a node: pods run, names resolve, load balancers have addresses, and nothing is left behind.
#![cfg(target_os = "linux")]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_testkit::{KubeCluster, eventually, http};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(120);

/// A web server of busybox, from the image that every cluster has.
const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: web
    image: localhost/test/pause:1
    imagePullPolicy: Never
    command: [/busybox, sh, -c, "echo it works >/index.html; exec /busybox httpd -f -p 8080 -h /"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

#[tokio::test]
async fn real_cluster_runs_pods_and_leaves_nothing_behind() -> Result<()> {
    if !KubeCluster::is_available() {
        return Ok(());
    }
    let cluster = KubeCluster::start().await?;
    cluster.apply(WEB).await?;
    let address: IpAddr = eventually("an address of the load balancer", PATIENCE, async || {
        let status = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        Ok(cluster.kubectl(&["get", "service", "web", "-o", status]).await?.parse()?)
    })
    .await?;
    let answer = eventually("an answer by way of the load balancer", PATIENCE, async || {
        // A connection begun before kube-proxy knows the address stays without an answer.
        timeout(Duration::from_secs(3), http::get(SocketAddr::new(address, 80), "/")).await??.ok()
    })
    .await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Err(error.context(cluster.describe("default").await)),
    };
    ensure!(answer == "it works\n", "{answer}");
    let by_name = ["exec", "web", "--", "/busybox", "wget", "-qO-", "http://web.default.svc.cluster.local/"];
    let answer = cluster.kubectl(&by_name).await.context("by name, from within a pod")?;
    ensure!(answer == "it works\n", "{answer}");

    let directory = cluster.kubeconfig().parent().context("a kubeconfig in a directory")?.to_owned();
    drop(cluster);
    ensure!(!directory.exists(), "{} is left", directory.display());
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    ensure!(!mounts.contains(&directory.display().to_string()), "mounts are left:\n{mounts}");
    ensure!(!Path::new("/sys/class/net/cni0").exists(), "a bridge is left");
    Ok(())
}
