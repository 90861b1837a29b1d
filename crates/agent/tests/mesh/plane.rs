//! `canopusd` on a directory, with an authority that believes tokens of a key made for the test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use canopus_testkit::{Process, free_port, http};
use tempfile::TempDir;

use crate::tokens::{TokenSigner, canopusd};

const PATIENCE: Duration = Duration::from_secs(30);

/// A running control plane.
pub(crate) struct Plane {
    directory: TempDir,
    tokens: TokenSigner,
    process: Option<Process>,
    http: SocketAddr,
    /// Where proxies connect with TLS.
    pub(crate) xds: SocketAddr,
    /// Where the gateway that it configures listens.
    pub(crate) gateway: SocketAddr,
}

fn local() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

impl Plane {
    /// Starts it with a gateway that routes to this port.
    pub(crate) async fn start(port: u16) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-agent-plane-").tempdir()?;
        fs::create_dir(directory.path().join("objects"))?;
        let tokens = TokenSigner::new()?;
        let mut plane =
            Self { directory, tokens, process: None, http: local()?, xds: local()?, gateway: local()? };
        plane.route_to(port)?;
        plane.restart().await?;
        Ok(plane)
    }

    /// Routes the gateway to this port.
    pub(crate) fn route_to(&self, port: u16) -> Result<()> {
        let documents = include_str!("gateway.yaml")
            .replace("GATEWAY_PORT", &self.gateway.port().to_string())
            .replace("UPSTREAM_PORT", &port.to_string());
        Ok(fs::write(self.directory.path().join("objects/gateway.yaml"), documents)?)
    }

    /// Kills it without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same directory and ports.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = Command::new(canopusd()?);
        command.arg("discovery").arg("--config").arg(self.directory.path().join("objects"));
        command.args([
            "--registries=Mock",
            "--snapshot=",
            "--httpsAddr=",
            "--grpcAddr=",
            "--monitoringAddr=",
        ]);
        command.arg(format!("--httpAddr={}", self.http)).arg(format!("--secureGRPCAddr={}", self.xds));
        command.env("JWT_RULE", self.tokens.rule());
        let mut process = Process::spawn("canopusd", &mut command, self.directory.path())?;
        let ready = async || http::get(self.http, "/ready").await?.ok();
        process.eventually("canopusd's readiness", PATIENCE, ready).await?;
        self.process = Some(process);
        Ok(())
    }

    /// The root that its certificates have.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("objects-ca/current/root-cert.pem")
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    /// A token of a service account.
    pub(crate) fn token(&self, namespace: &str, account: &str) -> Result<String> {
        self.tokens.token(namespace, account, 3600)
    }

    /// A token that counted until an hour ago.
    pub(crate) fn expired_token(&self, namespace: &str, account: &str) -> Result<String> {
        self.tokens.token(namespace, account, -3600)
    }
}
