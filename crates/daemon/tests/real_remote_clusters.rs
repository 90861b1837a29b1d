//! Remote clusters on real API servers: added, lost, found again, given other credentials, removed, and remembered.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_identity::certificate::Certificate;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::{KubeApi, Relay, channel, eventually, free_port, http};
use local_mesh::LocalMesh;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tonic::{Code, Status};

const PATIENCE: Duration = Duration::from_secs(40);

/// The same service in both clusters; only the remote one has an endpoint of it.
const SERVICE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: demo}
spec:
  ports: [{name: http, port: 80, targetPort: 8080}]
";

const ENDPOINT: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: demo, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.10], conditions: {ready: true}}]
ports: [{name: http, port: 8080, protocol: TCP}]
";

/// An API server of which nobody has to make service accounts.
async fn start_cluster() -> Result<KubeApi> {
    let kube = KubeApi::start().await?;
    kube.apply(SERVICE).await?;
    Ok(kube)
}

async fn launch(kube: &KubeApi, snapshot: &Path, environment: &[(&str, &str)]) -> Result<LocalMesh> {
    launch_with(kube, snapshot, &[], environment).await
}

async fn launch_with(
    kube: &KubeApi,
    snapshot: &Path,
    flags: &[&str],
    environment: &[(&str, &str)],
) -> Result<LocalMesh> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot").arg(snapshot);
    command.arg("--log_output_level=default:info,klog:none");
    command.args(flags).envs(environment.iter().copied());
    LocalMesh::launch(command, tempfile::tempdir()?).await
}

/// Writes the Secret that leads to the cluster `west`.
async fn define_west(own: &KubeApi, kubeconfig: &str) -> Result<()> {
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "west", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "stringData": {"west": kubeconfig},
    });
    own.apply(&secret.to_string()).await
}

async fn west(mesh: &LocalMesh) -> Result<Option<Value>> {
    let clusters: Value = serde_json::from_str(&http::get(mesh.http, "/debug/clusterz").await?.ok()?)?;
    let clusters = clusters.as_array().context("clusterz is no list")?;
    Ok(clusters.iter().find(|cluster| cluster["id"] == "west").cloned())
}

async fn west_becomes(mesh: &LocalMesh, state: &str) -> Result<Value> {
    eventually(&format!("cluster west to be {state}"), PATIENCE, async || {
        let west = west(mesh).await?.context("west is not known")?;
        ensure!(west["syncStatus"] == state, "{west}");
        Ok(west)
    })
    .await
}

async fn has_endpoint(mesh: &LocalMesh) -> Result<bool> {
    Ok(http::get(mesh.http, "/debug/endpointz").await?.ok()?.contains("192.0.2.10"))
}

