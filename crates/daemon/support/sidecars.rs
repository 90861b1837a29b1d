//! A mesh of sidecars on this machine: stock Envoys with an agent each, mutual TLS between them, and no interception.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Authority, Echo, Echoed, Envoy, eventually, free_port, http};
use tempfile::TempDir;

use crate::agent::Agent;
use crate::local_mesh::LocalMesh;
use crate::local_mesh::bootstrap::Bootstrap;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The host the workloads call.
pub(crate) const REVIEWS: &str = "reviews.shop.svc.cluster.local";

/// Sidecars around one service, `reviews`.
pub(crate) struct Sidecars {
    pub(crate) mesh: LocalMesh,
    /// The proxy of `reviews`.
    pub(crate) server: Proxy,
    /// The proxy of `frontend`, which calls it.
    pub(crate) client: Proxy,
    ports: Ports,
    authority: Authority,
    sockets: TempDir,
    _app: Echo,
}

/// A proxy and what serves it.
pub(crate) struct Proxy {
    pub(crate) envoy: Envoy,
    address: IpAddr,
    _agent: Agent,
}

#[derive(Clone, Copy)]
struct Ports {
    http: u16,
    http_target: u16,
    tcp: u16,
    tcp_target: u16,
    app: u16,
}

/// Workload that a proxy belongs to.
struct Workload {
    name: &'static str,
    address: &'static str,
}

impl Sidecars {
    /// Starts everything, with these documents and this mesh configuration besides.
    pub(crate) async fn start(documents: &str, mesh_config: &str) -> Result<Self> {
        Self::start_with(documents, mesh_config, &[]).await
    }

    /// Like [`Sidecars::start`], with variables in the environment of the control plane.
    pub(crate) async fn start_with(
        documents: &str,
        mesh_config: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let app = Echo::start("reviews").await?;
        let ports = Ports {
            http: free_port()?,
            http_target: free_port()?,
            tcp: free_port()?,
            tcp_target: free_port()?,
            app: app.address().port(),
        };
        let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
        let mut command = command(directory.path(), ports, documents, mesh_config)?;
        command.envs(environment.iter().copied());
        let mesh = LocalMesh::launch(command, directory).await?;
        let sockets = tempfile::Builder::new().prefix("canopus-sds-").tempdir()?;
        let authority = Authority::new()?;
        let started = async || {
            let server = Workload { name: "reviews", address: "127.0.0.2" };
            let server = Proxy::start(&mesh, sockets.path(), &authority, &server).await?;
            let client = Workload { name: "frontend", address: "127.0.0.3" };
            anyhow::Ok((server, Proxy::start(&mesh, sockets.path(), &authority, &client).await?))
        };
        let (server, client) =
            started().await.with_context(|| format!("the log of canopusd:\n{}", mesh.log()))?;
        Ok(Self { mesh, server, client, ports, authority, sockets, _app: app })
    }

    /// Attaches the proxy of a workload with another identity.
    pub(crate) async fn stranger(&self) -> Result<Proxy> {
        let workload = Workload { name: "stranger", address: "127.0.0.4" };
        Proxy::start(&self.mesh, self.sockets.path(), &self.authority, &workload).await
    }

    /// Writes the documents of the test anew.
    pub(crate) fn write(&self, documents: &str) -> Result<()> {
        self.mesh.write("test.yaml", documents)
    }

    /// A request by way of a client's proxy.
    pub(crate) fn request(&self, client: &Proxy, path: &str) -> http::Request {
        let address = SocketAddr::new(client.address, self.ports.http);
        http::request(http::Method::GET, address, path).host(&format!("{REVIEWS}:{}", self.ports.http))
    }

    /// A request to the server's proxy without one of the client's.
    pub(crate) fn plain_request(&self, path: &str) -> http::Request {
        let address = SocketAddr::new(self.server.address, self.ports.http_target);
        http::request(http::Method::GET, address, path).host(REVIEWS)
    }

