//! `canopusd` as a process on a real API server: which objects it writes, what its ports present, whose tokens it believes.
//!
//! One API server serves all cases. A case names the settings of the control plane it is about; the control plane that runs
//! is used if it has those settings and nobody has tampered with its objects, else it is replaced, and its objects removed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use canopus_base::tree::{Node, Value};
use canopus_parts::Part;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::{KubeApi, Process, channel, eventually, free_port, http};
use regex::Regex;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::{print, text};
use crate::tool;

/// Nothing on loopback takes this long; a busy machine might.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const SYSTEM: &str = "istio-system";

/// The namespaces that cases are about, and the account that asks for certificates.
const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: demo}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: demo}}
";

/// What a recording says about the control plane that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Setup {
    environment: BTreeMap<String, String>,
    mesh: BTreeMap<String, Json>,
}

impl Setup {
    /// The settings of a recording, which has them as fields or in its description.
    pub(super) fn read(recorded: &Node) -> anyhow::Result<Self> {
        let described = text(recorded, "/description");
        let mut setup = Self::default();
        for found in Regex::new(r"([A-Z][A-Z_]+)=(\S+?),?(?:\s|$)")?.captures_iter(described) {
            setup.environment.insert(found[1].to_owned(), found[2].to_owned());
        }
        if let Some(Value::Map(environment)) = recorded.get("environment").map(|node| &node.value) {
            for entry in environment {
                let value = entry.node.as_str().unwrap_or_default();
                setup.environment.insert(entry.key.to_string(), value.to_owned());
            }
        }
        let named = |pattern: &str| -> anyhow::Result<Option<String>> {
            Ok(Regex::new(pattern)?.captures(described).map(|found| found[1].to_owned()))
        };
        if let Some(domain) = named(r"trustDomain (\S+)")? {
            setup.mesh.insert("trustDomain".to_owned(), domain.into());
        }
        if let Some(address) = named(r"discoveryAddress (\S+)")? {
            setup.mesh.insert("defaultConfig".to_owned(), json!({"discoveryAddress": address}));
        }
        if let Some(Value::Map(mesh)) = recorded.get("meshConfig").map(|node| &node.value) {
            setup.mesh.extend(mesh.iter().map(|entry| (entry.key.to_string(), entry.node.to_json())));
        }
        Ok(setup)
    }
}

/// A running control plane.
struct Plane {
    setup: Setup,
    process: Process,
    /// The port with TLS, the one without, and the webhooks'.
    secure: SocketAddr,
    plain: SocketAddr,
    webhooks: SocketAddr,
    _directory: TempDir,
}

/// An API server and the control plane that runs on it.
pub(super) struct Installation {
    runtime: Runtime,
    kube: KubeApi,
    plane: Option<Plane>,
}

/// Which port of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Secure,
    Webhooks,
}

/// Whether there is an API server to start.
pub(super) fn is_possible() -> bool {
    canopus_parts::find(Part::Kube).is_ok()
}

