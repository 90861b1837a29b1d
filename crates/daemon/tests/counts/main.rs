//! What `canopusd` counts, as `/metrics` tells it, under Istio's names.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../../support/local_mesh.rs"]
mod local_mesh;

mod calls;
mod conflicts;
mod mishaps;
mod pushes;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_testkit::{Authority, eventually, free_port};
use canopus_xds::client::AdsClient;
use canopus_xds::session::Protocol;
use canopus_xds::types;
use local_mesh::LocalMesh;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

const PATIENCE: Duration = Duration::from_secs(30);
const SIDECAR: &str = "sidecar~10.0.0.1~app.demo~demo.svc.cluster.local";
const FILE: &str = "all.yaml";

/// A control plane on a file.
struct Lab {
    mesh: LocalMesh,
    authority: Authority,
    secure: SocketAddr,
}

impl Lab {
    /// Starts with these objects.
    async fn open(documents: &str) -> Result<Self> {
        Self::open_with(documents, "{}").await
    }

    /// Starts with these objects and this mesh configuration.
    async fn open_with(documents: &str, mesh_config: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let files = directory.path();
        let authority = Authority::new()?;
        let server = authority.server(NAME)?;
        fs::create_dir(files.join("objects"))?;
        for (name, text) in [
            ("objects/all.yaml", documents),
            ("mesh.yaml", mesh_config),
            ("root.crt", &authority.root()),
            ("server.crt", &server.certificate),
            ("server.key", &server.key),
        ] {
            fs::write(files.join(name), text)?;
        }
        let secure = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_canopusd")));
        command.args(["discovery", "--registries=Mock", "--snapshot="]);
        command.arg(format!("--secureGRPCAddr={secure}"));
        for (flag, file) in [
            ("configDir", "objects"),
            ("meshConfig", "mesh.yaml"),
            ("caCertFile", "root.crt"),
            ("tlsCertFile", "server.crt"),
            ("tlsKeyFile", "server.key"),
        ] {
            command.arg(format!("--{flag}={}", files.join(file).display()));
        }
        Ok(Self { mesh: LocalMesh::launch(command, directory).await?, authority, secure })
    }

    /// A connection on which nobody proves who they are.
    async fn channel(&self) -> Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.mesh.xds))?.connect().await?)
    }

    /// A connection of whoever has this identity.
    async fn channel_as(&self, identity: &str) -> Result<Channel> {
        let certified = self.authority.workload(&[identity])?;
        self.authority.channel(self.secure, NAME, Some(&certified)).await
    }

    /// Connects a sidecar that asks for everything it is told of, for as long as the answer is kept.
    async fn sidecar(&self) -> Result<JoinHandle<()>> {
        let node = Node { id: SIDECAR.to_owned(), ..Node::default() };
        Ok(follow(AdsClient::new(self.channel().await?, Protocol::Delta, node)))
    }

    /// Waits until each series has its value.
    async fn counts_are(&self, expected: &[(&str, &str)]) -> Result<()> {
        let counted = eventually("the counts", PATIENCE, async || {
            for (name, value) in expected {
                let counted = self.mesh.metric(name).await?;
                ensure!(counted == *value, "{name} is {counted}, not {value}");
            }
            Ok(())
        });
        counted.await.with_context(|| format!("the log of canopusd:\n{}", self.mesh.log()))
    }
}

/// The name in the certificate of the control plane.
const NAME: &str = "istiod.istio-system.svc";

/// Has a client ask for everything it is told of.
fn follow(mut client: AdsClient) -> JoinHandle<()> {
    client.follower_mut().watch_everything(types::CLUSTER);
    client.follower_mut().watch_everything(types::LISTENER);
    client.follower_mut().follow_references();
    tokio::spawn(async move { while let Ok(Some(_)) = client.step().await {} })
}
