mod cluster;
mod pki;
mod proxy;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use canopus_parts::Part;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixStream};

use crate::ports::{free_port, retry_on_taken_port};
use crate::{Process, helm, tool};

pub use cluster::{CniDirectories, KubeCluster};
pub use proxy::KubeProxy;

/// How long the API server may take to be ready; it needs some seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The bearer token of the administrator: a secret of nobody, for a server on loopback that lives as long as a test.
const TOKEN: &str = "test-administrator";

/// Tests make their own Node and Pod objects: nothing may judge, evict or collect them.
const CONTROLLERS: &str =
    "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller";

/// A running Kubernetes API server with its etcd, and no nodes: objects can be stored and watched, Pods do not run.
#[derive(Debug)]
pub struct KubeApi {
    controllers: Option<Process>,
    server: Option<Process>,
    /// Flags of the server beside the usual ones.
    flags: &'static [&'static str],
    etcd: Option<Process>,
    address: SocketAddr,
    kubectl: Kubectl,
    programs: PathBuf,
    directory: TempDir,
}

/// kubectl, set up to reach one API server as its administrator.
#[derive(Debug)]
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl KubeApi {
    /// Starts etcd and the API server and waits until it is ready.
    ///
    /// No controllers run: nothing makes service accounts or EndpointSlices, and namespaces are not emptied when deleted.
    pub async fn start() -> Result<Self> {
        retry_on_taken_port(async || {
            Self::start_server(&["--disable-admission-plugins=ServiceAccount"]).await
        })
        .await
    }

    /// As [`KubeApi::start`], with ClusterTrustBundles, which Kubernetes has only when asked for.
    pub async fn start_with_trust_bundles() -> Result<Self> {
        const FLAGS: &[&str] = &[
            "--disable-admission-plugins=ServiceAccount",
            "--feature-gates=ClusterTrustBundle=true",
            "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
        ];
        retry_on_taken_port(async || Self::start_server(FLAGS).await).await
    }

    /// As [`KubeApi::start`], with the controller manager beside it (less what watches over nodes).
    ///
    /// The EndpointSlice controller overlooks Pods whose Node object does not exist.
    pub async fn start_with_controllers() -> Result<Self> {
        let mut kube = retry_on_taken_port(async || Self::start_server(&[]).await).await?;
        kube.start_controllers().await?;
        Ok(kube)
    }

    async fn start_server(flags: &'static [&'static str]) -> Result<Self> {
        let programs = canopus_parts::find(Part::Kube)?;
        let directory = tempfile::Builder::new().prefix("canopus-kube-").tempdir()?;
        let files = directory.path();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        pki::write(files, &[])?;
        let kubectl = Kubectl::new(&programs, files, address)?;
        let etcd = Some(start_etcd(&programs, files).await?);
        let controllers = None;
        let mut kube = Self { controllers, server: None, flags, etcd, address, kubectl, programs, directory };
        kube.resume().await?;
        Ok(kube)
    }

    /// Kills the API server. What it stored stays.
    pub fn stop(&mut self) {
        self.server = None;
    }

    /// Copies what is stored, while the API server and its etcd stand still.
    pub async fn back_up(&mut self) -> Result<()> {
        self.while_stopped("etcd", "etcd-backup").await
    }

    /// Puts the copy in the place of what is stored: the API server comes back with an older state and older versions.
    pub async fn restore(&mut self) -> Result<()> {
        self.while_stopped("etcd-backup", "etcd").await
    }

    async fn while_stopped(&mut self, from: &str, to: &str) -> Result<()> {
        let files = self.directory.path().to_owned();
        self.stop();
        self.etcd = None;
        if files.join(to).exists() {
            fs::remove_dir_all(files.join(to))?;
        }
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(files.join(from)).arg(files.join(to));
        tool::run(copy, "").await?;
        self.etcd = Some(start_etcd(&self.programs, &files).await?);
        self.resume().await
    }

    /// Starts the API server again, at the same address, and waits until it is ready.
    pub async fn resume(&mut self) -> Result<()> {
        let Self { address, kubectl, .. } = self;
        let mut command = api_server(&self.programs, self.directory.path());
        command
            .arg(format!("--secure-port={}", address.port()))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // Loopback is not an address that an endpoint may have.
            .args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"]);
        let spawned = Process::spawn("kube-apiserver", command.args(self.flags), self.directory.path())?;
        let server = self.server.insert(spawned);
        // Looking for the port first spares a start of kubectl per try while the server is still setting up.
        let open = async || Ok(TcpStream::connect(*address).await?);
        server.eventually("the API server's port", PATIENCE, open).await?;
        let ready = async || kubectl.run(&["get", "--raw=/readyz"], "").await;
        server.eventually("the API server's readiness", PATIENCE, ready).await?;
        Ok(())
    }

    async fn start_controllers(&mut self) -> Result<()> {
        let files = self.directory.path();
        let mut command = controller_manager(&self.programs, files);
        command.arg(CONTROLLERS);
        let mut controllers = Process::spawn("kube-controller-manager", &mut command, files)?;
        let account = async || self.kubectl.run(&["get", "serviceaccount", "default"], "").await;
        controllers.eventually("the first object of the controllers", PATIENCE, account).await?;
        self.controllers = Some(controllers);
        Ok(())
    }

    /// A kubeconfig file that gives its bearer every right.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// The same, for reaching the API server at another address, such as that of a relay.
    pub fn kubeconfig_by_way_of(&self, address: SocketAddr) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("kubeconfig-{}", address.port()));
        fs::write(&path, kubeconfig(self.directory.path(), address)).context("writing a kubeconfig")?;
        Ok(path)
    }

    /// Where the API server listens, with TLS.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the cluster's authority, in PEM.
    pub fn ca_pem(&self) -> Result<String> {
        fs::read_to_string(self.directory.path().join("ca.crt"))
            .context("reading the authority's certificate")
    }

    /// The key by which tokens of service accounts are signed: PKCS #8 for the curve P-256, in PEM.
    pub fn token_key_pem(&self) -> Result<String> {
        fs::read_to_string(self.directory.path().join("sa.key")).context("reading the key of tokens")
    }

    /// A bearer token that gives every right.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Runs kubectl as the administrator and returns what it printed.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl.run(arguments, "").await
    }

    /// Applies a manifest, on the server's side as controllers do.
    pub async fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl.run(&["apply", "--server-side", "--filename=-"], manifest).await?;
        Ok(())
    }

    /// Runs Helm against this cluster and returns what it printed.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = helm::command(self.directory.path(), arguments)?;
        command.env("KUBECONFIG", self.kubeconfig());
        tool::run(command, "").await
    }

    /// Starts a proxy that speaks plain HTTP to tests and has the rights of the administrator.
    pub async fn proxy(&self) -> Result<KubeProxy> {
        retry_on_taken_port(async || KubeProxy::start(&self.kubectl, self.directory.path()).await).await
    }

    /// All that the API server has logged; nothing while it is stopped.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Process::log).unwrap_or_default()
    }
}

