//! Pods are put into the mesh before the world is loaded, while the API server is away, and after a restart without it.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_testkit::{KubeApi, Process, eventually, free_port, http};
use local_mesh::LocalMesh;
use serde_json::{Value as Json, json};

const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = "\
policy: enabled
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: {{ .ProxyImage }}
";

fn values(tag: &str) -> String {
    json!({"global": {"hub": "hub", "tag": tag}}).to_string()
}

/// The injector's ConfigMap, with proxies of this tag.
fn config_map(tag: &str) -> String {
    let metadata = json!({"name": "istio-sidecar-injector", "namespace": "istio-system"});
    let data = json!({"config": CONFIG, "values": values(tag)});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string()
}

fn discovery(kube: &KubeApi, snapshot: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg(format!("--snapshot={snapshot}"));
    command
}

/// Asks as an API server does for a pod, and looks for this proxy in the patch.
async fn injects(webhook: SocketAddr, image: &str) -> Result<()> {
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}});
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "1", "namespace": "shop", "object": pod},
    });
    let request = http::request(http::Method::POST, webhook, "/inject")
        .header("content-type", "application/json")
        .body(review.to_string());
    let answer: Json = serde_json::from_str(&request.send().await?.ok()?)?;
    let patch = answer["response"]["patch"].as_str().with_context(|| format!("no patch in {answer}"))?;
    let patch = String::from_utf8(STANDARD.decode(patch)?)?;
    ensure!(patch.contains(image), "{image} is not in {patch}");
    Ok(())
}

async fn soon_injects(webhook: SocketAddr, image: &str) -> Result<()> {
    eventually("an answer of the injector", PATIENCE, async || injects(webhook, image).await).await
}

async fn launch(kube: &KubeApi, snapshot: &Path) -> Result<LocalMesh> {
    let snapshot = snapshot.to_str().context("path")?;
    LocalMesh::launch(discovery(kube, snapshot), tempfile::tempdir()?).await
}

#[tokio::test]
async fn real_injection_outlives_the_api_server_and_a_restart_without_it() -> Result<()> {
    let mut kube = KubeApi::start().await?;
    kube.kubectl(&["create", "namespace", "istio-system"]).await?;
    kube.apply(&config_map("one")).await?;
    let snapshot = tempfile::tempdir()?;
    let mesh = launch(&kube, snapshot.path()).await?;
    soon_injects(mesh.http, "hub/proxyv2:one").await?;
    // A configuration that cannot be used leaves the last good one in force, also for whoever asks later.
    kube.apply(&config_map("broken").replace("{{ .ProxyImage }}", "{{ if }}")).await?;
    eventually("a warning", PATIENCE, async || {
        ensure!(mesh.log().contains("the injector keeps its configuration"), "{}", mesh.log());
        Ok(())
    })
    .await?;
    injects(mesh.http, "hub/proxyv2:one").await?;
    kube.apply(&config_map("two")).await?;
    soon_injects(mesh.http, "hub/proxyv2:two").await?;

    kube.stop();
    injects(mesh.http, "hub/proxyv2:two").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    injects(mesh.http, "hub/proxyv2:two").await?;
    drop(mesh);

    let mesh = launch(&kube, snapshot.path()).await?;
    soon_injects(mesh.http, "hub/proxyv2:two").await?;
    kube.resume().await?;
    kube.apply(&config_map("three")).await?;
    soon_injects(mesh.http, "hub/proxyv2:three").await
}

#[tokio::test]
async fn real_injection_from_files_does_not_wait_for_the_world() -> Result<()> {
    let mut kube = KubeApi::start().await?;
    kube.stop();
    let directory = tempfile::Builder::new().prefix("canopus-injection-").tempdir()?;
    let files = directory.path().join("inject");
    fs::create_dir(&files)?;
    fs::write(files.join("config"), CONFIG)?;
    fs::write(files.join("values"), values("file"))?;
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut command = discovery(&kube, "");
    command.arg(format!("--injectionDirectory={}", files.display())).arg(format!("--httpAddr={http}"));
    command.args(["--grpcAddr=", "--secureGRPCAddr=", "--httpsAddr=", "--monitoringAddr="]);
    let mut process = Process::spawn("canopusd", &mut command, directory.path())?;
    let answered = async || injects(http, "hub/proxyv2:file").await;
    process.eventually("an answer of the injector", PATIENCE, answered).await?;
    let ready = http::get(http, "/ready").await?;
    ensure!(ready.status != http::StatusCode::OK, "it is ready without a world");
    Ok(())
}
