//! A mesh on this machine without Kubernetes: `canopusd` on a directory of files, and stock Envoys attached to it.

pub(crate) mod bootstrap;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use canopus_testkit::{Authority, Envoy, Process, free_port, http};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Channel;

use bootstrap::Bootstrap;

const PATIENCE: Duration = Duration::from_secs(20);

/// A running control plane and the directory it reads.
pub(crate) struct LocalMesh {
    directory: TempDir,
    command: Command,
    process: Option<Process>,
    /// Where proxies connect.
    pub(crate) xds: SocketAddr,
    /// Where readiness and debug endpoints are.
    pub(crate) http: SocketAddr,
    monitoring: SocketAddr,
    secure: Option<Secure>,
}

/// The ports with TLS, and who certifies whoever connects to them.
struct Secure {
    /// Where proxies that prove who they are connect.
    xds: SocketAddr,
    /// Where the webhooks are.
    webhooks: SocketAddr,
    authority: Authority,
}

/// The name in the certificate of the control plane.
const NAME: &str = "istiod.istio-system.svc";

impl LocalMesh {
    /// Starts `canopusd` on a directory with one file and waits until it is ready.
    pub(crate) async fn start(canopusd: &Path, file: &str, documents: &str) -> Result<Self> {
        Self::start_with(canopusd, file, documents, &[]).await
    }

    /// Like [`LocalMesh::start`], with these environment variables.
    pub(crate) async fn start_with(
        canopusd: &Path,
        file: &str,
        documents: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let objects = directory.path().join("objects");
        fs::create_dir(&objects)?;
        fs::write(objects.join(file), documents)?;
        let mut command = Command::new(canopusd);
        command.arg("discovery").arg("--configDir").arg(&objects).args(["--registries=Mock", "--snapshot="]);
        command.envs(environment.iter().copied());
        Self::launch(command, directory).await
    }

    /// Like [`LocalMesh::start_with`], for gateways that prove with a certificate that they are `demo/gateway`.
    pub(crate) async fn start_secure(
        canopusd: &Path,
        file: &str,
        documents: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let files = directory.path().to_owned();
        fs::create_dir(files.join("objects"))?;
        fs::write(files.join("objects").join(file), documents)?;
        let authority = Authority::new()?;
        let server = authority.server(NAME)?;
        for (name, pem) in [
            ("root.crt", &authority.root()),
            ("server.crt", &server.certificate),
            ("server.key", &server.key),
        ] {
            fs::write(files.join(name), pem)?;
        }
        let xds = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let webhooks = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = Command::new(canopusd);
        command.arg("discovery").arg("--configDir").arg(files.join("objects"));
        command.args(["--registries=Mock", "--snapshot="]);
        command.arg(format!("--secureGRPCAddr={xds}")).arg(format!("--httpsAddr={webhooks}"));
        for (flag, file) in
            [("caCertFile", "root.crt"), ("tlsCertFile", "server.crt"), ("tlsKeyFile", "server.key")]
        {
            command.arg(format!("--{flag}={}", files.join(file).display()));
        }
        command.envs(environment.iter().copied());
        let mut mesh = Self::launch(command, directory).await?;
        mesh.secure = Some(Secure { xds, webhooks, authority });
        Ok(mesh)
    }

    /// Starts `canopusd` as `command` says, less its ports, and waits until it is ready.
    pub(crate) async fn launch(mut command: Command, directory: TempDir) -> Result<Self> {
        let xds = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let monitoring = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        command.arg("--grpcAddr").arg(xds.to_string()).arg("--httpAddr").arg(http.to_string());
        command.arg(format!("--monitoringAddr={monitoring}"));
        // Ports of others would be in the way of a second mesh on this machine.
        for closed in ["--secureGRPCAddr=", "--httpsAddr="] {
            if !command.get_args().any(|given| given.to_string_lossy().starts_with(closed)) {
                command.arg(closed);
            }
        }
        let mut mesh = Self { directory, command, process: None, xds, http, monitoring, secure: None };
        mesh.restart().await?;
        Ok(mesh)
    }

    /// Kills `canopusd`, if it runs, without a chance to say goodbye, and starts it again.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut process = Process::spawn("canopusd", &mut self.command, self.directory.path())?;
        let ready = async || http::get(self.http, "/ready").await?.ok();
        process.eventually("canopusd's readiness", PATIENCE, ready).await?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills `canopusd` without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// The directory `canopusd` reads.
    pub(crate) fn objects(&self) -> PathBuf {
        self.directory.path().join("objects")
    }

