//! `canopusd` on the node of a test's network.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use canopus_testkit::{Process, eventually, http};
use tempfile::TempDir;

use crate::network::{NODE, Namespace};
use crate::tokens::{TokenSigner, canopusd};

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PORT: u16 = 15012;

pub(crate) struct Plane {
    directory: TempDir,
    node: Namespace,
    process: Option<Process>,
    variables: Vec<(String, String)>,
    pub(crate) tokens: TokenSigner,
}

impl Plane {
    /// Starts it with these objects and variables.
    pub(crate) fn start(node: &Namespace, objects: &str, variables: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-pods-plane-").tempdir()?;
        fs::create_dir(directory.path().join("objects"))?;
        let variables =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let tokens = TokenSigner::new()?;
        let mut plane = Self { directory, node: node.clone(), process: None, variables, tokens };
        plane.write("objects.yaml", objects)?;
        plane.restart()?;
        Ok(plane)
    }

    /// Writes a file of objects.
    pub(crate) fn write(&self, name: &str, objects: &str) -> Result<()> {
        Ok(fs::write(self.directory.path().join("objects").join(name), objects)?)
    }

    /// Removes a file of objects.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.directory.path().join("objects").join(name))?)
    }

    /// Kills it without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, and waits until it is ready.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.kill();
        let http: SocketAddr = format!("{NODE}:8080").parse()?;
        let mut command = self.node.command(canopusd()?.to_str().context("path")?);
        command.arg("discovery").arg("--config").arg(self.directory.path().join("objects"));
        command.args([
            "--registries=Mock",
            "--snapshot=",
            "--httpsAddr=",
            "--grpcAddr=",
            // Debug answers are for whoever is on the node.
            "--monitoringAddr=127.0.0.1:15014",
        ]);
        command.arg(format!("--httpAddr={http}")).arg(format!("--secureGRPCAddr={NODE}:{PORT}"));
        command.env("JWT_RULE", self.tokens.rule()).current_dir(self.directory.path());
        command.envs(self.variables.iter().map(|(name, text)| (name, text)));
        let process = Process::spawn("canopusd", &mut command, self.directory.path())?;
        self.process = Some(process);
        self.node
            .run(async || {
                eventually("canopusd's readiness", PATIENCE, async || http::get(http, "/ready").await?.ok())
                    .await
            })
            .with_context(|| self.log())?;
        Ok(())
    }

    /// The directory of its own authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("objects-ca")
    }

    /// The root that its certificates have.
    pub(crate) fn root(&self) -> PathBuf {
        match self.variables.iter().find(|(name, _)| name == "ROOT_CA_DIR") {
            Some((_, plugged)) => Path::new(plugged).join("root-cert.pem"),
            None => self.authority().join("current/root-cert.pem"),
        }
    }

    /// The end of what it has logged.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log_end).unwrap_or_default()
    }
}
