//! The operator in a cluster: it installs a control plane that injects pods, repairs it, waits for it and takes it away.

use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::eventually;
use serde_json::Value as Json;
use tokio::time::sleep;

use crate::cluster::MeshCluster;
use crate::revisions;

const PATIENCE: Duration = Duration::from_secs(180);

/// Settings of an installation with an operator that looks for drift every few seconds.
pub(crate) const ENABLED: [&str; 2] =
    ["--set=unvalidatedValues.operator.enabled=true", "--set=unvalidatedValues.operator.resync=5s"];

const PAUSE: &str = "install.istio.io/ignoreReconcile";
const OBJECT: [&str; 4] = ["istiooperator", "canary", "-n", "istio-system"];
const DEPLOYMENT: &str = "deployment/istiod-canary";

/// A control plane of its own revision, with these lines more.
fn object(more: &str) -> String {
    format!(
        "
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
metadata: {{name: canary, namespace: istio-system}}
spec:
  profile: minimal
  revision: canary
{more}
"
    )
}

pub(crate) async fn check(cluster: &MeshCluster) -> Result<()> {
    cluster.rollout("istio-system", "deployment/canopus-operator").await?;
    let tagged = object("  values: {revisionTags: [prod]}");
    cluster.apply(&tagged).await?;
    status(cluster, "HEALTHY", "Ready", "objects are as they should be").await?;
    cluster.rollout("istio-system", DEPLOYMENT).await?;
    revisions::check_injector(cluster, "prod", "canary").await?;

    // Drift: what is deleted comes back and runs, what is changed becomes what it was.
    cluster.kubectl(&["delete", DEPLOYMENT, "-n", "istio-system"]).await?;
    let service = ["service", "istiod-canary", "-n", "istio-system"];
    let tampered = r#"{"spec": {"ports": [{"port": 1, "name": "nothing"}]}}"#;
    cluster.kubectl(&[&["patch"], &service[..], &["--type=merge", "-p", tampered]].concat()).await?;
    eventually("the control plane again", PATIENCE, async || {
        cluster.kubectl(&["get", DEPLOYMENT, "-n", "istio-system"]).await.map(drop)
    })
    .await?;
    cluster.rollout("istio-system", DEPLOYMENT).await?;
    eventually("the service as it was", PATIENCE, async || {
        let ports = get(cluster, &service, "{.spec.ports[*].port}").await?;
        ensure!(ports.contains("15012"), "{ports}");
        Ok(())
    })
    .await?;
    status(cluster, "HEALTHY", "Ready", "").await?;

    // What is not asked for any more goes.
    cluster.apply(&object("")).await?;
    is_gone(cluster, &["mutatingwebhookconfiguration", "istio-revision-tag-prod"]).await?;

    // A pod that cannot start is named with the reason, and a better specification ends the wait.
    cluster.apply(&object("  hub: localhost/nowhere\n  values: {global: {imagePullPolicy: Never}}")).await?;
    status(cluster, "RECONCILING", "Waiting", "ErrImageNeverPull").await?;
    cluster.apply(&object("")).await?;
    status(cluster, "HEALTHY", "Ready", "").await?;

    paused(cluster, &service).await?;

    // With the object goes what it describes, and nothing else.
    cluster.kubectl(&[&["delete"], &OBJECT[..], &["--timeout=120s"]].concat()).await?;
    let left = cluster
        .kubectl(&["get", "deployments,services,configmaps", "-n", "istio-system", "-o", "name"])
        .await?;
    ensure!(!left.contains("canary") && left.contains("deployment.apps/istiod\n"), "{left}");
    Ok(())
}

/// A pause leaves everything alone until it ends.
async fn paused(cluster: &MeshCluster, service: &[&str]) -> Result<()> {
    let annotate = [&["annotate"], &OBJECT[..]].concat();
    cluster.kubectl(&[&annotate[..], &[&format!("{PAUSE}=true")]].concat()).await?;
    status(cluster, "NONE", "Paused", PAUSE).await?;
    cluster.kubectl(&[&["delete"], service].concat()).await?;
    sleep(Duration::from_secs(12)).await;
    ensure!(get(cluster, service, "{.metadata.name}").await.is_err(), "a paused installation was repaired");
    cluster.kubectl(&[&annotate[..], &[&format!("{PAUSE}-")]].concat()).await?;
    eventually("the service after the pause", PAUSE_ENDS, async || {
        get(cluster, service, "{.metadata.name}").await.map(drop)
    })
    .await
}

/// How soon a pause that has ended is noticed.
const PAUSE_ENDS: Duration = Duration::from_secs(60);

async fn get(cluster: &MeshCluster, object: &[&str], path: &str) -> Result<String> {
    let output = format!("jsonpath={path}");
    cluster.kubectl(&[&["get"], object, &["-o", &output]].concat()).await
}

async fn is_gone(cluster: &MeshCluster, object: &[&str]) -> Result<()> {
    eventually(&object.join(" "), PATIENCE, async || {
        ensure!(get(cluster, object, "{.metadata.name}").await.is_err(), "it is still there");
        Ok(())
    })
    .await
}

/// Waits until the object's status says this of its present specification.
async fn status(cluster: &MeshCluster, word: &str, reason: &str, part: &str) -> Result<()> {
    eventually(reason, PATIENCE, async || {
        let text = cluster.kubectl(&[&["get"], &OBJECT[..], &["-o", "json"]].concat()).await?;
        let object: Json = serde_json::from_str(&text)?;
        let status = &object["status"];
        let ready = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
        let ready = ready.cloned().unwrap_or_default();
        ensure!(status["status"] == word && ready["reason"] == reason, "{status:#}");
        ensure!(ready["message"].as_str().is_some_and(|message| message.contains(part)), "{status:#}");
        ensure!(status["observedGeneration"] == object["metadata"]["generation"], "{status:#}");
        Ok(())
    })
    .await
}
