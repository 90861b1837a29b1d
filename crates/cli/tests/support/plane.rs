//! A control plane on a directory of objects, and clients that are sidecars of it.
#![allow(dead_code, reason = "each of the tests that share this uses a part of it")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_testkit::{Process, eventually, free_port, http};
use canopus_xds::client::AdsClient;
use canopus_xds::session::Protocol;
use canopus_xds::types::{CLUSTER, LISTENER};
use tempfile::TempDir;
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(20);

/// A `canopusd` on files, with its debug port; it ends when this is dropped.
pub(crate) struct Plane {
    pub(crate) directory: TempDir,
    pub(crate) process: Process,
    xds: u16,
    http: SocketAddr,
}

impl Plane {
    /// Starts it with these files of objects.
    pub(crate) async fn start(files: &[(String, String)]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-cli-").tempdir()?;
        let objects = directory.path().join("objects");
        fs::create_dir(&objects)?;
        for (name, text) in files {
            fs::write(objects.join(name), text)?;
        }
        let (xds, http) = (free_port()?, SocketAddr::from(([127, 0, 0, 1], free_port()?)));
        let mut command = Command::new(beside("canopusd")?);
        command.arg("discovery").arg("--config").arg(&objects).args([
            "--registries=Mock",
            "--snapshot=",
            "--httpsAddr=",
            "--secureGRPCAddr=",
            "--monitoringAddr=",
        ]);
        command.arg(format!("--grpcAddr=127.0.0.1:{xds}")).arg(format!("--httpAddr={http}"));
        command.current_dir(directory.path());
        let process = Process::spawn("canopusd", &mut command, directory.path())?;
        eventually("canopusd", PATIENCE, async || http::get(http, "/ready").await?.ok()).await?;
        Ok(Self { directory, process, xds, http })
    }

    /// Where its objects are.
    pub(crate) fn objects(&self) -> PathBuf {
        self.directory.path().join("objects")
    }

    /// Where it answers questions.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// The sidecar of a pod with a service account of the same name. It wants what a sidecar wants.
    pub(crate) async fn sidecar(&self, name: &str, namespace: &str, address: &str) -> Result<AdsClient> {
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.xds))?.connect().await?;
        let mut client = AdsClient::new(channel, Protocol::Delta, node(name, namespace, address));
        let follower = client.follower_mut();
        follower.follow_references();
        follower.watch_everything(CLUSTER);
        follower.watch_everything(LISTENER);
        Ok(client)
    }
}

fn node(name: &str, namespace: &str, address: &str) -> Node {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let labels = Struct { fields: [("app".to_owned(), text(name))].into() };
    let fields = [
        ("ISTIO_VERSION", text("1.32.0")),
        ("NAME", text(&format!("{name}-1"))),
        ("NAMESPACE", text(namespace)),
        ("SERVICE_ACCOUNT", text(name)),
        ("CLUSTER_ID", text("Kubernetes")),
        ("INSTANCE_IPS", text(address)),
        ("MESH_ID", text("cluster.local")),
        ("NODE_NAME", text("n1")),
        ("LABELS", Value { kind: Some(Kind::StructValue(labels)) }),
    ];
    Node {
        id: format!("sidecar~{address}~{name}-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct { fields: fields.map(|(key, value)| (key.to_owned(), value)).into() }),
        ..Node::default()
    }
}

/// A program that was built beside the tool.
fn beside(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_canopus")).with_file_name(name);
    ensure!(path.exists(), "{} is missing; run `cargo build --workspace --bins`", path.display());
    Ok(path)
}
