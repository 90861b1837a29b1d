//! The operator on a real API server: two replicas keep a mesh as an IstioOperator says, and take it away with it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_install::{Input, Package, generate, merge_inputs, to_yaml};
use canopus_testkit::{KubeApi, Process, eventually};
use serde_json::Value;
use tempfile::TempDir;

/// A lock that was not given back can be taken after half a minute and a bit.
const PATIENCE: Duration = Duration::from_secs(120);

const NAMESPACE: &str = "--namespace=istio-system";

/// The definition of the kind, as the chart has it.
fn definition() -> Result<String> {
    let text = "spec: {profile: minimal, unvalidatedValues: {operator: {enabled: true}}}".to_owned();
    let package = Package::built_in();
    let operator = merge_inputs(&package, &[Input { file: "operator.yaml".into(), text }], &[])?;
    let mut manifests = generate(&package, &operator, false, None)?.manifests;
    manifests.retain(|manifest| manifest.name() == "istiooperators.install.istio.io");
    ensure!(manifests.len() == 1, "the chart has no definition of IstioOperators");
    Ok(to_yaml(&manifests))
}

/// No nodes run pods here, so that only a control plane of no replicas becomes ready.
fn operator(replicas: u32, more: &str) -> String {
    format!(
        "
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
metadata: {{name: mesh, namespace: istio-system}}
spec:
  profile: minimal
  values:
    pilot: {{autoscaleEnabled: false, replicaCount: {replicas}}}
{more}
"
    )
}

struct Replica {
    process: Process,
    _directory: TempDir,
}

fn replica(kube: &KubeApi, name: &str) -> Result<Replica> {
    let directory = tempfile::Builder::new().prefix("canopus-operator-").tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("operator").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--resync=4s");
    command.env("POD_NAME", name).env("POD_NAMESPACE", "istio-system");
    let process = Process::spawn(name, &mut command, directory.path())?;
    Ok(Replica { process, _directory: directory })
}

async fn get(kube: &KubeApi, arguments: &[&str]) -> Result<Value> {
    let all = [&["get", "--output=json"], arguments].concat();
    Ok(serde_json::from_str(&kube.kubectl(&all).await?)?)
}

/// Waits until the status says this, and gives the message.
async fn status(kube: &KubeApi, word: &str, reason: &str, part: &str) -> Result<Value> {
    eventually(reason, PATIENCE, async || {
        let object = get(kube, &["istiooperator", "mesh", NAMESPACE]).await?;
        let status = &object["status"];
        let ready = &status["conditions"][1];
        ensure!(status["status"] == word && ready["reason"] == reason, "{status}");
        ensure!(ready["message"].as_str().is_some_and(|message| message.contains(part)), "{status}");
        ensure!(status["observedGeneration"] == object["metadata"]["generation"], "{status}");
        Ok(status.clone())
    })
    .await
}

async fn exists(kube: &KubeApi, arguments: &[&str]) -> Result<()> {
    eventually(&arguments.join(" "), PATIENCE, async || get(kube, arguments).await.map(drop)).await
}

async fn is_gone(kube: &KubeApi, arguments: &[&str]) -> Result<()> {
    eventually(&arguments.join(" "), PATIENCE, async || {
        ensure!(get(kube, arguments).await.is_err(), "it is still there");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn real_operator_installs_repairs_prunes_pauses_and_removes() -> Result<()> {
    let kube = KubeApi::start_with_controllers().await?;
    kube.apply(&definition()?).await?;
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.kubectl(&["create", "namespace", "istio-system"]).await?;
    let mut replicas = vec![("one", replica(&kube, "one")?), ("two", replica(&kube, "two")?)];

    // What is waited for is named, with the reason.
    kube.apply(&operator(1, "")).await?;
    status(&kube, "RECONCILING", "Waiting", "Deployment istio-system/istiod: ").await?;
    // A change ends the wait.
    let tagged = "    revisionTags: [prod]";
    kube.apply(&operator(0, tagged)).await?;
    let ready = status(&kube, "HEALTHY", "Ready", "objects are as they should be").await?;
    assert_eq!(ready["conditions"][0]["status"], "True");
    exists(&kube, &["mutatingwebhookconfiguration", "istio-revision-tag-prod"]).await?;

    // Drift is repaired, and a settled mesh is not written to.
    kube.kubectl(&["delete", "service", "istiod", NAMESPACE]).await?;
    let tampered = r#"{"data": {"mesh": "tampered"}}"#;
    kube.kubectl(&["patch", "configmap", "istio", NAMESPACE, "--type=merge", "-p", tampered]).await?;
    exists(&kube, &["service", "istiod", NAMESPACE]).await?;
    eventually("the mesh configuration", PATIENCE, async || {
        let map = get(&kube, &["configmap", "istio", NAMESPACE]).await?;
        ensure!(map["data"]["mesh"] != "tampered", "{map}");
        Ok(())
    })
    .await?;
    status(&kube, "HEALTHY", "Ready", "").await?;
    let version = async || -> Result<String> {
        let object = get(&kube, &["istiooperator", "mesh", NAMESPACE]).await?;
        Ok(object["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned())
    };
    let before = version().await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(version().await?, before, "a settled object was written to");

    // What is not asked for any more is pruned.
    kube.apply(&operator(0, "")).await?;
    is_gone(&kube, &["mutatingwebhookconfiguration", "istio-revision-tag-prod"]).await?;

    // A pause leaves everything alone.
    let pause = "install.istio.io/ignoreReconcile";
    kube.kubectl(&["annotate", "istiooperator", "mesh", NAMESPACE, &format!("{pause}=true")]).await?;
    status(&kube, "NONE", "Paused", pause).await?;
    kube.kubectl(&["delete", "service", "istiod", NAMESPACE]).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    ensure!(get(&kube, &["service", "istiod", NAMESPACE]).await.is_err(), "a paused mesh was repaired");
    kube.kubectl(&["annotate", "istiooperator", "mesh", NAMESPACE, &format!("{pause}-")]).await?;
    exists(&kube, &["service", "istiod", NAMESPACE]).await?;

    // An invalid specification touches nothing and says why.
    kube.apply(&operator(0, "    pilott: {}")).await?;
    status(&kube, "ERROR", "InvalidSpec", "pilott").await?;
    exists(&kube, &["service", "istiod", NAMESPACE]).await?;
    kube.apply(&operator(0, "")).await?;
    status(&kube, "HEALTHY", "Ready", "").await?;

    // The other replica goes on when the leader dies.
    let lease = get(&kube, &["lease", "canopus-operator-leader", NAMESPACE]).await?;
    let leader = lease["spec"]["holderIdentity"].as_str().context("no holder")?.to_owned();
    replicas.retain(|(name, _)| *name != leader);
    ensure!(replicas.len() == 1, "{leader} leads");
    kube.kubectl(&["delete", "service", "istiod", NAMESPACE]).await?;
    exists(&kube, &["service", "istiod", NAMESPACE]).await?;

    // Deleting the object removes what it describes, then the object goes.
    let deleted = kube.kubectl(&["delete", "istiooperator", "mesh", NAMESPACE, "--timeout=90s"]).await;
    deleted.with_context(|| replicas[0].1.process.log_end())?;
    let kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations,poddisruptionbudgets";
    let selector = "--selector=install.operator.istio.io/owning-resource=mesh";
    let left = get(&kube, &[kinds, "--all-namespaces", selector]).await?;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{left}");
    Ok(())
}
