//! A small shop: a server with two kinds of sidecars in front of it, callers with and without a proxy, a gateway.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_testkit::eventually;
use canopus_testkit::http::{Method, request};
use tokio::time::{sleep, timeout};

use crate::cluster::MeshCluster;
use crate::load::Load;

const PATIENCE: Duration = Duration::from_secs(180);

const HOST: &str = "shop.example.com";

/// Workloads of a namespace with sidecars, and one outside of the mesh.
const WORKLOADS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: outside}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  selector: {app: cart}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers:
      - name: cart
        image: localhost/test/pause:1
        imagePullPolicy: Never
        command: [/busybox, sh, -c, "mkdir -p /www; echo sold >/www/index.html; exec /busybox httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 1}
        # New connections stop before the server does.
        lifecycle: {preStop: {sleep: {seconds: 15}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: caller, namespace: shop}
spec:
  selector: {matchLabels: {app: caller}}
  template:
    metadata:
      labels: {app: caller}
      annotations: {sidecar.istio.io/nativeSidecar: "false"}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: caller, image: "localhost/test/pause:1", imagePullPolicy: Never, command: [/busybox, sleep, "100000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: outside}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: stranger, image: "localhost/test/pause:1", imagePullPolicy: Never, command: [/busybox, sleep, "100000"]}
"#;

/// Mutual TLS for everybody, and a way in.
const CONFIGURATION: &str = r#"
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: shop, namespace: shop}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 80, name: http, protocol: HTTP}
    hosts: [shop.example.com]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec:
  hosts: [shop.example.com]
  gateways: [shop]
  http:
  - route: [{destination: {host: cart.shop.svc.cluster.local, port: {number: 80}}}]
    retries: {attempts: 3, retryOn: "connect-failure,refused-stream,unavailable,reset-before-request"}
"#;

/// Puts the shop into the mesh and sees that everything works.
pub(crate) async fn check(cluster: &MeshCluster, gateway: &str) -> Result<()> {
    deploy(cluster).await?;
    sidecars(cluster).await.context("the sidecars of both kinds")?;
    mutual_tls(cluster).await.context("mutual TLS")?;
    let address = way_in(cluster, gateway).await.context("the way in by the gateway")?;
    invalid_configuration(cluster).await.context("the validation webhook")?;
    updates(cluster, address).await.context("updates under load")
}

/// Starts the workloads, and has everybody use mutual TLS.
pub(crate) async fn deploy(cluster: &MeshCluster) -> Result<()> {
    cluster.apply(WORKLOADS).await?;
    cluster.rollout("shop", "deployment/cart").await?;
    cluster.rollout("shop", "deployment/caller").await?;
    cluster.apply(CONFIGURATION).await
}

/// The names of containers of an application's pod, from one of its lists.
pub(crate) async fn containers(cluster: &MeshCluster, app: &str, list: &str) -> Result<String> {
    let format = format!("jsonpath={{.items[0].spec.{list}[*].name}}");
    cluster.kubectl(&["get", "pods", "-n", "shop", "-l", &format!("app={app}"), "-o", &format]).await
}

/// One pod has its proxy among the init containers, the other beside the application.
async fn sidecars(cluster: &MeshCluster) -> Result<()> {
    let containers = async |app: &str, list: &str| containers(cluster, app, list).await;
    ensure!(
        containers("cart", "initContainers").await?.contains("istio-proxy"),
        "cart has no native sidecar"
    );
    ensure!(
        containers("caller", "containers").await?.contains("istio-proxy"),
        "caller has no sidecar container"
    );
    ensure!(containers("caller", "initContainers").await? == "istio-init", "caller has no istio-init");
    Ok(())
}

pub(crate) async fn mutual_tls(cluster: &MeshCluster) -> Result<()> {
    let url = "http://cart.shop.svc.cluster.local/index.html";
    let wget = ["/busybox", "wget", "-qO-", url];
    eventually("an answer to a caller in the mesh", PATIENCE, async || {
        let exec = ["exec", "-n", "shop", "deployment/caller", "-c", "caller", "--"];
        let answer = cluster.kubectl(&[&exec[..], &wget[..]].concat()).await?;
        ensure!(answer == "sold\n", "{answer}");
        Ok(())
    })
    .await?;
    eventually("a refusal of a caller outside of the mesh", PATIENCE, async || {
        let exec = ["exec", "-n", "outside", "stranger", "--"];
        let answer = cluster.kubectl(&[&exec[..], &wget[..]].concat()).await;
        ensure!(answer.is_err(), "it was answered: {answer:?}");
        Ok(())
    })
    .await
}

async fn way_in(cluster: &MeshCluster, gateway: &str) -> Result<SocketAddr> {
    let ip: IpAddr = eventually("an address of the gateway", PATIENCE, async || {
        let format = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        Ok(cluster
            .kubectl(&["get", "service", gateway, "-n", "istio-system", "-o", format])
            .await?
            .parse()?)
    })
    .await?;
    let address = SocketAddr::new(ip, 80);
    eventually("an answer by way of the gateway", PATIENCE, async || {
        let answer = request(Method::GET, address, "/").host(HOST).send();
        let answer = timeout(Duration::from_secs(5), answer).await??.ok()?;
        ensure!(answer == "sold\n", "{answer}");
        Ok(())
    })
    .await?;
    Ok(address)
}

/// The webhook fails open until the control plane has seen it work; then nonsense is refused.
async fn invalid_configuration(cluster: &MeshCluster) -> Result<()> {
    let nonsense = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: nonsense, namespace: shop}, spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/*/*']}]}}";
    eventually("a refusal of an invalid object", PATIENCE, async || {
        let Err(error) = cluster.apply(nonsense).await else {
            cluster.kubectl(&["delete", "gateways.networking.istio.io", "nonsense", "-n", "shop"]).await?;
            anyhow::bail!("it was accepted");
        };
        let message = format!("{error:#}");
        ensure!(message.contains("denied the request"), "{message}");
        Ok(())
    })
    .await
}

/// The control plane and the server are replaced under load, and nobody notices.
async fn updates(cluster: &MeshCluster, address: SocketAddr) -> Result<()> {
    let load = Load::start(address, HOST);
    for (namespace, workload) in [("istio-system", "deployment/istiod"), ("shop", "deployment/cart")] {
        cluster.kubectl(&["rollout", "restart", workload, "-n", namespace]).await?;
        cluster.rollout(namespace, workload).await?;
        // Proxies find another control plane within ten seconds, and keep their configuration until then.
        sleep(Duration::from_secs(20)).await;
    }
    let count = load.stop().await?;
    ensure!(count > 500, "only {count} requests were sent");
    Ok(())
}

/// A namespace that names a tag gets the proxies of its revision.
pub(crate) async fn check_revision(cluster: &MeshCluster, tag: &str, revision: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: tagged, labels: {{istio.io/rev: {tag}}}}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: probe, namespace: tagged}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: probe, image: \"localhost/test/pause:1\", imagePullPolicy: Never, command: [/busybox, sleep, \"100000\"]}}\n"
    );
    eventually("a pod that the tag's injector was asked about", PATIENCE, async || {
        cluster.apply(&manifest).await
    })
    .await?;
    let format = "jsonpath={.metadata.annotations.istio\\.io/rev}";
    let found = cluster.kubectl(&["get", "pod", "probe", "-n", "tagged", "-o", format]).await?;
    ensure!(found == revision, "the pod's proxy is of revision {found:?}");
    cluster.kubectl(&["delete", "namespace", "tagged", "--wait=true"]).await?;
    Ok(())
}

pub(crate) async fn remove(cluster: &MeshCluster) -> Result<()> {
    cluster.kubectl(&["delete", "namespace", "shop", "outside", "--wait=true"]).await?;
    Ok(())
}
