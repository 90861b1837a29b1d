//! A directory that looks like a proxy's container, and the agent in it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_parts::Part;
use canopus_testkit::{eventually, free_port, http};
use serde_json::json;
use tempfile::TempDir;

use crate::plane::Plane;

const PATIENCE: Duration = Duration::from_secs(30);

/// A container and its agent.
pub(crate) struct Place {
    directory: TempDir,
    command: Command,
    agent: Option<Child>,
    admin: u16,
    status: u16,
    readiness: u16,
}

impl Place {
    /// A gateway in the namespace `demo` with the service account `gateway`.
    pub(crate) fn new(plane: &Plane) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-agent-").tempdir()?;
        let secrets = directory.path().join("var/run/secrets");
        fs::create_dir_all(secrets.join("tokens"))?;
        fs::create_dir_all(secrets.join("istio"))?;
        fs::write(secrets.join("tokens/istio-token"), plane.token("demo", "gateway")?)?;
        fs::copy(plane.root(), secrets.join("istio/root-cert.pem"))
            .context("the root of the control plane")?;
        let (admin, status, readiness) = (free_port()?, free_port()?, free_port()?);
        let config = json!({
            "discoveryAddress": format!("localhost:{}", plane.xds.port()),
            "binaryPath": canopus_parts::find(Part::Envoy)?.join("envoy"),
            "proxyAdminPort": admin,
            "statusPort": status,
            "terminationDrainDuration": "1s",
            "concurrency": 1,
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopus-agent"));
        command.args(["proxy", "router", "--proxyLogLevel=info"]).current_dir(directory.path());
        command.envs([
            ("PROXY_CONFIG", config.to_string()),
            ("POD_NAME", "gateway-1".to_owned()),
            ("POD_NAMESPACE", "demo".to_owned()),
            ("SERVICE_ACCOUNT", "gateway".to_owned()),
            ("INSTANCE_IP", "127.0.0.1".to_owned()),
            ("ISTIO_META_CLUSTER_ID", "Kubernetes".to_owned()),
            ("ISTIO_METAJSON_LABELS", r#"{"istio": "ingressgateway"}"#.to_owned()),
            ("ENVOY_STATUS_PORT", readiness.to_string()),
            ("ENVOY_PROMETHEUS_PORT", free_port()?.to_string()),
            // A listener with mutual TLS, so that Envoy asks the agent for certificates.
            ("ENVOY_SECURE_METRICS_PORT", free_port()?.to_string()),
            ("ECC_SIGNATURE_ALGORITHM", "ECDSA".to_owned()),
            ("CLOUD_PLATFORM", "none".to_owned()),
        ]);
        Ok(Self { directory, command, agent: None, admin, status, readiness })
    }

    /// Sets a variable of the agent.
    pub(crate) fn set(&mut self, name: &str, text: &str) {
        self.command.env(name, text);
    }

    /// Takes a variable from the agent.
    pub(crate) fn unset(&mut self, name: &str) {
        self.command.env_remove(name);
    }

    /// Leaves the control plane's address to files.
    pub(crate) fn forget_address(&mut self) -> Result<()> {
        let variables = self.command.get_envs();
        let config =
            variables.filter(|(name, _)| *name == "PROXY_CONFIG").find_map(|(_, text)| text?.to_str());
        let mut config: serde_json::Value = serde_json::from_str(config.context("PROXY_CONFIG")?)?;
        config.as_object_mut().context("an object")?.remove("discoveryAddress");
        self.set("PROXY_CONFIG", &config.to_string());
        Ok(())
    }

    /// Has the machine's start script start the agent. Where the script goes to the root of the machine, the agent goes to that of
    /// the container.
    pub(crate) fn start_by_script(&mut self) -> Result<()> {
        let wrapper = self.path("canopus-agent");
        let (root, agent) = (self.directory.path().display(), env!("CARGO_BIN_EXE_canopus-agent"));
        fs::write(&wrapper, format!("#!/bin/sh\ncd {root}\nexec {agent} \"$@\"\n"))?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/bin/canopus-agent-start");
        let mut command = Command::new("sh");
        command.arg(script).arg("run");
        command.env("ISTIO_BIN_BASE", self.directory.path());
        command.env("ISTIO_SIDECAR_CONFIG", self.path("sidecar.env"));
        command.env("ISTIO_CLUSTER_CONFIG", self.path("cluster.env"));
        command.envs(self.command.get_envs().filter_map(|(name, text)| Some((name, text?))));
        self.command = command;
        self.start()
    }

    /// A path in the container.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the agent.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.directory.path().join("agent.log"))?;
        let child = self.command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        self.agent = Some(child);
        Ok(())
    }

    /// Waits until the agent says that Envoy is ready.
    pub(crate) async fn wait_ready(&self) -> Result<()> {
        let ready = async || self.status("/healthz/ready").await?.ok();
        eventually("readiness", PATIENCE, ready)
            .await
            .with_context(|| format!("the agent:\n{}", self.log()))?;
        Ok(())
    }

    /// An answer of the status server.
    pub(crate) async fn status(&self, path: &str) -> Result<http::Response> {
        http::get(SocketAddr::from((Ipv4Addr::LOCALHOST, self.status)), path).await
    }

    /// An answer of Envoy's admin interface.
    pub(crate) async fn admin(&self, path: &str) -> Result<String> {
        http::get(SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin)), path).await?.ok()
    }

    /// Where Envoy tells of its readiness.
    pub(crate) fn readiness_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.readiness))
    }

    /// What the agent and Envoy have written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }

    /// The process id of Envoy.
    pub(crate) fn envoy_id(&self) -> Result<u32> {
        let agent = self.agent.as_ref().context("the agent does not run")?.id();
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
        children.split_whitespace().next().context("the agent has no child")?.parse().context("an id")
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal(&mut self, signal: &str) -> Result<()> {
        let agent = self.agent.as_ref().context("the agent does not run")?.id();
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(agent.to_string()).status()?;
        ensure!(sent.success(), "kill -{signal} {agent}");
        Ok(())
    }

    /// Waits until the agent has ended, and gives its exit code.
    pub(crate) async fn wait_end(&mut self) -> Result<Option<i32>> {
        let agent = self.agent.as_mut().context("the agent does not run")?;
        let end = eventually("the agent's end", PATIENCE, async || {
            agent.try_wait()?.context("the agent still runs")
        });
        Ok(end.await?.code())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            // Envoy ends with it: that is what one of the tests is about.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// Whether a process exists and is not merely unburied.
pub(crate) fn is_alive(id: u32) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
