//! Control planes beside each other: a canary is tried, upgraded and rolled back, and the first one stays as it is.

use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::eventually;

use crate::cluster::MeshCluster;

const PATIENCE: Duration = Duration::from_secs(180);

const INSTALL: [&str; 4] = ["install", "--skip-confirmation", "--revision=canary", "--set=profile=minimal"];

/// A second revision beside the first, reached by a tag, upgraded, rolled back, and removed again.
pub(crate) async fn check(cluster: &MeshCluster) -> Result<()> {
    cluster.canopus(&INSTALL).await?;
    cluster.canopus(&["tag", "set", "prod", "--revision=canary"]).await?;
    let tags = cluster.canopus(&["tag", "list"]).await?;
    ensure!(tags.contains("prod   canary"), "{tags}");
    let revisions = cluster.canopus(&["revision", "list"]).await?;
    ensure!(revisions.contains("canary") && revisions.contains("default"), "{revisions}");
    check_injector(cluster, "prod", "canary").await?;

    let (first, canary) =
        (configuration(cluster, "istio").await?, configuration(cluster, "istio-canary").await?);
    let mut upgrade = INSTALL.to_vec();
    upgrade[0] = "upgrade";
    upgrade.extend([
        "--set=meshConfig.accessLogFile=/dev/stdout",
        "--set=values.pilot.env.UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS=true",
    ]);
    cluster.canopus(&upgrade).await?;
    let upgraded = configuration(cluster, "istio-canary").await?;
    ensure!(upgraded.contains("accessLogFile: /dev/stdout"), "{upgraded}");
    ensure!(
        variables(cluster).await?.contains("UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS"),
        "the control plane is the old one"
    );
    check_injector(cluster, "prod", "canary").await?;
    let listed = cluster.canopus(&["rollback", "--revision=canary", "--list"]).await?;
    ensure!(listed.lines().count() == 3, "a heading and two installations:\n{listed}");
    cluster.canopus(&["rollback", "--revision=canary", "--skip-confirmation"]).await?;
    ensure!(configuration(cluster, "istio-canary").await? == canary, "the configuration is not what it was");
    ensure!(
        !variables(cluster).await?.contains("UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS"),
        "the control plane is the new one"
    );
    ensure!(configuration(cluster, "istio").await? == first, "the first control plane was changed");
    check_injector(cluster, "prod", "canary").await?;

    cluster.canopus(&["tag", "remove", "prod", "--skip-confirmation"]).await?;
    cluster.canopus(&["uninstall", "--revision=canary", "--skip-confirmation"]).await?;
    let deployments = cluster.kubectl(&["get", "deployments", "-n", "istio-system", "-o", "name"]).await?;
    ensure!(!deployments.contains("canary") && deployments.contains("istiod"), "{deployments}");
    Ok(())
}

async fn configuration(cluster: &MeshCluster, name: &str) -> Result<String> {
    let get = ["get", "configmap", name, "-n", "istio-system", "-o", "jsonpath={.data.mesh}"];
    cluster.kubectl(&get).await
}

/// The environment of the canary's pods.
async fn variables(cluster: &MeshCluster) -> Result<String> {
    let names = "jsonpath={.items[*].spec.containers[0].env[*].name}";
    let running = "--field-selector=status.phase=Running";
    let get =
        ["get", "pods", "-n", "istio-system", "-l", "istio.io/rev=canary,app=istiod", running, "-o", names];
    cluster.kubectl(&get).await
}

/// A namespace that names a tag gets the proxies of its revision.
pub(crate) async fn check_injector(cluster: &MeshCluster, tag: &str, revision: &str) -> Result<()> {
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