async fn endpoint_is(mesh: &LocalMesh, expected: bool) -> Result<()> {
    eventually(&format!("the endpoint of west to be there: {expected}"), PATIENCE, async || {
        ensure!(has_endpoint(mesh).await? == expected);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn real_remote_cluster_comes_is_lost_changes_and_goes() -> Result<()> {
    let (own, mut remote) = (start_cluster().await?, start_cluster().await?);
    own.kubectl(&["create", "namespace", "istio-system"]).await?;
    remote.apply(ENDPOINT).await?;
    let state = tempfile::tempdir()?;
    let mesh = launch(&own, state.path(), &[]).await?;
    assert!(!has_endpoint(&mesh).await?);

    define_west(&own, &fs::read_to_string(remote.kubeconfig())?).await?;
    let synced = west_becomes(&mesh, "synced").await?;
    assert_eq!(synced["secretName"], "istio-system/west");
    endpoint_is(&mesh, true).await?;

    // What a killed process leaves is what was written: a new cluster is within seconds.
    eventually("a snapshot of west", PATIENCE, async || {
        let names = fs::read_dir(state.path())?.map(|entry| Ok(entry?.file_name().into_string()));
        let names: Vec<_> = names.collect::<Result<_>>()?;
        ensure!(names.iter().flatten().any(|name| name.contains("west")), "only {names:?}");
        Ok(())
    })
    .await?;

    // Lost: stale, neither empty nor a reason not to be ready.
    remote.stop();
    let lost = west_becomes(&mesh, "timeout").await?;
    assert!(lost["behind"].is_array(), "{lost}");
    assert!(has_endpoint(&mesh).await?);
    http::get(mesh.http, "/ready").await?.ok()?;

    // A control plane that starts meanwhile knows what the last one knew.
    drop(mesh);
    let mesh = launch(&own, state.path(), &[]).await?;
    assert!(has_endpoint(&mesh).await?, "{}", mesh.log());
    remote.resume().await?;
    west_becomes(&mesh, "synced").await?;

    // Credentials that would run a program are refused, and those in force stay.
    let mut exec: Value = serde_json::from_str(&fs::read_to_string(remote.kubeconfig())?)?;
    exec["users"][0]["user"]["exec"] =
        serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"});
    define_west(&own, &exec.to_string()).await?;
    eventually("the refusal", PATIENCE, async || {
        let west = west(&mesh).await?.context("west is gone")?;
        ensure!(west["problem"].as_str().is_some_and(|problem| problem.contains("exec")), "{west}");
        Ok(())
    })
    .await?;
    assert!(has_endpoint(&mesh).await?);

    // Credentials that work take over: the server is then followed by the other way.
    let relay = Relay::start(remote.address()).await?;
    let by_relay = remote.kubeconfig_by_way_of(relay.address())?;
    define_west(&own, &fs::read_to_string(by_relay)?).await?;
    eventually("the new credentials", PATIENCE, async || {
        ensure!(mesh.log().contains("has other credentials"), "not in the log yet");
        Ok(())
    })
    .await?;
    west_becomes(&mesh, "synced").await?;
    remote.kubectl(&["delete", "endpointslice", "shop-1", "--namespace=demo"]).await?;
    endpoint_is(&mesh, false).await?;
    remote.apply(ENDPOINT).await?;
    endpoint_is(&mesh, true).await?;

    own.kubectl(&["delete", "secret", "west", "--namespace=istio-system"]).await?;
    endpoint_is(&mesh, false).await?;
    assert_eq!(west(&mesh).await?, None);
    Ok(())
}

#[tokio::test]
async fn real_remote_cluster_that_is_lost_for_too_long_is_dropped_where_asked_for() -> Result<()> {
    let (own, mut remote) = (start_cluster().await?, start_cluster().await?);
    own.kubectl(&["create", "namespace", "istio-system"]).await?;
    remote.apply(ENDPOINT).await?;
    define_west(&own, &fs::read_to_string(remote.kubeconfig())?).await?;
    let state = tempfile::tempdir()?;
    let mesh = launch(&own, state.path(), &[("CANOPUS_REMOTE_CLUSTER_DROP_AFTER", "3s")]).await?;
    assert!(has_endpoint(&mesh).await?, "what Secrets lead to is read before anybody is served");

    remote.stop();
    endpoint_is(&mesh, false).await?;
    assert_eq!(west(&mesh).await?.context("west")?["dropped"], true);
    http::get(mesh.http, "/ready").await?.ok()?;
    remote.resume().await?;
    endpoint_is(&mesh, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn real_remote_cluster_gets_the_roots_if_it_lists_the_control_plane() -> Result<()> {
    let (own, remote) = (start_cluster().await?, start_cluster().await?);
    own.kubectl(&["create", "namespace", "istio-system"]).await?;
    let system = |clusters: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: istio-system, annotations: \
             {{topology.istio.io/controlPlaneClusters: '{clusters}'}}}}}}"
        )
    };
    remote.apply(&system("elsewhere")).await?;
    let state = tempfile::tempdir()?;
    let mesh = launch(&own, state.path(), &[("EXTERNAL_ISTIOD", "true")]).await?;
    define_west(&own, &fs::read_to_string(remote.kubeconfig())?).await?;
    west_becomes(&mesh, "synced").await?;
    let roots = async |kube: &KubeApi| -> Result<String> {
        let arguments = ["get", "cm", "istio-ca-root-cert", "--namespace=demo", "--output=json"];
        let map: Value = serde_json::from_str(&kube.kubectl(&arguments).await?)?;
        Ok(map["data"]["root-cert.pem"].as_str().context("no root")?.to_owned())
    };
    let own_roots = eventually("the roots in the own cluster", PATIENCE, async || roots(&own).await).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let maps = remote.kubectl(&["get", "configmap", "--all-namespaces", "--output=name"]).await?;
    ensure!(!maps.contains("istio-"), "it is not listed, and has written, or taken a lock: {maps}");

    remote.apply(&system("elsewhere, Kubernetes")).await?;
    eventually("the roots in the remote cluster", PATIENCE, async || {
        ensure!(roots(&remote).await? == own_roots, "they are others");
        Ok(())
    })
    .await
    .with_context(|| mesh.log())?;
    let lock = ["get", "configmap", "istio-namespace-controller-election", "--namespace=istio-system"];
    remote.kubectl(&lock).await?;
    remote.kubectl(&["delete", "configmap", "istio-ca-root-cert", "--namespace=demo"]).await?;
    eventually("the roots again", PATIENCE, async || roots(&remote).await.map(drop)).await?;

    // Taken off the list, it leaves the cluster alone.
    remote.apply(&system("elsewhere")).await?;
    eventually("the end of writing", PATIENCE, async || {
        ensure!(
            mesh.log().contains("the roots are no longer written into a remote cluster"),
            "{}",
            mesh.log()
        );
        Ok(())
    })
    .await?;
    remote.kubectl(&["delete", "configmap", "istio-ca-root-cert", "--namespace=demo"]).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(roots(&remote).await.is_err(), "they were written all the same");
    Ok(())
}

