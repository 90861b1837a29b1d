//! A mesh on a real cluster, from nothing to traffic and back: installed by `canopus install`, and put under Istio's own charts.
#![cfg(target_os = "linux")]

#[path = "real_mesh/cluster.rs"]
#[allow(dead_code, reason = "the test of the node agent uses the rest")]
mod cluster;
#[path = "real_mesh/load.rs"]
mod load;
#[path = "real_mesh/operator.rs"]
mod operator;
#[path = "real_mesh/revisions.rs"]
mod revisions;
#[path = "real_mesh/storefront.rs"]
mod storefront;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use canopus_testkit::KubeCluster;
use tokio::sync::Mutex;

use cluster::MeshCluster;

/// The node has two cores, and while a deployment is replaced its pods run beside their successors.
const SMALL_NODE: [&str; 1] = ["--set=values.global.proxy.resources.requests.cpu=10m"];

/// A cluster takes the whole machine: one at a time.
static TURN: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn real_mesh_is_installed_used_updated_and_removed() -> Result<()> {
    if !KubeCluster::is_available() {
        return Ok(());
    }
    let _turn = TURN.lock().await;
    let cluster = MeshCluster::start().await?;
    cluster.load_storefront().await?;
    let before = cluster.objects().await?;

    let planned = cluster.canopus(&["install", "--dry-run"]).await?;
    ensure!(planned.contains("+ Deployment istio-system/istiod"), "{planned}");
    let began = Instant::now();
    cluster
        .canopus(&[&["install", "--skip-confirmation"], &SMALL_NODE[..]].concat())
        .await
        .context("install")?;
    eprintln!("installed and ready after {:.1} s", began.elapsed().as_secs_f64());
    let again = cluster.canopus(&[&["install", "--dry-run"], &SMALL_NODE[..]].concat()).await?;
    ensure!(
        again.starts_with("0 objects to create, 0 to change"),
        "a second installation would change:\n{again}"
    );

    let gateway = storefront::check(&cluster).await?;
    let began = Instant::now();
    let requests = storefront::updates(&cluster, gateway).await.context("updates under load")?;
    eprintln!("{requests} requests in the {:.0} s of the updates", began.elapsed().as_secs_f64());
    let log = cluster.kubectl(&["logs", "-n", "istio-system", "deployment/istiod", "--tail=-1"]).await?;
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("forbidden")).collect();
    ensure!(refused.is_empty(), "the control plane lacks rights: {refused:#?}");

    cluster.canopus(&["uninstall", "--purge", "--skip-confirmation"]).await.context("uninstall")?;
    storefront::remove(&cluster).await?;
    let after = cluster.objects().await?;
    let left: Vec<&String> = after.difference(&before).collect();
    ensure!(left.is_empty(), "left behind: {left:#?}");
    Ok(())
}

/// Control planes beside the first one: from the command line, and kept by an operator.
#[tokio::test]
async fn real_mesh_has_revisions_and_an_operator() -> Result<()> {
    if !KubeCluster::is_available() {
        return Ok(());
    }
    let _turn = TURN.lock().await;
    let cluster = MeshCluster::start().await?;
    let mut install = vec!["install", "--skip-confirmation", "--set=profile=minimal"];
    install.extend(operator::ENABLED);
    cluster.canopus(&install).await.context("install")?;
    revisions::check(&cluster).await.context("revisions and tags")?;
    operator::check(&cluster).await.context("the operator")
}

/// Istio's charts are not part of this repository: the test runs where the conformance corpus has them.
#[tokio::test]
async fn real_mesh_comes_up_under_unchanged_charts_of_istio() -> Result<()> {
    let Some(charts) = cluster::istio_charts().filter(|_| KubeCluster::is_available()) else {
        eprintln!("skipped: it needs root and Istio's charts from the conformance corpus");
        return Ok(());
    };
    let _turn = TURN.lock().await;
    let cluster = MeshCluster::start().await?;
    cluster.load_storefront().await?;
    for (release, chart, namespace) in [
        ("istio-base", "base", "istio-system"),
        ("istiod", "istio-control/istio-discovery", "istio-system"),
        ("istio-ingressgateway", "gateway", "istio-system"),
    ] {
        let chart = charts.join(chart).display().to_string();
        let hub = format!("global.hub={}", cluster::HUB);
        let tag = format!("global.tag={}", cluster::TAG);
        // Requests are those of a large mesh, and this node is small.
        let small = "resources.requests.memory=256Mi,global.proxy.resources.requests.cpu=10m";
        let arguments = ["install", release, &chart, "-n", namespace, "--create-namespace"];
        let mut arguments = arguments.to_vec();
        if release == "istiod" {
            arguments.extend(["--set", &hub, "--set", &tag, "--set", small]);
        }
        if release == "istio-ingressgateway" {
            // The image is on the node, and in no registry.
            arguments.extend(["--set", "imagePullPolicy=IfNotPresent"]);
        }
        cluster.helm(&arguments).await?;
        if release != "istio-base" {
            cluster.rollout(namespace, &format!("deployment/{release}")).await?;
        }
    }
    let gateway = storefront::check(&cluster).await?;
    let requests = storefront::updates(&cluster, gateway).await.context("updates under load")?;
    eprintln!("{requests} requests during updates");
    Ok(())
}
