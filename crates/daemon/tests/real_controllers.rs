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

/// Templates as an installation has them, cut to what matters here.
const TEMPLATES: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-sidecar-injector, namespace: istio-system}
data:
  values: '{"global": {"hub": "registry.example.com", "tag": "1"}}'
  config: |
    policy: enabled
    templates:
      kube-gateway: |
        apiVersion: v1
        kind: ServiceAccount
        metadata:
          name: {{.ServiceAccount | quote}}
          namespace: {{.Namespace | quote}}
          ownerReferences:
          - {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: {{.Name}}, uid: "{{.UID}}"}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: {{.DeploymentName | quote}}
          namespace: {{.Namespace | quote}}
          ownerReferences:
          - {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: {{.Name}}, uid: "{{.UID}}"}
        spec:
          selector: {matchLabels: {"{{.GatewayNameLabel}}": {{.Name}}}}
          template:
            metadata: {labels: {"{{.GatewayNameLabel}}": {{.Name}}}}
            spec:
              serviceAccountName: {{.ServiceAccount | quote}}
              containers:
              - name: istio-proxy
                image: {{.ProxyImage}}
                resources: {limits: {cpu: 2000m}}
        ---
        apiVersion: v1
        kind: Service
        metadata:
          name: {{.DeploymentName | quote}}
          namespace: {{.Namespace | quote}}
          ownerReferences:
          - {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: {{.Name}}, uid: "{{.UID}}"}
        spec:
          selector: {"{{.GatewayNameLabel}}": {{.Name}}}
          type: {{.ServiceType}}
          ports:
          {{- range .Ports }}
          - {name: {{.Name}}, port: {{.Port}}, protocol: {{.Protocol}}, appProtocol: {{.AppProtocol}}}
          {{- end }}
"#;

fn gateway(name: &str, port: u16) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{gatewayClassName: istio, listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}"
    )
}

/// Waits until what was deployed for a gateway satisfies a check.
async fn deployed(kube: &KubeApi, kind: &str, name: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually("an object of a gateway", PATIENCE, async || {
        let object = get(kube, &[kind, name, "--namespace=shop"]).await?;
        ensure!(check(&object), "{object}");
        Ok(object)
    })
    .await
}

/// Waits until the message of a Gateway's condition `Programmed` satisfies a check.
async fn programmed(kube: &KubeApi, name: &str, check: impl Fn(&str) -> bool) -> Result<()> {
    let told = deployed(kube, "gateway.gateway.networking.k8s.io", name, |gateway| {
        let conditions = gateway["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter(|one| one["type"] == "Programmed").map(|one| &one["message"]);
        messages.any(|message| message.as_str().is_some_and(&check))
    });
    told.await.map(drop)
}

/// What a policy says that lets nobody make a certain Deployment.
const REFUSAL: &str = "this name is taken";

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: frozen}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  validations: [{expression: "object.metadata.name != 'third-istio'", message: this name is taken}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: frozen}
spec: {policyName: frozen, validationActions: [Deny]}
"#;

fn image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gateway_gets_a_deployment_that_is_kept_as_its_template_has_it() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(&definition("gatewayclasses", "GatewayClass", "Cluster")).await?;
    kube.apply(&definition("gateways", "Gateway", "Namespaced")).await?;
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.apply(OBJECTS).await?;
    kube.apply(TEMPLATES).await?;
    // Somebody has a Service of the name that the second gateway's would have.
    kube.apply("{apiVersion: v1, kind: Service, metadata: {name: second-istio, namespace: shop}, spec: {ports: [{port: 7}]}}")
        .await?;
    // Nobody may make a Deployment of the name that the third gateway's has.
    kube.apply(POLICY).await?;
    eventually("the policy", PATIENCE, async || {
        let refused =
            ["create", "deployment", "third-istio", "--image=none", "--namespace=shop", "--dry-run=server"];
        let error = kube.kubectl(&refused).await.err().context("it is let through")?.to_string();
        ensure!(error.contains(REFUSAL), "{error}");
        Ok(())
    })
    .await?;
    for name in ["first", "second", "third"] {
        kube.apply(&gateway(name, 80)).await?;
    }
    let mesh = replica(&kube, "one").await?;

    let manager = "istio.io/gateway-controller";
    let deployment = deployed(&kube, "deployment", "first-istio", |_| true).await?;
    assert_eq!(*image(&deployment), "registry.example.com/proxyv2:1");
    assert_eq!(deployment["metadata"]["labels"]["gateway.istio.io/managed"], "istio.io-gateway-controller");
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["name"], "first");
    let service = deployed(&kube, "service", "first-istio", |_| true).await?;
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["ports"][1]["port"], 80);
    deployed(&kube, "serviceaccount", "first-istio", |_| true).await?;
    deployed(&kube, "deployment", "second-istio", |_| true).await?;
    deployed(&kube, "gateway.gateway.networking.k8s.io", "first", |gateway| {
        gateway["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await?;
    // The classes without an object got one, whose status says who handles it.
    accepted(&kube, "istio").await?;

    // What the server refuses is told where its owner looks, the rest of the gateway is made, and it is tried again.
    deployed(&kube, "service", "third-istio", |_| true).await?;
    programmed(&kube, "third", |message| message.contains(REFUSAL)).await?;
    assert!(mesh.log().contains(REFUSAL), "{}", mesh.log());
    kube.kubectl(&["delete", "validatingadmissionpolicybinding", "frozen"]).await?;
    deployed(&kube, "deployment", "third-istio", |_| true).await?;
    programmed(&kube, "third", |message| !message.contains(REFUSAL)).await?;

    // What users change of the template comes back, what they add stays.
    let patch = r#"{"metadata": {"labels": {"team": "a"}}, "spec": {"replicas": 3, "template": {"spec": {"containers":
        [{"name": "istio-proxy", "image": "evil"}]}}}}"#;
    kube.kubectl(&["patch", "deployment", "first-istio", "--namespace=shop", "-p", patch]).await?;
    let repaired = deployed(&kube, "deployment", "first-istio", |one| image(one) != "evil").await?;
    assert_eq!(
        (&repaired["metadata"]["labels"]["team"], &repaired["spec"]["replicas"]),
        (&"a".into(), &3.into())
    );
    kube.kubectl(&["delete", "deployment", "first-istio", "--namespace=shop", "--wait=false"]).await?;
    let uid = deployment["metadata"]["uid"].clone();
    let again = deployed(&kube, "deployment", "first-istio", |one| one["metadata"]["uid"] != uid).await?;

    // A change of the Gateway reaches its Service, and nothing else is written once all is well.
    kube.apply(&gateway("first", 8080)).await?;
    deployed(&kube, "service", "first-istio", |service| service["spec"]["ports"][1]["port"] == 8080).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let settled =
        get(&kube, &["deployment", "first-istio", "--namespace=shop", "--show-managed-fields"]).await?;
    assert_eq!(settled["metadata"]["generation"], again["metadata"]["generation"]);
    let managers = settled["metadata"]["managedFields"].as_array().context("no managers")?;
    assert!(
        managers.iter().any(|one| one["manager"] == manager && one["operation"] == "Apply"),
        "{managers:?}"
    );

    // Each Gateway says which version of the logic deploys it, and a newer one is left to whoever wrote that.
    let version = "gateway.istio.io/controller-version";
    for name in ["first", "second"] {
        let stored = get(&kube, &["gateway.gateway.networking.k8s.io", name, "--namespace=shop"]).await?;
        assert_eq!(stored["metadata"]["annotations"][version], "5");
    }
    let newer = format!("{version}=6");
    kube.kubectl(&[
        "annotate",
        "gateway.gateway.networking.k8s.io",
        "first",
        "--namespace=shop",
        "--overwrite",
        &newer,
    ])
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    kube.apply(&gateway("first", 9090)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let service = get(&kube, &["service", "first-istio", "--namespace=shop"]).await?;
    assert_eq!(service["spec"]["ports"][1]["port"], 8080, "a newer control plane deploys it");

    // What was not made here is left alone, and the log says so.
    let foreign = get(&kube, &["service", "second-istio", "--namespace=shop"]).await?;
    assert_eq!(foreign["spec"]["ports"][0]["port"], 7);
    assert!(mesh.log().contains("does not have the label of those made here"), "{}", mesh.log());
    Ok(())
}