/// What somebody gets who says that this token is from this cluster: the name in the certificate.
async fn certified(
    secure: SocketAddr,
    roots: &str,
    token: &str,
    cluster: &'static str,
) -> Result<Result<String, Status>> {
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?;
    let mut request = tonic::Request::new(IstioCertificateRequest { csr, ..Default::default() });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    request.metadata_mut().insert("clusterid", cluster.parse()?);
    let channel = channel(roots, secure, "istiod.istio-system.svc", None).await?;
    match IstioCertificateServiceClient::new(channel).create_certificate(request).await {
        Ok(answer) => {
            let leaf = Certificate::from_pem(answer.into_inner().cert_chain.concat().as_bytes())?;
            Ok(Ok(leaf.uris().join(" ")))
        }
        Err(status) => Ok(Err(status)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_remote_cluster_proves_its_own_service_accounts_alone() -> Result<()> {
    let (own, remote) = (start_cluster().await?, start_cluster().await?);
    own.kubectl(&["create", "namespace", "istio-system"]).await?;
    for cluster in [&own, &remote] {
        cluster.kubectl(&["create", "serviceaccount", "cart", "--namespace=demo"]).await?;
    }
    define_west(&own, &fs::read_to_string(remote.kubeconfig())?).await?;
    let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let state = tempfile::tempdir()?;
    let mesh = launch_with(&own, state.path(), &[&format!("--secureGRPCAddr={secure}")], &[]).await?;
    west_becomes(&mesh, "synced").await?;
    let roots = eventually("the roots", PATIENCE, async || {
        let arguments = ["get", "cm", "istio-ca-root-cert", "--namespace=demo", "--output=json"];
        let map: Value = serde_json::from_str(&own.kubectl(&arguments).await?)?;
        Ok(map["data"]["root-cert.pem"].as_str().context("no root")?.to_owned())
    })
    .await?;
    let token = async |cluster: &KubeApi| -> Result<String> {
        let arguments = ["create", "token", "cart", "--namespace=demo", "--audience=istio-ca"];
        Ok(cluster.kubectl(&arguments).await?.trim().to_owned())
    };
    let (of_own, of_remote) = (token(&own).await?, token(&remote).await?);
    for (token, cluster, counts) in [
        (&of_own, "Kubernetes", true),
        (&of_remote, "west", true),
        (&of_remote, "Kubernetes", false),
        (&of_own, "west", false),
        (&of_remote, "east", false),
    ] {
        match certified(secure, &roots, token, cluster).await? {
            Ok(name) => {
                ensure!(counts && name == "spiffe://cluster.local/ns/demo/sa/cart", "{cluster}: {name}");
            }
            Err(status) => {
                ensure!(
                    !counts && status.code() == Code::Unauthenticated,
                    "{cluster}: {status}\n{}",
                    mesh.log()
                );
            }
        }
    }
    Ok(())
}
