//! A directory with a mesh, and `canopus` on it.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use canopus_parts::Part;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(90);

/// A program that was built beside the sample's.
pub(crate) fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_storefront")).with_file_name(name)
}

/// The path on which programs are looked for.
pub(crate) fn search_path() -> Result<OsString> {
    #[expect(clippy::disallowed_methods, reason = "programs are looked for where the user's shell does")]
    let own = std::env::var_os("PATH").unwrap_or_default();
    let programs = beside("storefront").parent().context("a directory")?.to_owned();
    // Loopback mode does without packet rules.
    let iptables = canopus_parts::find(Part::Iptables).ok();
    let tools = [canopus_parts::find(Part::Envoy)?, programs].into_iter().chain(iptables);
    Ok(std::env::join_paths(tools.chain(std::env::split_paths(&own)))?)
}

/// `canopus`.
pub(crate) fn canopus() -> Result<Command> {
    let mut command = Command::new(beside("canopus"));
    command.env("PATH", search_path()?);
    Ok(command)
}

/// A mesh in a directory of its own; ended when dropped.
pub(crate) struct Lab {
    directory: TempDir,
    pub(crate) port: u16,
}

impl Lab {
    /// A mesh of one gateway and one program, and further lines of its file.
    pub(crate) fn small(more: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("mesh-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mesh = format!(
            "name: small\ngateways:\n- {{name: edge, ports: [{port}]}}\nworkloads:\n- {{name: pay, command: [storefront, payment], \
             port: 8080}}\n{more}"
        );
        fs::write(directory.path().join("mesh.yaml"), mesh)?;
        fs::create_dir(directory.path().join("config"))?;
        let gateway = format!(
            "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec:
  selector: {{istio: edge}}
  servers: [{{hosts: ['*'], port: {{name: http, number: {port}, protocol: HTTP}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: pay, namespace: default}}
spec:
  gateways: [edge]
  hosts: ['*']
  http: [{{route: [{{destination: {{host: pay}}}}]}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: default, namespace: default}}
spec: {{mtls: {{mode: STRICT}}}}
"
        );
        fs::write(directory.path().join("config/gateway.yaml"), gateway)?;
        Ok(Self { directory, port })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a command of `canopus` that takes the mesh with `-C`, and gives what was said if it succeeds.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.try_run(arguments)?;
        ensure!(output.status.success(), "canopus {arguments:?}: {}", text(&output));
        Ok(text(&output))
    }

    /// Runs a command of `canopus` that takes the mesh with `-C`.
    pub(crate) fn try_run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(canopus()?.args(arguments).arg("-C").arg(self.path()).output()?)
    }

    /// Runs a command of `canopus` that names the mesh last.
    pub(crate) fn canopus(&self, arguments: &[&str]) -> Result<Output> {
        Ok(canopus()?.args(arguments).arg(self.path()).output()?)
    }

    /// Starts the mesh in the background, and gives what was said.
    pub(crate) fn up(&self, arguments: &[&str]) -> Result<String> {
        let output = self.canopus(&[&["up", "--detach"], arguments].concat())?;
        let said = text(&output);
        ensure!(output.status.success(), "canopus up: {said}");
        Ok(said)
    }

    pub(crate) fn down(&self) -> Result<String> {
        let output = self.canopus(&["down"])?;
        ensure!(output.status.success(), "canopus down: {}", text(&output));
        Ok(text(&output))
    }

    /// Asks the gateway until it answers with success.
    pub(crate) fn answer(&self) -> Result<String> {
        let url = format!("http://127.0.0.1:{}/charge", self.port);
        eventually(|| {
            let output = Command::new("curl").args(["-sS", "--fail", "--max-time", "5", &url]).output()?;
            ensure!(output.status.success(), "{}", text(&output));
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }

    /// The mesh's state as `canopus status` tells it.
    pub(crate) fn status(&self) -> Result<serde_json::Value> {
        let output = self.try_run(&["status", "-o", "json"])?;
        serde_json::from_slice(&output.stdout).with_context(|| text(&output))
    }

    /// What `canopus status` tells of a process.
    pub(crate) fn unit(&self, name: &str) -> Result<serde_json::Value> {
        let status = self.status()?;
        let units = status["units"].as_array().cloned().unwrap_or_default();
        units.into_iter().find(|unit| unit["name"] == name).with_context(|| format!("{name} in {status}"))
    }

    /// Waits until a process has been started so often again and is ready.
    pub(crate) fn ready_again(&self, name: &str, restarts: u64) -> Result<()> {
        eventually(|| {
            let unit = self.unit(name)?;
            ensure!(unit["state"] == "ready" && unit["restarts"].as_u64() >= Some(restarts), "{unit}");
            Ok(())
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.down();
    }
}

/// Both streams.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Tries until it succeeds.
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > PATIENCE => bail!("not within {PATIENCE:?}: {error:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
