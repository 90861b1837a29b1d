//! A whole Kubernetes: control plane, a node that runs Pods, cluster DNS, and addresses for load balancers.
//!
//! ```text
//!   this machine ── veth ── [ network and mount namespace: etcd, API server, kubelet, containerd, kube-proxy, pods ]
//! ```
//!
//! All processes are in one cgroup, so that a cluster is gone without a trace when the test ends, however it ends. Services,
//! pods and load balancers of the cluster can be reached from this machine by their addresses.

mod addresses;
mod load_balancer;
mod namespace;
mod node;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_images::{Compression, Image, Labels, Layer, Rootfs};
use canopus_parts::{Part, find, find_root};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use self::addresses::Addresses;
use self::namespace::Namespace;
pub use self::node::CniDirectories;
use super::{KubeProxy, Kubectl, api_server, controller_manager, etcd, etcd_socket, pki};
use crate::{Process, eventually, helm, tool};

/// How long each step of the start may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(240);

const API_PORT: u16 = 6443;

/// A Kubernetes cluster with one node on which Pods run.
#[derive(Debug)]
pub struct KubeCluster {
    load_balancers: JoinHandle<()>,
    _processes: Vec<Process>,
    kubectl: Kubectl,
    namespace: Namespace,
    addresses: Addresses,
    /// Dropped last: nothing runs in it any more then.
    directory: TempDir,
}

impl KubeCluster {
    /// Whether a cluster can be started on this machine. If not, the reason is shown: who cannot be root runs the other tests.
    pub fn is_available() -> bool {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !is_root {
            #[expect(
                clippy::print_stderr,
                reason = "whoever runs the tests should know that this one did not run"
            )]
            {
                eprintln!("no cluster is started: only root may make network and mount namespaces");
            }
        }
        is_root
    }

    /// Starts a cluster and waits until its node and its name server are ready. This takes root, and half a minute.
    pub async fn start() -> Result<Self> {
        let programs = find(Part::Kube)?;
        let directory = tempfile::Builder::new().prefix("canopus-cluster-").tempdir()?;
        let files = directory.path();
        let (namespace, addresses) = Namespace::new(files).await?;
        pki::write(files, &[addresses.node().to_string(), addresses.api_service().to_string()])?;
        let kubectl = Kubectl::new(&programs, files, SocketAddr::from((addresses.node(), API_PORT)))?;

        let mut starter = Starter { namespace: &namespace, files, processes: Vec::new() };
        starter.run("containerd", node::containerd(&namespace, files, addresses)?)?;
        starter.control_plane(&programs, addresses, &kubectl).await?;
        let containerd = async || Ok(UnixStream::connect(node::socket(files)).await?);
        starter.eventually("containerd", "containerd's socket", containerd).await?;
        starter.run("kubelet", node::kubelet(&namespace, &programs, files, addresses)?)?;
        starter.run("kube-proxy", node::kube_proxy(&namespace, &programs, files, addresses)?)?;
        let processes = starter.processes;

        let balancing = KubeProxy::start(&kubectl, files).await?;
        let load_balancers = tokio::spawn(load_balancer::run(balancing, addresses));
        let cluster =
            Self { load_balancers, _processes: processes, kubectl, namespace, addresses, directory };
        cluster.load_own_images().await?;
        let manifest =
            include_str!("cluster/coredns.yaml").replace("CLUSTER_DNS", &addresses.cluster_dns().to_string());
        cluster.apply(&manifest).await?;
        cluster.wait_for_node().await?;
        cluster.rollout("kube-system", "deployment/coredns").await?;
        Ok(cluster)
    }

    async fn wait_for_node(&self) -> Result<()> {
        let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        eventually("the node", PATIENCE, async || {
            let status = self.kubectl(&["get", "node", node::NODE, "-o", ready]).await?;
            ensure!(status == "True", "Ready is {status:?}");
            Ok(())
        })
        .await
    }

    /// The images that every cluster needs.
    async fn load_own_images(&self) -> Result<()> {
        let busybox = find_root(Part::Containerd)?.join("bin/busybox");
        let mut pause = Rootfs::default();
        pause.copy("/busybox", &busybox)?;
        // Nothing of a pod waits for this process: the runtime kills it.
        self.load(&image(node::PAUSE_IMAGE, &pause, &["/busybox", "sleep", "2147483647"])?).await?;
        let mut coredns = Rootfs::default();
        coredns.copy("/coredns", &find(Part::Coredns)?.join("coredns"))?;
        self.load(&image("localhost/test/coredns:1", &coredns, &["/coredns"])?).await
    }

    /// Puts an image on the node.
    pub async fn load(&self, image: &Image) -> Result<()> {
        let archive = self.directory.path().join("image.tar");
        image.write(&archive)?;
        self.load_archive(&archive).await?;
        fs::remove_file(archive)?;
        Ok(())
    }

    /// Puts the images of an archive on the node.
    pub async fn load_archive(&self, archive: &Path) -> Result<()> {
        let mut command = self.namespace.command(find(Part::Containerd)?.join("ctr"));
        command
            .arg("--address")
            .arg(node::socket(self.directory.path()))
            .args(["--namespace=k8s.io", "images", "import"])
            .arg(archive);
        tool::run(command, "").await.map(drop)
    }

    /// A kubeconfig file that gives its bearer every right.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// Where CNI plugins are installed on the node.
    pub fn cni_directories(&self) -> CniDirectories {
        node::cni_directories(self.directory.path())
    }

    /// The address by which pods reach this machine.
    pub fn host_address(&self) -> Ipv4Addr {
        self.addresses.host()
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

    /// Waits until a workload has rolled out; the error shows its pods and events.
    pub async fn rollout(&self, namespace: &str, workload: &str) -> Result<()> {
        let waiting = ["rollout", "status", workload, "--namespace", namespace, "--timeout=240s"];
        let Err(error) = self.kubectl(&waiting).await else { return Ok(()) };
        let seen = self.describe(namespace).await;
        Err(error).with_context(|| {
            format!("{namespace}/{workload} does not become ready; the namespace has:\n{seen}")
        })
    }

    /// What there is in a namespace, for messages of failed tests.
    pub async fn describe(&self, namespace: &str) -> String {
        let mut text = String::new();
        for arguments in [
            &["get", "pods", "-o", "wide", "--namespace", namespace][..],
            &["get", "events", "--sort-by=.lastTimestamp", "--namespace", namespace][..],
        ] {
            text.push_str(&self.kubectl(arguments).await.unwrap_or_else(|error| format!("{error:#}")));
            text.push('\n');
        }
        text
    }

    /// Runs Helm against this cluster and returns what it printed.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = helm::command(self.directory.path(), arguments)?;
        command.env("KUBECONFIG", self.kubeconfig());
        tool::run(command, "").await
    }

    /// Starts a proxy that speaks plain HTTP to tests and has the rights of the administrator.
    pub async fn proxy(&self) -> Result<KubeProxy> {
        KubeProxy::start(&self.kubectl, self.directory.path()).await
    }
}

