//! `canopusd` with an API server that is slow: no proxy is served a part of the world as the whole, neither in the first life
//! nor in one that begins with a snapshot.

#![allow(dead_code, reason = "the scripted server is shared with others")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../sources/tests/scripted/api.rs"]
mod api;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::{Api, CONFIG_MAPS, DEFINITIONS, ENTRIES};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_testkit::{Process, eventually, free_port, http};
use canopus_xds::client::{AdsStream, Update};
use canopus_xds::session::{Protocol, Request, Wish};
use canopus_xds::types;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(30);

/// Long enough to serve, had it been allowed.
const WHILE: Duration = Duration::from_secs(1);

const DEFINITION: &str = "serviceentries.networking.istio.io";

fn local() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

/// A control plane that may not be ready.
struct Plane {
    process: Process,
    xds: SocketAddr,
    http: SocketAddr,
    _directory: TempDir,
}

impl Plane {
    fn start(api: &Api, snapshot: &Path) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (xds, http) = (local()?, local()?);
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--kubeconfig").arg(api.kubeconfig()).arg("--snapshot").arg(snapshot);
        command.arg(format!("--grpcAddr={xds}")).arg(format!("--httpAddr={http}"));
        command.args(["--secureGRPCAddr=", "--httpsAddr=", "--monitoringAddr="]);
        command.env("CANOPUS_CONTROLLERS", "off");
        let process = Process::spawn("canopusd", &mut command, directory.path())?;
        Ok(Self { process, xds, http, _directory: directory })
    }

    async fn is_ready(&self) -> Result<()> {
        http::get(self.http, "/ready").await?.ok().map(drop)
    }

    async fn becomes_ready(&mut self) -> Result<()> {
        let http = self.http;
        let ready = async || http::get(http, "/ready").await?.ok().map(drop);
        self.process.eventually("readiness", PATIENCE, ready).await
    }

    /// For a while nobody is served.
    async fn serves_nobody(&mut self, why: &str) -> Result<()> {
        // It runs and answers, so that silence of its other port means something.
        let http = self.http;
        let answers = async || http::get(http, "/ready").await.map(drop);
        self.process.eventually("an answer about readiness", PATIENCE, answers).await?;
        let until = tokio::time::Instant::now() + WHILE;
        while tokio::time::Instant::now() < until {
            ensure!(self.is_ready().await.is_err(), "it is ready although {why}");
            ensure!(TcpStream::connect(self.xds).await.is_err(), "proxies can connect although {why}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The first answer to a proxy that has these clusters from an earlier life.
    async fn clusters_of_one_that_returns(&self, held: &[&str]) -> Result<Update> {
        let channel = Endpoint::from_shared(format!("http://{}", self.xds))?.connect().await?;
        let id = "sidecar~10.0.0.1~proxy.a~a.svc.cluster.local".to_owned();
        let held: BTreeMap<String, String> =
            held.iter().map(|name| ((*name).to_owned(), "0123456789abcdef".to_owned())).collect();
        let request = Request {
            type_url: types::CLUSTER.to_owned(),
            node: Some(Node { id, ..Node::default() }),
            nonce: String::new(),
            error: None,
            wish: Wish::Change { subscribe: Vec::new(), unsubscribe: Vec::new(), held },
        };
        let mut stream = AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), request).await?;
        stream.next().await?.context("the stream ended")
    }
}

const CLUSTERS: [&str; 2] = ["outbound|80||one.example.com", "outbound|80||two.example.com"];

/// What the scripted server has of a host, with a port.
fn set_entries(api: &Api) {
    api.set(CONFIG_MAPS, "map", "x");
    api.set(DEFINITIONS, DEFINITION, "x");
    api.set(ENTRIES, "one", "one.example.com");
    api.set(ENTRIES, "two", "two.example.com");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_served_before_every_kind_that_the_server_has_is_complete() -> Result<()> {
    let (api, state) = (Api::start().await, tempfile::tempdir()?);
    set_entries(&api);
    api.hold(&[DEFINITIONS, ENTRIES]);
    let mut plane = Plane::start(&api, state.path())?;
    plane.serves_nobody("the kinds of the server are not known").await?;
    api.hold(&[ENTRIES]);
    plane.serves_nobody("a kind of the server was not listed").await?;
    api.hold(&[]);
    plane.becomes_ready().await?;
    // A proxy that had everything keeps everything.
    let told = plane.clusters_of_one_that_returns(&CLUSTERS).await?;
    let names = told.names();
    ensure!(CLUSTERS.iter().all(|cluster| names.contains(cluster)), "{names:?}");
    ensure!(told.removed.is_empty(), "{:?} go", told.removed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_the_last_run_knew_is_served_while_the_server_is_slow() -> Result<()> {
    let (api, state) = (Api::start().await, tempfile::tempdir()?);
    set_entries(&api);
    let mut first = Plane::start(&api, state.path())?;
    first.becomes_ready().await?;
    eventually("a snapshot with both entries", PATIENCE, async || {
        let files = std::fs::read_dir(state.path())?.map(|file| Ok(std::fs::read_to_string(file?.path())?));
        let texts = files.collect::<Result<Vec<_>>>()?;
        ensure!(
            texts.iter().any(|text| text.contains("one.example.com") && text.contains("two.example.com"))
        );
        Ok(())
    })
    .await?;
    drop(first);

    for held in [&[DEFINITIONS][..], &[ENTRIES], &[DEFINITIONS, ENTRIES]] {
        api.hold(held);
        let mut plane = Plane::start(&api, state.path())?;
        plane.becomes_ready().await?;
        let told = plane.clusters_of_one_that_returns(&CLUSTERS).await?;
        let names = told.names();
        ensure!(CLUSTERS.iter().all(|cluster| names.contains(cluster)), "{held:?}: {names:?}");
        ensure!(told.removed.is_empty(), "{held:?}: {:?} go", told.removed);
    }
    Ok(())
}
