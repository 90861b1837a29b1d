use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use canopus_parts::Part;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Process, http};

/// How long Envoy may take to open its admin port or to become ready; it needs less than a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Laid over every bootstrap: the admin port is the kernel's choice, and Envoy writes down which one it got.
const ADMIN: &str = r#"{"admin":{"address":{"socket_address":{"address":"127.0.0.1","port_value":0}}}}"#;

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
    directory: TempDir,
}

impl Envoy {
    /// Starts Envoy with a bootstrap in YAML or JSON and waits until it is ready, which includes its first xDS responses.
    pub async fn start(bootstrap: &str) -> Result<Self> {
        let mut envoy = Self::launch(bootstrap).await?;
        envoy.wait_ready().await?;
        Ok(envoy)
    }

    /// As [`Envoy::start`], but waits only for the admin port: for tests in which Envoy is not meant to become ready.
    pub async fn launch(bootstrap: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-envoy-").tempdir()?;
        let admin_path = directory.path().join("admin");
        let mut command = command(directory.path(), bootstrap)?;
        command.args(["--config-yaml", ADMIN, "--concurrency", "1", "--log-level", "info"]);
        command.arg("--admin-address-path").arg(&admin_path);
        // Connections that were made to a listener before it changed keep its old configuration until they are drained.
        command.args(["--drain-time-s", "1", "--drain-strategy", "immediate"]);

        let mut process = Process::spawn("envoy", &mut command, directory.path())?;
        let opened =
            process.eventually("Envoy's admin port", PATIENCE, async || written_address(&admin_path));
        let admin = opened.await?;
        Ok(Self { process, admin, directory })
    }

    /// Waits until Envoy is ready to serve.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let admin = self.admin;
        let ready = async || http::get(admin, "/ready").await?.ok();
        self.process.eventually("Envoy's readiness", PATIENCE, ready).await?;
        Ok(())
    }

    /// Checks a bootstrap, and all that is static in it, with `--mode validate`; the error is what Envoy says.
    pub async fn validate(bootstrap: &str) -> Result<()> {
        let directory = tempfile::Builder::new().prefix("canopus-envoy-").tempdir()?;
        let mut command = command(directory.path(), bootstrap)?;
        command.args(["--mode", "validate", "--log-level", "error"]);
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        ensure!(
            output.status.success(),
            "Envoy refuses the bootstrap:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Where the admin interface listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The directory that Envoy works in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The answer of an admin path.
    pub async fn ask(&self, path: &str) -> Result<String> {
        http::get(self.admin, path).await?.ok()
    }

    /// The whole configuration that Envoy has taken, endpoints included.
    pub async fn config_dump(&self) -> Result<Value> {
        self.ask_json("/config_dump?include_eds").await
    }

    /// Clusters with the state of their endpoints.
    pub async fn clusters(&self) -> Result<Value> {
        self.ask_json("/clusters?format=json").await
    }

    /// Counters and gauges by name.
    pub async fn stats(&self) -> Result<BTreeMap<String, u64>> {
        let text = self.ask("/stats").await?;
        let numbers = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(": ")?;
            // Histograms and texts have no one number.
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(numbers.collect())
    }

    /// How often it has refused an update, by the counters that are not zero.
    pub async fn rejections(&self) -> Result<BTreeMap<String, u64>> {
        let mut stats = self.stats().await?;
        stats.retain(|name, count| name.ends_with("update_rejected") && *count > 0);
        Ok(stats)
    }

    /// The address a listener is bound to, for listeners configured with port 0.
    pub async fn listener(&self, name: &str) -> Result<SocketAddr> {
        let listeners = self.ask_json("/listeners?format=json").await?;
        let named = listeners["listener_statuses"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|status| status["name"] == name)
            .with_context(|| format!("Envoy has no listener `{name}`: {listeners}"))?;
        let address = &named["local_address"]["socket_address"];
        let (host, port) = (address["address"].as_str(), address["port_value"].as_u64());
        let (Some(host), Some(port)) = (host, port) else {
            bail!("listener `{name}` has no socket address: {named}");
        };
        format!("{host}:{port}").parse().with_context(|| format!("address of listener `{name}`: {named}"))
    }

    /// All that Envoy has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    async fn ask_json(&self, path: &str) -> Result<Value> {
        let text = self.ask(path).await?;
        serde_json::from_str(&text).with_context(|| format!("Envoy's answer to {path} is not JSON"))
    }
}

fn command(directory: &Path, bootstrap: &str) -> Result<Command> {
    // YAML is a superset of JSON, and Envoy goes by the extension.
    let config = directory.join("bootstrap.yaml");
    fs::write(&config, bootstrap).context("writing the bootstrap")?;
    let mut command = Command::new(canopus_parts::find(Part::Envoy)?.join("envoy"));
    command.arg("--config-path").arg(config).arg("--disable-hot-restart").current_dir(directory);
    Ok(command)
}

fn written_address(path: &Path) -> Result<SocketAddr> {
    let text = fs::read_to_string(path).context("not written down yet")?;
    text.trim().parse().with_context(|| format!("`{text}` is not an address"))
}