impl Installation {
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let kube = runtime.block_on(async {
            let kube = KubeApi::start().await?;
            kube.apply(OBJECTS).await?;
            anyhow::Ok(kube)
        })?;
        Ok(Self { runtime, kube, plane: None })
    }

    /// Runs a control plane with these settings.
    pub(super) fn set_up(&mut self, setup: &Setup) -> anyhow::Result<()> {
        if self.plane.as_ref().is_some_and(|plane| plane.setup == *setup) {
            return Ok(());
        }
        self.clear()?;
        self.plane = Some(self.runtime.block_on(launch(&self.kube, setup.clone()))?);
        Ok(())
    }

    /// Ends the control plane and removes what it wrote, locks included: it had no chance to give them back.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        if self.plane.take().is_none() {
            return Ok(());
        }
        let system = format!("--namespace={SYSTEM}");
        self.kubectl(&["delete", "secret,lease", "--all", &system])?;
        self.kubectl(&["delete", "configmap", "--all", "--all-namespaces"])?;
        Ok(())
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.runtime.block_on(self.kube.kubectl(arguments))
    }

    /// An object of the cluster; `None` if there is no such one.
    pub(super) fn object(&self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Option<Json>> {
        let namespace = format!("--namespace={namespace}");
        let found = self.kubectl(&["get", kind, name, &namespace, "--output=json", "--ignore-not-found"])?;
        if found.trim().is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&found)?)) }
    }

    /// The names of the objects of a kind in the namespace of the control plane.
    pub(super) fn names(&self, kind: &str) -> anyhow::Result<Vec<String>> {
        let found = self.kubectl(&["get", kind, &format!("--namespace={SYSTEM}"), "--output=name"])?;
        let names = found.lines().filter_map(|line| line.rsplit_once('/'));
        Ok(names.map(|(_, name)| name.to_owned()).collect())
    }

    /// Makes namespaces that are not there yet.
    pub(super) fn create_namespaces(&self, names: &[&str]) -> anyhow::Result<()> {
        let documents = names.iter().map(|name| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string()
        });
        let documents: Vec<String> = documents.collect();
        self.runtime.block_on(self.kube.apply(&documents.join("\n---\n")))
    }

    /// Looks for something until it is there or the time is over.
    pub(super) fn wait_for<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let deadline = std::time::Instant::now() + patience;
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if std::time::Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn plane(&self) -> anyhow::Result<&Plane> {
        self.plane.as_ref().context("no control plane runs")
    }

    /// The end of what the control plane has logged.
    pub(super) fn log(&self) -> String {
        self.plane.as_ref().map(|plane| plane.process.log_end()).unwrap_or_default()
    }

    /// What OpenSSL finds at a port.
    pub(super) fn shake_hands(&self, port: Port) -> anyhow::Result<Json> {
        let plane = self.plane()?;
        let address = if port == Port::Secure { plane.secure } else { plane.webhooks };
        let whole = handshake(address, None)?;
        let line = |beginning: &str| whole.lines().find_map(|line| line.strip_prefix(beginning));
        let version = line("New, ").and_then(|rest| rest.split(',').next()).unwrap_or_default();
        let begin = whole.find("-----BEGIN CERTIFICATE-----").context("no certificate")?;
        let mut printed = json!({
            "alpnSelected": line("ALPN protocol: ").unwrap_or_default(),
            "tlsVersion": version,
            "certificate": print::certificate_of_pem(&whole[begin..])?,
        });
        // Ours never outlives its root, which is older by the time the start took: istiod's may.
        let validity = printed["certificate"]["validitySeconds"].as_u64().context("no validity")?;
        printed["certificate"]["validitySeconds"] = validity.next_multiple_of(60).into();
        for (name, flag) in [("tls1.1", "-tls1_1"), ("tls1.2", "-tls1_2"), ("tls1.3", "-tls1_3")] {
            let verdict = if handshake(address, Some(flag)).is_ok() { "accepted" } else { "rejected" };
            printed[name] = verdict.into();
        }
        Ok(printed)
    }

    /// Asks for a certificate as a recording describes, over a real connection.
    pub(super) fn create_certificate(
        &self,
        recorded: &Node,
        message: IstioCertificateRequest,
    ) -> anyhow::Result<Result<Vec<String>, tonic::Status>> {
        let described = text(recorded, "/description");
        let mut request = tonic::Request::new(message);
        if !described.contains("no token") {
            let token =
                self.kubectl(&["create", "token", "web", "--namespace=demo", "--audience=istio-ca"])?;
            request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
        }
        let cluster = match described.split_once("clusterid metadata ") {
            Some((_, "empty")) => Some(""),
            Some((_, which)) if which.starts_with("equal to the own") => Some("Kubernetes"),
            Some(_) => Some("elsewhere"),
            None => None,
        };
        if let Some(cluster) = cluster {
            request.metadata_mut().insert("clusterid", cluster.parse()?);
        }
        let is_plain = text(recorded, "/request/transport") == "plaintext";
        self.runtime.block_on(async {
            let channel = if is_plain { self.plain_channel().await? } else { self.channel().await? };
            let mut client = IstioCertificateServiceClient::new(channel);
            Ok(client.create_certificate(request).await.map(|answer| answer.into_inner().cert_chain))
        })
    }

    async fn plain_channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.plane()?.plain))?.connect().await?)
    }

    async fn channel(&self) -> anyhow::Result<Channel> {
        let roots = eventually("the root of the namespace", PATIENCE, async || {
            let map = ["get", "configmap", "istio-ca-root-cert", "--namespace=demo", "--output=json"];
            let map: Json = serde_json::from_str(&self.kube.kubectl(&map).await?)?;
            map["data"]["root-cert.pem"].as_str().map(str::to_owned).context("no root")
        });
        channel(&roots.await?, self.plane()?.secure, "istiod.istio-system.svc", None).await
    }
}

async fn launch(kube: &KubeApi, setup: Setup) -> anyhow::Result<Plane> {
    let directory = tempfile::Builder::new().prefix("canopus-live-ca-").tempdir()?;
    let mesh = directory.path().join("mesh.yaml");
    fs::write(&mesh, serde_json::to_string(&setup.mesh)?)?;
    let address = || anyhow::Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
    let (secure, plain, webhooks) = (address()?, address()?, address()?);
    let (admin, monitoring) = (address()?, address()?);
    let mut command = tool::canopusd()?;
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot=");
    command.arg("--meshConfig").arg(mesh);
    for (flag, address) in [
        ("secureGRPCAddr", secure),
        ("grpcAddr", plain),
        ("httpsAddr", webhooks),
        ("httpAddr", admin),
        ("monitoringAddr", monitoring),
    ] {
        command.arg(format!("--{flag}={address}"));
    }
    command.current_dir(directory.path()).env("POD_NAME", "istiod-1").env("POD_NAMESPACE", SYSTEM);
    command.envs(&setup.environment);
    let mut process = Process::spawn("canopusd", &mut command, directory.path())?;
    let ready = async || http::get(admin, "/ready").await?.ok();
    process.eventually("canopusd's readiness", PATIENCE, ready).await?;
    Ok(Plane { setup, process, secure, plain, webhooks, _directory: directory })
}

/// What OpenSSL says of a handshake; an error if there was none.
fn handshake(address: SocketAddr, version: Option<&str>) -> anyhow::Result<String> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-servername", "istiod.istio-system.svc"]);
    // OpenSSL itself does not offer old versions unless it may be careless.
    command.args(["-alpn", "h2", "-cipher", "DEFAULT@SECLEVEL=0"]).args(version);
    let output = command.stdin(Stdio::null()).output().context("openssl")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && !said.contains("Cipher is (NONE)"), "{address}: no handshake");
    Ok(said)
}