    /// A request over a connection that the proxies know nothing of but its bytes.
    pub(crate) fn opaque_request(&self, path: &str) -> http::Request {
        let address = SocketAddr::new(self.client.address, self.ports.tcp);
        http::request(http::Method::GET, address, path)
    }

    /// The port of the service for HTTP.
    pub(crate) fn http_port(&self) -> u16 {
        self.ports.http
    }

    /// Waits until a request of `frontend` is answered with this status, and gives the answer.
    pub(crate) async fn answered(&self, path: &str, status: u16) -> Result<http::Response> {
        self.answered_to(|| self.request(&self.client, path), status).await
    }

    /// Waits until a request is answered with this status, and gives the answer.
    pub(crate) async fn answered_to(
        &self,
        request: impl Fn() -> http::Request,
        status: u16,
    ) -> Result<http::Response> {
        let found = eventually("an answer", PATIENCE, async || {
            let response = request().send().await?;
            ensure!(response.status == status, "{}: {}", response.status, response.body);
            Ok(response)
        });
        found.await.with_context(|| {
            let logs = [self.mesh.log(), self.client.envoy.log(), self.server.envoy.log()];
            format!(
                "the logs of canopusd, client and server:\n{}",
                logs.map(|log| tail(&log)).join("\n----\n")
            )
        })
    }

    /// Waits until `frontend` reaches `reviews`, and tells what arrived.
    pub(crate) async fn echoed(&self, path: &str) -> Result<Echoed> {
        Echoed::from_body(&self.answered(path, 200).await?.body)
    }

    /// Fails if a proxy has rejected anything.
    pub(crate) async fn check_accepted(&self) -> Result<()> {
        for proxy in [&self.client, &self.server] {
            let rejected = proxy.envoy.rejections().await?;
            ensure!(rejected.is_empty(), "{rejected:?}\n{}", tail(&self.mesh.log()));
        }
        Ok(())
    }
}

impl Proxy {
    async fn start(mesh: &LocalMesh, sockets: &Path, authority: &Authority, who: &Workload) -> Result<Self> {
        let spiffe = format!("spiffe://cluster.local/ns/shop/sa/{}", who.name);
        let agent = Agent::start(sockets, who.name, authority, &spiffe)?;
        let Workload { name, address } = who;
        // Nothing is intercepted: what it listens on is said by objects.
        let metadata = format!(
            "CLUSTER_ID: Kubernetes, WORKLOAD_NAME: {name}-v1, SERVICE_ACCOUNT: {name}, INTERCEPTION_MODE: NONE, \
             LABELS: {{app: {name}, version: v1}}"
        );
        let bootstrap = Bootstrap {
            kind: "sidecar",
            address,
            name: &format!("{name}-1"),
            namespace: "shop",
            metadata: &metadata,
            xds: mesh.xds,
            agent: Some(agent.socket()),
            ..Bootstrap::default()
        };
        let envoy = Envoy::start(&bootstrap.yaml()).await?;
        Ok(Self { envoy, address: who.address.parse()?, _agent: agent })
    }
}

fn command(directory: &Path, ports: Ports, documents: &str, mesh_config: &str) -> Result<Command> {
    let objects: PathBuf = directory.join("objects");
    fs::create_dir(&objects)?;
    let topology = include_str!("sidecars.yaml")
        .replace("HTTP_PORT", &ports.http.to_string())
        .replace("HTTP_TARGET", &ports.http_target.to_string())
        .replace("TCP_PORT", &ports.tcp.to_string())
        .replace("TCP_TARGET", &ports.tcp_target.to_string())
        .replace("APP_PORT", &ports.app.to_string());
    fs::write(objects.join("sidecars.yaml"), topology)?;
    fs::write(objects.join("test.yaml"), documents)?;
    let config = directory.join("mesh.yaml");
    fs::write(&config, mesh_config)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--configDir").arg(&objects).args(["--registries=Mock", "--snapshot="]);
    command.arg("--meshConfig").arg(config);
    Ok(command)
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
