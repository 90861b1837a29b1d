//! The sample in the mesh: sidecars of both kinds, a gateway with an address, mutual TLS, updates while customers look around.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use canopus_testkit::eventually;
use canopus_testkit::http::{Method, Response, request};
use serde_json::Value as Json;
use tokio::time::timeout;

use crate::cluster::MeshCluster;
use crate::load::Load;

const PATIENCE: Duration = Duration::from_secs(180);

/// How long one request may take before it counts as not answered.
const ANSWER: Duration = Duration::from_secs(5);

const HOST: &str = "shop.example.com";

const MANIFEST: &str = include_str!("../../../../samples/storefront/k8s.yaml");

/// The way in by the shop's own gateway.
const GATEWAY: &str = include_str!("../../../../samples/storefront/config/gateway.yaml");

/// Everything that runs in the shop's namespace: what gets a sidecar, and the gateway.
const SERVERS: [&str; 7] =
    ["web", "catalogue", "inventory", "cart", "reviews-v1", "reviews-v2", "reviews-v3"];

/// The server whose sidecar is an ordinary container, with an init container that captures the traffic.
const WITHOUT_NATIVE_SIDECAR: &str = "catalogue";

const STRICT: &str = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
";

const NONSENSE: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: nonsense, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/*/*']}]}
";

/// Puts the shop into the mesh and sees that everything works. Gives the address where customers come in.
pub(crate) async fn check(cluster: &MeshCluster) -> Result<SocketAddr> {
    deploy(cluster).await?;
    sidecars(cluster).await.context("the sidecars of both kinds")?;
    let gateway = way_in(cluster).await.context("the way in by the gateway")?;
    mutual_tls(cluster, gateway).await.context("mutual TLS")?;
    invalid_configuration(cluster).await.context("the validation webhook")?;
    Ok(gateway)
}

pub(crate) async fn remove(cluster: &MeshCluster) -> Result<()> {
    cluster.kubectl(&["delete", "namespace", "shop", "elsewhere", "--wait=true"]).await?;
    Ok(())
}

async fn deploy(cluster: &MeshCluster) -> Result<()> {
    let labels = format!("metadata: {{labels: {{app: {WITHOUT_NATIVE_SIDECAR}, version: v1}}");
    let annotated = format!("{labels}, annotations: {{sidecar.istio.io/nativeSidecar: \"false\"}}");
    let template = "annotations: {inject.istio.io/templates: gateway";
    // On a busy machine a probe may wait for seconds, and without the gateway nobody comes in.
    let patient = format!("{template}, readiness.status.sidecar.istio.io/failureThreshold: \"100\"");
    // Nor is everybody served within the seconds that are enough elsewhere.
    let (hook, longer) = ("preStop: {sleep: {seconds: 5}}", "preStop: {sleep: {seconds: 15}}".to_owned());
    let (probe, slower) =
        ("periodSeconds: 1}", "periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 10}".to_owned());
    let mut manifest = MANIFEST.to_owned();
    for (from, to) in [(labels.as_str(), &annotated), (template, &patient), (hook, &longer), (probe, &slower)]
    {
        ensure!(manifest.contains(from), "the sample has no `{from}`");
        manifest = manifest.replace(from, to);
    }
    cluster.apply(&manifest).await?;
    cluster.apply(GATEWAY).await?;
    for server in SERVERS.into_iter().chain(["gateway"]) {
        cluster.rollout("shop", &format!("deployment/{server}")).await?;
    }
    cluster.rollout("elsewhere", "deployment/payment").await
}

/// Sidecars are among the init containers, or beside the application with an init container of their own.
async fn sidecars(cluster: &MeshCluster) -> Result<()> {
    let pods: Json =
        serde_json::from_str(&cluster.kubectl(&["get", "pods", "-n", "shop", "-o", "json"]).await?)?;
    for server in SERVERS {
        let is_its = |pod: &&Json| {
            pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&format!("{server}-")))
        };
        let pod = pods["items"].as_array().into_iter().flatten().find(is_its);
        let pod = pod.with_context(|| format!("{server} has no pod"))?;
        let names = |list: &str| -> Vec<&str> {
            let containers = pod["spec"][list].as_array().into_iter().flatten();
            containers.filter_map(|container| container["name"].as_str()).collect()
        };
        let (init, own) = (names("initContainers"), names("containers"));
        let expected: (&[&str], &[&str]) = if server == WITHOUT_NATIVE_SIDECAR {
            (&["istio-init"], &["istio-proxy", server])
        } else {
            (&["istio-init", "istio-proxy"], &[])
        };
        ensure!(
            expected.0 == init && expected.1.iter().all(|name| own.contains(name)),
            "{server} has the init containers {init:?} and the containers {own:?}"
        );
    }
    Ok(())
}

/// The address of the gateway's service, once customers are shown the whole page there.
async fn way_in(cluster: &MeshCluster) -> Result<SocketAddr> {
    let service = ["get", "service", "gateway", "-n", "shop", "-o"];
    let output = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    let ip: IpAddr = eventually("an address of the gateway", PATIENCE, async || {
        Ok(cluster.kubectl(&[&service[..], &[output]].concat()).await?.parse()?)
    })
    .await?;
    let gateway = SocketAddr::new(ip, 8080);
    eventually("the page by way of the gateway", PATIENCE, async || {
        let page = get(gateway, "/").await?.ok()?;
        ensure!(page.contains("kettle"), "{page}");
        Ok(())
    })
    .await?;
    Ok(gateway)
}

/// Who has no certificate is answered until mutual TLS is asked for; the shop goes on selling, also with others' payments.
async fn mutual_tls(cluster: &MeshCluster, gateway: SocketAddr) -> Result<()> {
    let output = "jsonpath={.spec.clusterIP}";
    let ip: IpAddr =
        cluster.kubectl(&["get", "service", "web", "-n", "shop", "-o", output]).await?.parse()?;
    let web = SocketAddr::new(ip, 8080);
    get(web, "/").await?.ok().context("a stranger, before mutual TLS is asked for")?;
    cluster.apply(STRICT).await?;
    eventually("a refusal of strangers", PATIENCE, async || {
        let answer = timeout(ANSWER, request(Method::GET, web, "/").host("web").send());
        match answer.await.context("neither an answer nor a refusal")? {
            Ok(answer) => bail!("a stranger was answered: {}", answer.status),
            Err(_) => Ok(()),
        }
    })
    .await?;
    for path in ["/", "/checkout"] {
        eventually("an answer over mutual TLS", PATIENCE, async || get(gateway, path).await?.ok().map(drop))
            .await?;
    }
    Ok(())
}

/// The webhook fails open until the control plane has seen it work; then nonsense is refused.
async fn invalid_configuration(cluster: &MeshCluster) -> Result<()> {
    eventually("a refusal of an invalid object", PATIENCE, async || {
        let Err(error) = cluster.apply(NONSENSE).await else {
            cluster.kubectl(&["delete", "gateways.networking.istio.io", "nonsense", "-n", "shop"]).await?;
            bail!("it was accepted");
        };
        let message = format!("{error:#}");
        ensure!(message.contains("denied the request"), "{message}");
        Ok(())
    })
    .await
}

/// The control plane and all servers are replaced under load, and no customer notices; how many requests there were.
pub(crate) async fn updates(cluster: &MeshCluster, gateway: SocketAddr) -> Result<usize> {
    let load = Load::start(gateway, HOST);
    cluster.kubectl(&["rollout", "restart", "deployment/istiod", "-n", "istio-system"]).await?;
    cluster.rollout("istio-system", "deployment/istiod").await?;
    is_alone(cluster, "istio-system").await?;
    let servers = SERVERS.map(|server| format!("deployment/{server}"));
    let mut restart = vec!["rollout", "restart", "-n", "shop"];
    restart.extend(servers.iter().map(String::as_str));
    cluster.kubectl(&restart).await?;
    for server in &servers {
        cluster.rollout("shop", server).await?;
    }
    is_alone(cluster, "shop").await?;
    let count = load.stop().await?;
    ensure!(count > 50, "only {count} requests were sent");
    Ok(count)
}

/// Waits until the pods that were replaced are gone.
async fn is_alone(cluster: &MeshCluster, namespace: &str) -> Result<()> {
    let ending = "jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}";
    eventually("the end of the old pods", PATIENCE, async || {
        let pods = cluster.kubectl(&["get", "pods", "-n", namespace, "-o", ending]).await?;
        ensure!(pods.is_empty(), "{pods}");
        Ok(())
    })
    .await
}

async fn get(address: SocketAddr, path: &str) -> Result<Response> {
    timeout(ANSWER, request(Method::GET, address, path).host(HOST).send()).await?
}