/// The webhook that says which revision is the default one.
fn default_revision(revision: &str) -> String {
    format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {{name: \
         istio-revision-tag-default, labels: {{istio.io/rev: {revision}, istio.io/tag: default}}}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn real_gateway_is_handed_from_one_revision_to_another() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(&definition("gatewayclasses", "GatewayClass", "Cluster")).await?;
    kube.apply(&definition("gateways", "Gateway", "Namespaced")).await?;
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.apply(OBJECTS).await?;
    for revision in ["blue", "green"] {
        let templates = TEMPLATES
            .replace("name: istio-sidecar-injector,", &format!("name: istio-sidecar-injector-{revision},"))
            .replace(r#""tag": "1""#, &format!(r#""tag": "{revision}""#));
        kube.apply(&templates).await?;
    }
    kube.apply(&default_revision("blue")).await?;
    kube.apply(&gateway("anybody", 80)).await?;
    kube.apply(
        &gateway("named", 80).replace("namespace: shop}", "namespace: shop, labels: {istio.io/rev: blue}}"),
    )
    .await?;
    let of = |revision: &str| format!("registry.example.com/proxyv2:{revision}");
    let (blue, green) = (of("blue"), of("green"));
    let deployed_as = async |name: &str, expected: &str| {
        deployed(&kube, "deployment", name, |one| image(one) == expected).await
    };
    let lock_is_held_by = async |holder: &str| {
        eventually("a lock that all revisions share", PATIENCE, async || {
            let map = get(&kube, &["configmap", "istio-leader", "--namespace=istio-system"]).await?;
            let record = &map["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"];
            let record: Value = serde_json::from_str(record.as_str().context("no record")?)?;
            ensure!(record["holderIdentity"] == holder, "{record}");
            Ok(())
        })
        .await
    };

    let green_plane = replica_with(&kube, "green-1", &[("REVISION", "green")]).await?;
    lock_is_held_by("green-1").await?;
    // The default revision takes the lock from a holder that lives.
    let _blue_plane = replica_with(&kube, "blue-1", &[("REVISION", "blue")]).await?;
    lock_is_held_by("blue-1").await?;
    deployed_as("anybody-istio", &blue).await?;
    deployed_as("named-istio", &blue).await?;

    // A Gateway names another revision: that one alone is responsible for it from now on.
    let relabel = ["label", "gateway.gateway.networking.k8s.io", "named", "--namespace=shop", "--overwrite"];
    kube.kubectl(&[&relabel[..], &["istio.io/rev=green"]].concat()).await?;
    let handed_over = deployed_as("named-istio", &green).await?;
    deployed_as("anybody-istio", &blue).await?;

    // The default moves, and with it what names no revision and the locks.
    kube.apply(&default_revision("green")).await?;
    deployed_as("anybody-istio", &green).await?;
    lock_is_held_by("green-1").await?;
    let settled = deployed_as("named-istio", &green).await?;
    assert_eq!(settled["metadata"]["generation"], handed_over["metadata"]["generation"]);
    assert!(!green_plane.log().contains("panicked"), "{}", green_plane.log());
    Ok(())
}
