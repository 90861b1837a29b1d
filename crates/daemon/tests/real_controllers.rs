//! Two control planes on a real API server: one of them writes, and when it dies the other goes on.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_testkit::{KubeApi, eventually};
use local_mesh::LocalMesh;
use serde_json::Value;

/// A lock that was not given back can be taken after half a minute and a bit.
const PATIENCE: Duration = Duration::from_secs(90);

const MESH: &str = "
certificates:
- secretName: dns.galley
  dnsNames: [galley.istio-system.svc, galley.istio-system]
";

const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-sidecar-injector, labels: {istio.io/rev: default}}
webhooks:
- name: rev.namespace.sidecar-injector.istio.io
  clientConfig: {service: {name: istiod, namespace: istio-system, path: /inject}}
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  objectSelector: {matchLabels: {inject: never}}
";

fn class(name: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: {name}}}, \
         spec: {{controllerName: istio.io/gateway-controller}}}}"
    )
}

/// The definition of a kind that takes any fields; the real ones are not part of Kubernetes.
fn definition(plural: &str, kind: &str, scope: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.gateway.networking.k8s.io
  annotations:
    api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api/pull/1
    gateway.networking.k8s.io/bundle-version: v1.6.0
spec:
  group: gateway.networking.k8s.io
  scope: {scope}
  names: {{plural: {plural}, kind: {kind}, singular: {singular}, listKind: {kind}List}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

async fn replica(kube: &KubeApi, name: &str) -> Result<LocalMesh> {
    replica_with(kube, name, &[]).await
}

async fn replica_with(kube: &KubeApi, name: &str, environment: &[(&str, &str)]) -> Result<LocalMesh> {
    let directory = tempfile::Builder::new().prefix("canopus-replica-").tempdir()?;
    let mesh_config = directory.path().join("mesh.yaml");
    fs::write(&mesh_config, MESH)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot=");
    command.arg("--meshConfig").arg(mesh_config).env("POD_NAME", name);
    command.envs(environment.iter().copied());
    LocalMesh::launch(command, directory).await
}

async fn get(kube: &KubeApi, arguments: &[&str]) -> Result<Value> {
    let all = [&["get", "--output=json"], arguments].concat();
    Ok(serde_json::from_str(&kube.kubectl(&all).await?)?)
}

async fn accepted(kube: &KubeApi, name: &str) -> Result<()> {
    eventually("the status of a class", PATIENCE, async || {
        let class = get(kube, &["gatewayclass", name]).await?;
        let condition = &class["status"]["conditions"][0];
        ensure!(condition["type"] == "Accepted" && condition["status"] == "True", "{}", class["status"]);
        ensure!(condition["lastTransitionTime"].is_string(), "{condition}");
        Ok(())
    })
    .await
}

async fn root_in(kube: &KubeApi, namespace: &str) -> Result<String> {
    eventually("the root of a namespace", PATIENCE, async || {
        let map = get(kube, &["configmap", "istio-ca-root-cert", "--namespace", namespace]).await?;
        let text = map["data"]["root-cert.pem"].as_str().context("no root")?.to_owned();
        ensure!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{text}");
        ensure!(map["metadata"]["labels"]["istio.io/config"] == "true", "{map}");
        Ok(text)
    })
    .await
}

async fn holder(kube: &KubeApi) -> Result<(String, u64)> {
    let lease =
        get(kube, &["lease", "istio-gateway-status-leader-default", "--namespace=istio-system"]).await?;
    let spec = &lease["spec"];
    let holder = spec["holderIdentity"].as_str().context("no holder")?.to_owned();
    Ok((holder, spec["leaseTransitions"].as_u64().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_second_replica_goes_on_when_the_leader_is_killed() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(&definition("gatewayclasses", "GatewayClass", "Cluster")).await?;
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.apply(OBJECTS).await?;
    kube.apply(&class("first")).await?;

    let mut replicas = vec![("one", replica(&kube, "one").await?), ("two", replica(&kube, "two").await?)];
    accepted(&kube, "first").await?;
    let root = root_in(&kube, "shop").await?;
    let secret = get(&kube, &["secret", "istio-ca-secret", "--namespace=istio-system"]).await?;
    let stored = BASE64_STANDARD.decode(secret["data"]["root-cert.pem"].as_str().context("no root")?)?;
    assert_eq!(stored, root.as_bytes());

    // Others change what is written; it comes back, and what is theirs stays.
    kube.kubectl(&["delete", "configmap", "istio-ca-root-cert", "--namespace=shop"]).await?;
    assert_eq!(root_in(&kube, "shop").await?, root);
    let tamper = r#"{"data": {"root-cert.pem": "tampered", "extra": "kept"}}"#;
    kube.kubectl(&[
        "patch",
        "configmap",
        "istio-ca-root-cert",
        "--namespace=shop",
        "--type=merge",
        "-p",
        tamper,
    ])
    .await?;
    assert_eq!(root_in(&kube, "shop").await?, root);
    let map = get(&kube, &["configmap", "istio-ca-root-cert", "--namespace=shop"]).await?;
    assert_eq!(map["data"]["extra"], "kept");
    kube.kubectl(&["create", "namespace", "fresh"]).await?;
    assert_eq!(root_in(&kube, "fresh").await?, root);

    // A webhook carries the roots; one whose roots somebody declares is left alone.
    let encoded = BASE64_STANDARD.encode(&root);
    eventually("the roots of the webhook", PATIENCE, async || {
        let webhooks = get(&kube, &["mutatingwebhookconfiguration", "istio-sidecar-injector"]).await?;
        let found = &webhooks["webhooks"][0]["clientConfig"]["caBundle"];
        ensure!(*found == *encoded.as_str(), "{found}");
        Ok(())
    })
    .await?;

    // The Secret that the mesh configuration lists.
    eventually("the certificate for names", PATIENCE, async || {
        let secret = get(&kube, &["secret", "dns.galley", "--namespace=istio-system"]).await?;
        ensure!(secret["type"] == "istio.io/dns-key-and-cert", "{}", secret["type"]);
        let directory = tempfile::tempdir()?;
        for file in ["cert-chain.pem", "root-cert.pem"] {
            let text = BASE64_STANDARD.decode(secret["data"][file].as_str().context("a file is missing")?)?;
            fs::write(directory.path().join(file), text)?;
        }
        let verified = Command::new("openssl")
            .current_dir(directory.path())
            .args([
                "verify",
                "-CAfile",
                "root-cert.pem",
                "-verify_hostname",
                "galley.istio-system.svc",
                "cert-chain.pem",
            ])
            .output()?;
        ensure!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
        Ok(())
    })
    .await?;

    let (leader, before) = holder(&kube).await?;
    let follower = if leader == "one" { "two" } else { "one" };
    replicas.retain(|(name, _)| *name != leader);
    assert_eq!(replicas.len(), 1, "{leader} is one of the replicas");
    kube.apply(&class("second")).await?;
    accepted(&kube, "second").await?;
    let (now, after) = holder(&kube).await?;
    assert_eq!((now.as_str(), after), (follower, before + 1));
    // The same root as before: whoever leads signs under it.
    kube.kubectl(&["create", "namespace", "later"]).await?;
    assert_eq!(root_in(&kube, "later").await?, root);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_trust_bundle_takes_the_place_of_config_maps_when_asked_for() -> Result<()> {
    let kube = KubeApi::start_with_trust_bundles().await?;
    kube.apply(OBJECTS).await?;
    let _mesh = replica_with(&kube, "one", &[("ENABLE_CLUSTER_TRUST_BUNDLE_API", "true")]).await?;
    let name = "istio.io:istiod-ca:root-cert";
    let bundle = async || {
        eventually("the trust bundle", PATIENCE, async || {
            let bundle = get(&kube, &["clustertrustbundle", name]).await?;
            ensure!(bundle["spec"]["signerName"] == "istio.io/istiod-ca", "{bundle}");
            let text = bundle["spec"]["trustBundle"].as_str().context("no roots")?.to_owned();
            ensure!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{text}");
            Ok(text)
        })
        .await
    };
    let first = bundle().await?;
    kube.kubectl(&["delete", "clustertrustbundle", name]).await?;
    assert_eq!(bundle().await?, first);
    let maps = kube.kubectl(&["get", "configmap", "--all-namespaces", "--output=name"]).await?;
    assert!(!maps.contains("istio-ca-root-cert"), "{maps}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_declared_roots_of_a_webhook_are_left_alone() -> Result<()> {
    let kube = KubeApi::start().await?;
    let declared = BASE64_STANDARD.encode(canopus_testkit::Authority::new()?.root());
    let service = "service: {name: istiod, namespace: istio-system, path: /inject}";
    // On the server's side, as tools apply that keep a cluster as a repository has it.
    kube.apply(&OBJECTS.replace(service, &format!("{service}, caBundle: {declared}"))).await?;
    let before = get(&kube, &["mutatingwebhookconfiguration", "istio-sidecar-injector"]).await?;
    let mesh = replica(&kube, "one").await?;
    eventually("the refusal in the log", PATIENCE, async || {
        ensure!(mesh.log().contains("left alone: others declare the same fields"), "{}", mesh.log());
        Ok(())
    })
    .await?;
    let after = get(&kube, &["mutatingwebhookconfiguration", "istio-sidecar-injector"]).await?;
    assert_eq!(after["webhooks"], before["webhooks"]);
    Ok(())
}