    /// Replaces a file, as an editor would: written beside it, then moved.
    pub(crate) fn write(&self, file: &str, documents: &str) -> Result<()> {
        let scratch = self.objects().join(format!(".{file}.new"));
        fs::write(&scratch, documents)?;
        fs::rename(scratch, self.objects().join(file)).context("replacing a file")
    }

    /// Attaches a stock Envoy as an ingress gateway and waits until it has its configuration.
    pub(crate) async fn gateway(&self) -> Result<Envoy> {
        self.gateway_over("DELTA_GRPC").await
    }

    /// Like [`LocalMesh::gateway`], with the variant of xDS by Envoy's name for it.
    pub(crate) async fn gateway_over(&self, variant: &str) -> Result<Envoy> {
        self.gateway_as("gateway", variant).await
    }

    /// Like [`LocalMesh::gateway_over`], by the name of its pod; it proves that this is its service account if it can.
    pub(crate) async fn gateway_as(&self, name: &str, variant: &str) -> Result<Envoy> {
        let metadata =
            format!("CLUSTER_ID: local, SERVICE_ACCOUNT: {name}, LABELS: {{istio: ingressgateway}}");
        let mut bootstrap =
            Bootstrap { name, metadata: &metadata, variant, xds: self.xds, ..Bootstrap::default() };
        if let Some(Secure { xds, authority, .. }) = &self.secure {
            let own = authority.workload(&[&format!("spiffe://cluster.local/ns/demo/sa/{name}")])?;
            fs::write(self.directory.path().join(format!("{name}.crt")), &own.certificate)?;
            fs::write(self.directory.path().join(format!("{name}.key")), &own.key)?;
            (bootstrap.xds, bootstrap.certificates) = (*xds, Some(self.directory.path()));
        }
        let started = Envoy::start(&bootstrap.yaml()).await;
        started.with_context(|| format!("the log of canopusd:\n{}", self.log()))
    }

    /// A connection of whoever has this identity.
    pub(crate) async fn channel_as(&self, identity: &str) -> Result<Channel> {
        let Secure { xds, authority, .. } = self.secure()?;
        authority.channel(*xds, NAME, Some(&authority.workload(&[identity])?)).await
    }

    /// A connection over TLS to the port for proxies, or to that of the webhooks, that speaks this protocol.
    pub(crate) async fn tls(&self, to_webhooks: bool, protocol: &str) -> Result<TlsStream<TcpStream>> {
        let Secure { xds, webhooks, authority } = self.secure()?;
        let own = authority.workload(&["spiffe://cluster.local/ns/demo/sa/evil"])?;
        let connector = TlsConnector::from(Arc::new(authority.client(Some(&own), &[protocol])?));
        let stream = TcpStream::connect(if to_webhooks { webhooks } else { xds }).await?;
        Ok(connector.connect(NAME.try_into()?, stream).await?)
    }

    /// Where proxies that prove who they are connect, the directory with the roots, and who certifies.
    pub(crate) fn certified(&self) -> Result<(SocketAddr, &Path, &Authority)> {
        let Secure { xds, authority, .. } = self.secure()?;
        Ok((*xds, self.directory.path(), authority))
    }

    fn secure(&self) -> Result<&Secure> {
        self.secure.as_ref().context("nobody can prove anything here")
    }

    /// Where proxies stand, as `canopusd` tells it on this path.
    pub(crate) async fn ask(&self, path: &str) -> Result<serde_json::Value> {
        let answer = http::get(self.http, path).await?.ok()?;
        serde_json::from_str(&answer).with_context(|| format!("the answer to {path} is not JSON"))
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<String> {
        let page = http::get(self.monitoring, "/metrics").await?.ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no {name} in {page}"))?.to_owned())
    }

    /// Where metrics are.
    pub(crate) fn monitoring(&self) -> SocketAddr {
        self.monitoring
    }

    /// Fails, with the status and the end of the log, if `canopusd` has ended by itself.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.process.as_mut().context("it was killed")?.check_running()
    }

    /// The process id of `canopusd`, if it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// What `canopusd` has logged.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }
}