impl Kubectl {
    /// Writes a kubeconfig and the token in it.
    fn new(programs: &Path, files: &Path, address: SocketAddr) -> Result<Self> {
        fs::write(files.join("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n"))?;
        fs::write(files.join("kubeconfig"), kubeconfig(files, address))?;
        Ok(Self {
            program: programs.join("kubectl"),
            kubeconfig: files.join("kubeconfig"),
            cache: files.join("kubectl"),
        })
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        tool::run(self.command(arguments), input).await
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache);
        command
    }
}

async fn start_etcd(programs: &Path, files: &Path) -> Result<Process> {
    let mut process = Process::spawn("etcd", &mut etcd(programs, files), files)?;
    // An API server that finds no etcd pauses for seconds before it looks again.
    let open = async || Ok(UnixStream::connect(etcd_socket(files)).await?);
    process.eventually("etcd's socket", PATIENCE, open).await?;
    Ok(process)
}

fn etcd(programs: &Path, files: &Path) -> Command {
    // Sockets in the file system need no free port; etcd wants their names to look like a host and a port all the same.
    let (clients, peers) = ("unix://clients:0", "unix://peers:0");
    let mut command = Command::new(programs.join("etcd"));
    command
        .arg(flag("--data-dir", &files.join("etcd")))
        .args(["--name=test", "--unsafe-no-fsync", "--log-level=warn"])
        .args([format!("--listen-client-urls={clients}"), format!("--advertise-client-urls={clients}")])
        .args([format!("--listen-peer-urls={peers}"), format!("--initial-advertise-peer-urls={peers}")])
        .arg(format!("--initial-cluster=test={peers}"))
        .current_dir(files);
    command
}

fn etcd_socket(files: &Path) -> PathBuf {
    files.join("clients:0")
}

/// An API server, but for the addresses it has.
fn api_server(programs: &Path, files: &Path) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    command
        .arg(format!("--etcd-servers=unix://{}", etcd_socket(files).display()))
        .args(["--allow-privileged=true", "--profiling=false", "--authorization-mode=RBAC"])
        .arg(flag("--token-auth-file", &files.join("tokens.csv")))
        .arg(flag("--client-ca-file", &files.join("ca.crt")))
        .arg(flag("--tls-cert-file", &files.join("server.crt")))
        .arg(flag("--tls-private-key-file", &files.join("server.key")))
        .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
        .arg(flag("--service-account-key-file", &files.join("sa.pub")))
        .arg(flag("--service-account-signing-key-file", &files.join("sa.key")))
        .current_dir(files);
    command
}

fn controller_manager(programs: &Path, files: &Path) -> Command {
    let mut command = Command::new(programs.join("kube-controller-manager"));
    command
        .arg(flag("--kubeconfig", &files.join("kubeconfig")))
        .arg(flag("--service-account-private-key-file", &files.join("sa.key")))
        .arg(flag("--root-ca-file", &files.join("ca.crt")))
        .arg(flag("--cluster-signing-cert-file", &files.join("ca.crt")))
        .arg(flag("--cluster-signing-key-file", &files.join("ca.key")))
        .args(["--secure-port=0", "--leader-elect=false"]);
    command
}

fn flag(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// JSON is YAML, so this is a kubeconfig to every reader of one.
fn kubeconfig(files: &Path, address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "test",
            "cluster": {"server": format!("https://{address}"), "certificate-authority": files.join("ca.crt")},
        }],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    })
    .to_string()
}
