use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_parts::Part;
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Method};
use crate::ports::{free_port, retry_on_taken_port};
use crate::{Process, eventually};

/// How long Consul may take to elect itself; it needs less than a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running Consul server of one node, in memory.
#[derive(Debug)]
pub struct Consul {
    process: Option<Process>,
    address: SocketAddr,
    directory: TempDir,
}

impl Consul {
    /// Starts a server and waits until it has a leader and knows itself.
    pub async fn start() -> Result<Self> {
        retry_on_taken_port(Self::start_once).await
    }

    async fn start_once() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-consul-").tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut consul = Self { process: None, address, directory };
        consul.resume().await?;
        Ok(consul)
    }

    /// Kills the server, and with it all it knew.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts a server that knows nothing, at the same address, and waits until it has a leader and knows itself.
    pub async fn resume(&mut self) -> Result<()> {
        let address = self.address;
        let mut command = Command::new(canopus_parts::find(Part::Consul)?.join("consul"));
        command
            .args(["agent", "-dev", "-node=test", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn"])
            .args(["-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1", "-serf-wan-port=-1"])
            .arg(format!("-http-port={}", address.port()))
            .arg(format!("-server-port={}", free_port()?))
            .arg(format!("-serf-lan-port={}", free_port()?))
            .arg("-hcl=disable_update_check = true")
            .current_dir(self.directory.path());
        let spawned = Process::spawn("consul", &mut command, self.directory.path())?;
        let process = self.process.insert(spawned);
        let registered = async || {
            let nodes = get(address, "/v1/catalog/nodes").await?;
            ensure!(nodes.as_array().is_some_and(|nodes| !nodes.is_empty()), "no node is registered yet");
            Ok(())
        };
        process.eventually("Consul's catalogue", PATIENCE, registered).await
    }

    /// Where the HTTP API listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer of an API path.
    pub async fn get(&self, path: &str) -> Result<Value> {
        get(self.address, path).await
    }

    /// Puts `body` to an API path.
    pub async fn put(&self, path: &str, body: &Value) -> Result<()> {
        http::request(Method::PUT, self.address, path).body(body.to_string()).send().await?.ok()?;
        Ok(())
    }

    /// Registers a service instance with the agent and waits until the catalogue has it.
    pub async fn register(&self, service: &Value) -> Result<()> {
        let id = service["ID"].as_str().or(service["Name"].as_str()).context("a service has a Name")?;
        let name = service["Name"].as_str().context("a service has a Name")?;
        self.put("/v1/agent/service/register", service).await?;
        eventually("the service in Consul's catalogue", PATIENCE, async || {
            let instances = self.get(&format!("/v1/catalog/service/{name}")).await?;
            let known =
                instances.as_array().into_iter().flatten().any(|instance| instance["ServiceID"] == id);
            ensure!(known, "{instances}");
            Ok(())
        })
        .await
    }

    /// All that Consul has logged; nothing while it is stopped.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }
}

async fn get(address: SocketAddr, path: &str) -> Result<Value> {
    let text = http::get(address, path).await?.ok()?;
    serde_json::from_str(&text).with_context(|| format!("Consul's answer to {path} is not JSON: {text}"))
}
