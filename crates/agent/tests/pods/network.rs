//! Network namespaces on one bridge, and work inside them.

use std::fs;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow, ensure};
use canopus_capture::apply::in_namespace;
use canopus_testkit::Echo;
use tokio::sync::oneshot;

/// The address of the node, where the control plane is.
pub(crate) const NODE: &str = "10.78.0.1";

/// Runs a command to its end.
pub(crate) fn sh(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The namespaces of a test; gone when dropped.
pub(crate) struct Network {
    prefix: String,
    pods: Vec<Namespace>,
}

/// A network namespace by name.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(pub(crate) String);

impl Network {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("pod{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut network = Self { prefix, pods: Vec::new() };
        let node = network.add("n")?;
        for command in ["link add br0 type bridge", "addr add 10.78.0.1/24 dev br0", "link set br0 up"] {
            node.ip(command)?;
        }
        Ok(network)
    }

    fn add(&mut self, suffix: &str) -> Result<Namespace> {
        let namespace = Namespace(format!("{}{suffix}", self.prefix));
        sh("ip", &["netns", "add", &namespace.0])?;
        self.pods.push(namespace.clone());
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Where the control plane is.
    pub(crate) fn node(&self) -> &Namespace {
        &self.pods[0]
    }

    /// A pod with this last byte of its address.
    pub(crate) fn pod(&mut self, number: u8) -> Result<Namespace> {
        let pod = self.add(&number.to_string())?;
        let node = self.node();
        node.ip(&format!("link add v{number} type veth peer name eth0 netns {}", pod.0))?;
        node.ip(&format!("link set v{number} master br0 up"))?;
        pod.ip(&format!("addr add 10.78.0.{number}/24 dev eth0"))?;
        pod.ip("link set eth0 up")?;
        pod.ip(&format!("route add default via {NODE}"))?;
        Ok(pod)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.pods {
            let _ = sh("ip", &["netns", "del", &namespace.0]);
            let _ = fs::remove_dir_all(namespace.configuration());
        }
    }
}

impl Namespace {
    fn ip(&self, words: &str) -> Result<()> {
        let mut arguments = vec!["-n", &self.0];
        arguments.extend(words.split(' '));
        sh("ip", &arguments).map(drop)
    }

    /// Where `ip netns exec` takes files of /etc from.
    fn configuration(&self) -> PathBuf {
        PathBuf::from("/etc/netns").join(&self.0)
    }

    /// What programs started with [`Namespace::command`] find in /etc/resolv.conf.
    pub(crate) fn set_resolv_conf(&self, text: &str) -> Result<()> {
        fs::create_dir_all(self.configuration())?;
        Ok(fs::write(self.configuration().join("resolv.conf"), text)?)
    }

    /// A command that runs inside; its process is the one that is started.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// Does asynchronous work inside.
    pub(crate) fn run<T: Send, F: Future<Output = Result<T>>>(
        &self,
        make: impl FnOnce() -> F + Send,
    ) -> Result<T> {
        let file = PathBuf::from("/var/run/netns").join(&self.0);
        in_namespace(Some(&file), false, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(make())
        })?
    }

    /// An application inside, which describes what reaches it.
    pub(crate) fn serve(&self, name: &str, port: u16) -> Result<Application> {
        let (namespace, name) = (self.clone(), name.to_owned());
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            namespace.run(async move || {
                let echo = Echo::start_at(&name, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await;
                let _ = ready.send(echo.as_ref().map(|_| ()).map_err(|error| format!("{error:#}")));
                let _ = stopped.await;
                drop(echo);
                Ok(())
            })
        });
        started.recv()?.map_err(|error| anyhow!(error))?;
        Ok(Application { stop: Some(stop), thread: Some(thread) })
    }
}

/// A running application.
pub(crate) struct Application {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Drop for Application {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