impl Drop for KubeCluster {
    fn drop(&mut self) {
        self.load_balancers.abort();
    }
}

/// An image of one layer, loaded where it is made.
fn image(name: &str, rootfs: &Rootfs, entrypoint: &[&str]) -> Result<Image> {
    Ok(Image {
        names: vec![name.to_owned()],
        layers: vec![Arc::new(Layer::new(name, rootfs, Compression::None)?)],
        entrypoint: entrypoint.iter().map(|&word| word.to_owned()).collect(),
        user: "0:0".to_owned(),
        labels: Labels::new(),
    })
}

struct Starter<'a> {
    namespace: &'a Namespace,
    files: &'a Path,
    processes: Vec<Process>,
}

impl Starter<'_> {
    fn run(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.processes.push(Process::spawn(name, &mut command, self.files)?);
        Ok(())
    }

    /// Waits for the process started last under this name.
    async fn eventually<T>(
        &mut self,
        name: &str,
        what: &str,
        probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let process = self.processes.iter_mut().find(|process| process.name() == name);
        process.with_context(|| format!("{name} was not started"))?.eventually(what, PATIENCE, probe).await
    }

    async fn control_plane(
        &mut self,
        programs: &Path,
        addresses: Addresses,
        kubectl: &Kubectl,
    ) -> Result<()> {
        let files = self.files;
        self.run("etcd", self.namespace.enter(&etcd(programs, files)))?;
        let socket = async || Ok(UnixStream::connect(etcd_socket(files)).await?);
        self.eventually("etcd", "etcd's socket", socket).await?;
        let mut server = api_server(programs, files);
        server
            .arg(format!("--secure-port={API_PORT}"))
            .args(["--bind-address=0.0.0.0", "--kubelet-preferred-address-types=InternalIP"])
            .arg(format!("--advertise-address={}", addresses.node()))
            .arg(format!("--service-cluster-ip-range={}", addresses.services()));
        self.run("kube-apiserver", self.namespace.enter(&server))?;
        let ready = async || kubectl.run(&["get", "--raw=/readyz"], "").await;
        self.eventually("kube-apiserver", "the API server's readiness", ready).await?;
        self.run("kube-controller-manager", self.namespace.enter(&controller_manager(programs, files)))?;
        let mut scheduler = Command::new(programs.join("kube-scheduler"));
        scheduler
            .arg(format!("--kubeconfig={}", files.join("kubeconfig").display()))
            .args(["--leader-elect=false", "--secure-port=0"]);
        self.run("kube-scheduler", self.namespace.enter(&scheduler))
    }
}
