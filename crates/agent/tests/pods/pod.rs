//! A pod: a namespace, packet rules, an agent and its Envoy.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_parts::Part;
use canopus_testkit::{eventually, http};
use serde_json::json;
use tempfile::TempDir;

use crate::network::{Namespace, sh};
use crate::plane::{PORT, Plane};

const PATIENCE: Duration = Duration::from_secs(40);
/// The group that capture rules leave alone.
const PROXY_GROUP: &str = "1337";

/// Identity of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) account: &'static str,
    pub(crate) number: u8,
}

impl Workload {
    pub(crate) fn address(&self) -> String {
        format!("10.78.0.{}", self.number)
    }
}

/// Another agent than the one that was built with the tests.
pub(crate) static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The agent that runs in pods.
pub(crate) fn program() -> &'static Path {
    PROGRAM.get_or_init(|| PathBuf::from(env!("CARGO_BIN_EXE_canopus-agent")))
}

pub(crate) struct Pod {
    pub(crate) namespace: Namespace,
    pub(crate) workload: Workload,
    directory: TempDir,
    variables: Vec<(String, String)>,
    agent: Option<Child>,
}

impl Pod {
    /// Makes the pod, captures its traffic, and starts its agent.
    pub(crate) fn start(
        namespace: Namespace,
        workload: Workload,
        plane: &Plane,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-pod-").tempdir()?;
        let secrets = directory.path().join("var/run/secrets");
        fs::create_dir_all(secrets.join("tokens"))?;
        // Where the ConfigMap with revocation lists is mounted, which does not have to exist.
        fs::create_dir_all(secrets.join("istio/crl"))?;
        fs::write(secrets.join("tokens/istio-token"), plane.tokens.token("shop", workload.account, 3600)?)?;
        fs::copy(plane.root(), secrets.join("istio/root-cert.pem"))?;
        namespace
            .set_resolv_conf("nameserver 10.78.0.1\nsearch shop.svc.cluster.local\noptions ndots:1\n")?;
        let variables =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let mut pod = Self { namespace, workload, directory, variables, agent: None };
        pod.capture()?;
        pod.start_agent()?;
        Ok(pod)
    }

    fn capture(&self) -> Result<()> {
        let tools = canopus_parts::find(Part::Iptables)?;
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tools.display());
        let mut command = self.namespace.command(&program().to_string_lossy());
        command.args(["istio-iptables", "-u", PROXY_GROUP, "-b", "*", "-i", "*", "-d", "15020,15021,15090"]);
        command.args(["--redirect-dns", "--capture-all-dns"]).env("PATH", path);
        let output = command.output()?;
        ensure!(output.status.success(), "istio-iptables: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Starts the agent.
    pub(crate) fn start_agent(&mut self) -> Result<()> {
        let Workload { name, account, .. } = self.workload;
        let config = json!({
            "discoveryAddress": format!("10.78.0.1:{PORT}"),
            "binaryPath": canopus_parts::find(Part::Envoy)?.join("envoy"),
            "terminationDrainDuration": "3s",
            "concurrency": 1,
            // Everything is counted, so that a failure can be told from its traces.
            "proxyStatsMatcher": {"inclusionRegexps": [".*"]},
        });
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = self.namespace.command("setpriv");
        command.args(["--regid", PROXY_GROUP, "--clear-groups"]).arg(program());
        command.args(["proxy", "sidecar", "--proxyLogLevel=info"]).current_dir(self.directory.path());
        command.envs([
            ("PROXY_CONFIG", config.to_string()),
            ("POD_NAME", format!("{name}-1")),
            ("POD_NAMESPACE", "shop".to_owned()),
            ("SERVICE_ACCOUNT", account.to_owned()),
            ("INSTANCE_IP", self.workload.address()),
            ("ISTIOD_SAN", "istiod.istio-system.svc".to_owned()),
            ("ISTIO_META_CLUSTER_ID", "Kubernetes".to_owned()),
            ("ISTIO_META_DNS_CAPTURE", "true".to_owned()),
            ("ISTIO_META_INTERCEPTION_MODE", "REDIRECT".to_owned()),
            ("ISTIO_METAJSON_LABELS", format!(r#"{{"app": "{account}"}}"#)),
            ("ECC_SIGNATURE_ALGORITHM", "ECDSA".to_owned()),
            ("CLOUD_PLATFORM", "none".to_owned()),
        ]);
        command.envs(self.variables.iter().map(|(name, text)| (name, text)));
        self.agent = Some(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?);
        Ok(())
    }

    /// Ends the agent and starts another one with more variables, whose token is gone.
    pub(crate) fn restart_with(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        self.signal("TERM")?;
        self.wait_end()?;
        fs::remove_file(self.directory.path().join("var/run/secrets/tokens/istio-token"))?;
        let more = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        self.variables.extend(more);
        self.start_agent()
    }

    /// Waits until the agent says that Envoy is ready.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        let address: SocketAddr = format!("{}:15021", self.workload.address()).parse()?;
        let ready = self.namespace.run(async || {
            eventually("readiness", PATIENCE, async || http::get(address, "/healthz/ready").await?.ok()).await
        });
        ready.map(drop).with_context(|| format!("{}:\n{}", self.workload.name, self.log()))
    }

    /// An answer of the status port.
    pub(crate) fn status(&self, path: &str) -> Result<http::Response> {
        self.get(15020, path)
    }

    /// An answer of Envoy's admin interface.
    pub(crate) fn admin(&self, path: &str) -> Result<String> {
        self.get(15000, path)?.ok()
    }

    fn get(&self, port: u16, path: &str) -> Result<http::Response> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        self.namespace.run(async || http::get(address, path).await)
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("agent.log")
    }

    /// The pod's own directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What the agent and Envoy have written.
    pub(crate) fn log_whole(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The end of it.
    pub(crate) fn log(&self) -> String {
        let text = self.log_whole();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// The process id of the agent.
    pub(crate) fn agent_id(&self) -> Result<u32> {
        Ok(self.agent.as_ref().context("the agent does not run")?.id())
    }

    /// The process id of Envoy.
    pub(crate) fn envoy_id(&self) -> Result<u32> {
        let agent = self.agent_id()?;
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
        children.split_whitespace().next().context("the agent has no child")?.parse().context("an id")
    }

    /// The sum of Envoy's statistics that match.
    pub(crate) fn statistic(&self, pattern: &str) -> Result<u64> {
        let text = self.admin(&format!("/stats?filter={pattern}"))?;
        let values: Vec<u64> =
            text.lines().filter_map(|line| line.rsplit_once(": ")?.1.trim().parse().ok()).collect();
        ensure!(!values.is_empty(), "no statistic is like {pattern}: {text}");
        Ok(values.iter().sum())
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let agent = self.agent_id()?;
        sh("kill", &[&format!("-{signal}"), &agent.to_string()]).map(drop)
    }

    /// Waits until the agent has ended, and gives its exit code.
    pub(crate) fn wait_end(&mut self) -> Result<Option<i32>> {
        Ok(self.agent.as_mut().context("the agent does not run")?.wait()?.code())
    }

    /// What dig says.
    pub(crate) fn dig(&self, arguments: &[&str]) -> Result<String> {
        let dig = canopus_parts::find(Part::Dig)?.join("dig");
        let mut command: Command = self.namespace.command(dig.to_str().context("path")?);
        let output = command.args(["+tries=1", "+time=3"]).args(arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
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
