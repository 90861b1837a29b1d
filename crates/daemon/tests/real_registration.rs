//! Machines that register themselves: two control planes on a real API server compete for the WorkloadEntry of one.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value as Field};
use canopus_proto::google::rpc::Status;
use canopus_testkit::{KubeApi, eventually};
use canopus_xds::client::AdsStream;
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types::{CLUSTER, HEALTH};
use local_mesh::LocalMesh;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(60);

const NAMESPACES: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

const GROUP: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vms, namespace: shop}
spec:
  metadata: {labels: {app: vm}, annotations: {proxy.istio.io/health-checks-enabled: 'true'}}
  template: {serviceAccount: vm, ports: {http: 8080}}
";

const CONTROLLER: &str = "istio.io/workloadController";

async fn replica(kube: &KubeApi, name: &str) -> Result<LocalMesh> {
    let directory = tempfile::Builder::new().prefix("canopus-replica-").tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot=");
    command.env("POD_NAME", name).env("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "3s");
    // Who connects without TLS proves nothing.
    command.env("ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY", "false");
    LocalMesh::launch(command, directory).await
}

/// A machine that is connected to a control plane.
struct Machine(AdsStream);

impl Machine {
    async fn connect(mesh: &LocalMesh) -> Result<Self> {
        let fields = [("NAMESPACE", "shop"), ("AUTO_REGISTER_GROUP", "vms"), ("CLUSTER_ID", "Kubernetes")];
        let fields = fields.map(|(name, value)| (name.to_owned(), Field::from(value)));
        let node = Node {
            id: "sidecar~192.0.2.1~vm-1.shop~shop.svc.cluster.local".to_owned(),
            metadata: Some(Struct { fields: fields.into() }),
            ..Node::default()
        };
        let channel = Endpoint::from_shared(format!("http://{}", mesh.xds))?.connect().await?;
        let request = request(CLUSTER, Some(node), None);
        Ok(Self(AdsStream::open(channel, Protocol::Sotw, MetadataMap::new(), request).await?))
    }

    async fn report(&self, fault: Option<&str>) -> Result<()> {
        let error = fault.map(|fault| Status { code: 13, message: fault.to_owned(), ..Status::default() });
        Ok(self.0.send(request(HEALTH, None, error)).await?)
    }
}

fn request(type_url: &str, node: Option<Node>, error: Option<Status>) -> Request {
    let wish = Wish::Exactly { names: Vec::new(), version: String::new() };
    Request { type_url: type_url.to_owned(), node, nonce: String::new(), error, wish }
}

/// The entry of the machine, once it is as expected.
async fn entry(kube: &KubeApi, expected: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually("the WorkloadEntry", PATIENCE, async || {
        let arguments = ["get", "--output=json", "workloadentry", "vms-192.0.2.1", "--namespace=shop"];
        let entry: Value = serde_json::from_str(&kube.kubectl(&arguments).await?)?;
        ensure!(expected(&entry), "{entry:#}");
        Ok(entry)
    })
    .await
}

fn condition(entry: &Value) -> &Value {
    &entry["status"]["conditions"][0]
}

#[tokio::test(flavor = "multi_thread")]
async fn real_machine_is_registered_by_the_replica_it_is_connected_to() -> Result<()> {
    let kube = KubeApi::start().await?;
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds");
    for name in ["workloadgroups", "workloadentries"] {
        let file = definitions.join(format!("{name}.networking.istio.io.yaml"));
        kube.apply(&fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?).await?;
    }
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.apply(NAMESPACES).await?;
    let (one, two) = (replica(&kube, "one").await?, replica(&kube, "two").await?);

    // The machine is there before its group, and is registered as soon as that exists.
    let first = Machine::connect(&one).await?;
    eventually("the report", PATIENCE, async || {
        ensure!(one.log().contains("which does not exist; create it"), "nothing is reported:\n{}", one.log());
        Ok(())
    })
    .await?;
    kube.apply(GROUP).await?;
    let made = entry(&kube, |entry| entry["metadata"]["annotations"][CONTROLLER] == "one").await?;
    assert_eq!(
        (&made["spec"]["address"], &made["spec"]["ports"]["http"]),
        (&"192.0.2.1".into(), &8080.into())
    );
    assert_eq!(made["metadata"]["labels"]["app"], "vm");
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "vms");

    // What it reports of itself is a condition.
    first.report(Some("connection refused")).await?;
    let unwell = entry(&kube, |entry| condition(entry)["status"] == "False").await?;
    assert_eq!(
        (&condition(&unwell)["type"], &condition(&unwell)["message"]),
        (&"Healthy".into(), &"connection refused".into())
    );
    first.report(None).await?;
    entry(&kube, |entry| condition(entry)["status"] == "True").await?;

    // It moves to the other replica, which has the entry from then on; the end of the old connection changes nothing.
    let second = Machine::connect(&two).await?;
    entry(&kube, |entry| entry["metadata"]["annotations"][CONTROLLER] == "two").await?;
    drop(first);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let kept = entry(&kube, |entry| entry["metadata"]["annotations"][CONTROLLER] == "two").await?;
    assert!(kept["metadata"]["annotations"]["istio.io/connectedAt"].is_string(), "{kept:#}");

    // It leaves, and comes back within the grace period.
    drop(second);
    entry(&kube, |entry| entry["metadata"]["annotations"]["istio.io/disconnectedAt"].is_string()).await?;
    let third = Machine::connect(&one).await?;
    entry(&kube, |entry| entry["metadata"]["annotations"][CONTROLLER] == "one").await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    entry(&kube, |entry| entry["metadata"]["annotations"]["istio.io/disconnectedAt"].is_null()).await?;

    // A machine that stays away past the grace period loses its WorkloadEntry.
    drop(third);
    eventually("the end of the WorkloadEntry", PATIENCE, async || {
        let left = kube.kubectl(&["get", "workloadentries", "--all-namespaces", "--output=name"]).await?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })
    .await
}
