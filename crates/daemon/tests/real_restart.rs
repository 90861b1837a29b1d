//! A control plane whose API server is down serves what it knew, and follows it again once it is back.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_api::crd::own;
use canopus_testkit::{Echo, Echoed, KubeApi, eventually, free_port, http};
use local_mesh::LocalMesh;

const PATIENCE: Duration = Duration::from_secs(30);

async fn launch(kube: &KubeApi, snapshot: &Path) -> Result<LocalMesh> {
    let directory = tempfile::tempdir()?;
    let mesh_config = directory.path().join("mesh.yaml");
    // No agent serves certificates here, and a cluster that could use mutual TLS waits for them.
    fs::write(&mesh_config, "enableAutoMtls: false\n")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot").arg(snapshot);
    command.arg("--meshConfig").arg(mesh_config);
    LocalMesh::launch(command, directory).await
}

/// Which upstream answers at a gateway.
async fn answered_by(gateway: SocketAddr, expected: &str) -> Result<()> {
    eventually("an answer", PATIENCE, async || {
        let request = http::request(http::Method::GET, gateway, "/items").host("shop.example.com");
        let upstream = Echoed::from_body(&request.send().await?.ok()?)?.upstream;
        ensure!(upstream == expected, "answered by {upstream}");
        Ok(())
    })
    .await
}

async fn teach(kube: &KubeApi) -> Result<()> {
    for manifest in own::manifests() {
        kube.apply(&manifest.text).await?;
    }
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.kubectl(&["create", "namespace", "demo"]).await?;
    Ok(())
}

#[tokio::test]
async fn real_kube_outage_is_outlived_by_a_restarted_control_plane() -> Result<()> {
    let mut kube = KubeApi::start().await?;
    teach(&kube).await?;
    let upstreams = [Echo::start("stable").await?, Echo::start("canary").await?];
    let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let documents = include_str!("../support/shop.yaml")
        .replace("GATEWAY_PORT", &gateway.port().to_string())
        .replace("STABLE_PORT", &upstreams[0].address().port().to_string())
        .replace("CANARY_PORT", &upstreams[1].address().port().to_string());
    kube.apply(&documents).await?;

    let state = tempfile::tempdir()?;
    let mesh = launch(&kube, state.path()).await?;
    let envoy = mesh.gateway().await?;
    answered_by(gateway, "stable").await?;
    eventually("a snapshot", PATIENCE, async || {
        let files = fs::read_dir(state.path())?.count();
        ensure!(files == 1, "{files} files");
        Ok(())
    })
    .await?;
    drop((mesh, envoy));

    kube.stop();
    let mesh = launch(&kube, state.path()).await?;
    let _envoy = mesh.gateway().await?;
    answered_by(gateway, "stable").await?;
    assert!(mesh.log().contains("restored from the snapshot"), "{}", mesh.log());

    kube.resume().await?;
    kube.apply(&documents.replace("host: shop.internal", "host: canary.shop.internal")).await?;
    answered_by(gateway, "canary").await
}
