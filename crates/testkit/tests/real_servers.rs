//! Real servers that are built from Go sources. Their names begin with `real_`, which `cargo xtask test --quick` leaves out.

use std::fs;
use std::time::Duration;

use anyhow::ensure;
use canopus_testkit::{Consul, KubeApi, eventually, helm};
use serde_json::json;

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: mesh, namespace: default}
data: {trustDomain: cluster.local}
";

#[tokio::test]
async fn real_kube_stores_what_is_applied() {
    let kube = KubeApi::start().await.unwrap();
    kube.apply(CONFIG_MAP).await.unwrap();
    let value =
        kube.kubectl(&["get", "configmap", "mesh", "--output=jsonpath={.data.trustDomain}"]).await.unwrap();
    assert_eq!(value, "cluster.local");

    let error = kube.kubectl(&["get", "configmap", "other"]).await.unwrap_err().to_string();
    assert!(error.contains("NotFound"), "{error}");
    let version = kube.kubectl(&["version"]).await.unwrap();
    assert!(version.contains("Server Version: v1.36.3"), "{version}");
}

const READY_POD: &str = "
apiVersion: v1
kind: Node
metadata: {name: node1}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: node1, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

const READY_STATUS: &str = r#"{"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
        "conditions": [{"type": "Ready", "status": "True"}]}}"#;

#[tokio::test]
async fn real_kube_controllers_make_endpoints_and_accounts() {
    let kube = KubeApi::start_with_controllers().await.unwrap();
    let token = kube.kubectl(&["create", "token", "default", "--audience=istio-ca"]).await.unwrap();
    assert_eq!(token.trim().split('.').count(), 3, "a signed token: {token}");

    kube.apply(READY_POD).await.unwrap();
    let patch = format!("--patch={READY_STATUS}");
    kube.kubectl(&["patch", "pod", "web", "--subresource=status", &patch]).await.unwrap();
    let found = eventually("the Pod's address in an EndpointSlice", Duration::from_secs(30), async || {
        let slices = ["get", "endpointslices", "--output=jsonpath={.items[*].endpoints[*].addresses}"];
        let addresses = kube.kubectl(&slices).await?;
        ensure!(addresses.contains("10.1.2.3"), "found `{addresses}`");
        Ok(())
    });
    found.await.unwrap();
}

#[tokio::test]
async fn real_helm_installs_into_a_cluster() {
    let kube = KubeApi::start().await.unwrap();
    let chart = tempfile::tempdir().unwrap();
    write_chart(chart.path());
    kube.helm(&["install", "demo", chart.path().to_str().unwrap()]).await.unwrap();
    let value =
        kube.kubectl(&["get", "configmap", "demo", "--output=jsonpath={.data.greeting}"]).await.unwrap();
    assert_eq!(value, "hello");
}

#[tokio::test]
async fn real_consul_tells_of_a_registered_service() {
    let consul = Consul::start().await.unwrap();
    let service =
        json!({"Name": "reviews", "ID": "reviews-1", "Address": "127.0.0.1", "Port": 9080, "Tags": ["v1"]});
    consul.register(&service).await.unwrap();
    let found = consul.get("/v1/catalog/service/reviews").await.unwrap();
    assert_eq!((&found[0]["ServicePort"], &found[0]["ServiceTags"]), (&json!(9080), &json!(["v1"])));
}

#[tokio::test]
async fn real_helm_renders_a_chart() {
    let chart = tempfile::tempdir().unwrap();
    write_chart(chart.path());
    let path = chart.path().to_str().unwrap();
    let rendered = helm(&["template", "demo", path, "--set=greeting=good day"]).await.unwrap();
    assert!(rendered.contains("greeting: good day"), "{rendered}");

    let error = helm(&["template", "demo", path, "--set=greeting=null"]).await.unwrap_err().to_string();
    assert!(error.contains("a greeting is required"), "{error}");
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn write_chart(directory: &std::path::Path) {
    let template = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  greeting: {{ required "a greeting is required" .Values.greeting }}
"#;
    fs::create_dir(directory.join("templates")).unwrap();
    fs::write(directory.join("Chart.yaml"), "apiVersion: v2\nname: demo\nversion: 0.1.0\n").unwrap();
    fs::write(directory.join("values.yaml"), "greeting: hello\n").unwrap();
    fs::write(directory.join("templates/greeting.yaml"), template).unwrap();
}
