//! A gRPC client without a proxy takes its routes from `canopusd`.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/grpc.rs"]
mod grpc;
#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_testkit::{Called, GRPC_METHOD, GrpcCaller, eventually};
use grpc::GrpcServer;
use local_mesh::LocalMesh;
use serde_json::{Value, json};

const HOST: &str = "echo.default.svc.cluster.local";
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that answers with its name.
async fn server(name: &'static str) -> Result<GrpcServer> {
    GrpcServer::start(move |path, _| match path {
        GRPC_METHOD => Bytes::from(name.to_owned().encode_to_vec()),
        _ => Bytes::new(),
    })
    .await
}

/// The service with these endpoints, each a version of its own.
fn service(endpoints: &[(&str, &GrpcServer)]) -> String {
    let mut documents = format!(
        "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: echo, namespace: default}}
spec:
  hosts: [{HOST}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {{number: 7070, name: grpc, protocol: GRPC}}
  endpoints:
"
    );
    for (version, server) in endpoints {
        let port = server.address().port();
        documents +=
            &format!("  - {{address: 127.0.0.1, ports: {{grpc: {port}}}, labels: {{version: {version}}}}}\n");
    }
    documents
}

/// Weights of v1 and v2 for everybody; who says to be a tester gets v2.
fn routes(weights: [u32; 2]) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: echo, namespace: default}}
spec:
  host: {HOST}
  subsets:
  - {{name: v1, labels: {{version: v1}}}}
  - {{name: v2, labels: {{version: v2}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: echo, namespace: default}}
spec:
  hosts: [{HOST}]
  http:
  - match:
    - headers: {{x-tester: {{exact: \"yes\"}}}}
    route:
    - destination: {{host: {HOST}, subset: v2}}
  - route:
    - destination: {{host: {HOST}, subset: v1}}
      weight: {}
    - destination: {{host: {HOST}, subset: v2}}
      weight: {}
",
        weights[0], weights[1]
    )
}

/// What an agent writes for such a client, which it would serve from a socket of its own.
fn bootstrap(xds: SocketAddr) -> Value {
    json!({
        "xds_servers": [{
            "server_uri": xds.to_string(),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": {
            "id": "sidecar~127.0.0.9~client.default~default.svc.cluster.local",
            "metadata": {
                "GENERATOR": "grpc",
                "NAMESPACE": "default",
                "CLUSTER_ID": "Kubernetes",
                "INSTANCE_IPS": "127.0.0.9",
            },
        },
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
    })
}

/// Calls until exactly these servers answer and no call fails.
async fn answered_by(
    caller: &mut GrpcCaller,
    headers: &[(&str, &str)],
    expected: &[&str],
    mesh: &LocalMesh,
) -> Result<Called> {
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    eventually("answers", PATIENCE, async || {
        let called = caller.call(60, headers).await?;
        let names: BTreeSet<&str> = called.answers.keys().map(String::as_str).collect();
        ensure!(names == expected && called.failures.is_empty(), "{called:?}");
        Ok(called)
    })
    .await
    .with_context(|| format!("canopusd:\n{}", mesh.log()))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_grpc_client_follows_routes_and_endpoints() -> Result<()> {
    let (v1, v2, late) = (server("v1").await?, server("v2").await?, server("late").await?);
    let canopusd = Path::new(env!("CARGO_BIN_EXE_canopusd"));
    let mesh = LocalMesh::start(canopusd, "service.yaml", &service(&[("v1", &v1), ("v2", &v2)])).await?;
    let mut caller = GrpcCaller::start(&format!("xds:///{HOST}:7070"), &bootstrap(mesh.xds))?;
    answered_by(&mut caller, &[], &["v1", "v2"], &mesh).await?;

    mesh.write("routes.yaml", &routes([100, 0]))?;
    answered_by(&mut caller, &[], &["v1"], &mesh).await?;
    answered_by(&mut caller, &[("x-tester", "yes")], &["v2"], &mesh).await?;

    mesh.write("routes.yaml", &routes([20, 80]))?;
    let called = answered_by(&mut caller, &[], &["v1", "v2"], &mesh).await?;
    assert!(called.answers["v2"] > called.answers["v1"], "{called:?}");

    mesh.write("service.yaml", &service(&[("v1", &late), ("v2", &v2)]))?;
    answered_by(&mut caller, &[], &["late", "v2"], &mesh).await?;
    answered_by(&mut caller, &[("x-tester", "yes")], &["v2"], &mesh).await?;
    Ok(())
}
