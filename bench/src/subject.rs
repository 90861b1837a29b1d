//! The control planes that are measured.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use canopus_testkit::{Authority, Process, free_port, http};
use clap::ValueEnum;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::client::Target;
use crate::usage;
use crate::waste::Waste;

/// How often readiness is asked for.
const LOOK: Duration = Duration::from_millis(10);

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The name in the certificate of a subject.
const NAME: &str = "istiod.istio-system.svc";

/// A control plane that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    /// Ours.
    Canopusd,
    /// A program with the flags of `pilot-discovery`.
    Peer,
}

impl Subject {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Canopusd => "canopusd",
            Self::Peer => "peer",
        }
    }
}

/// How to start a subject.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The control plane to launch.
    pub(crate) subject: Subject,
    pub(crate) program: PathBuf,
    /// Variables of its environment beside the usual ones.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether proxies come to its port with TLS.
    pub(crate) tls: bool,
}

/// A subject with ports of its own, running or not.
pub(crate) struct Control {
    launch: Launch,
    directory: TempDir,
    authority: Arc<Authority>,
    ports: Ports,
    process: Option<Process>,
}

/// Where workloads get certificates, and who vouches for those they have.
pub(crate) struct CertificatePort {
    pub(crate) address: SocketAddr,
    /// The name of the server.
    pub(crate) name: &'static str,
    pub(crate) authority: Arc<Authority>,
}

/// Where it listens.
#[derive(Clone, Copy, Debug)]
struct Ports {
    http: SocketAddr,
    grpc: SocketAddr,
    secure: SocketAddr,
    https: SocketAddr,
    monitoring: SocketAddr,
}

/// What a start cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// From the start of the process until it said that it is ready.
    pub(crate) took: Duration,
    /// Processor time until then.
    pub(crate) cpu: Duration,
}

impl Control {
    /// A subject that is not running yet.
    pub(crate) fn new(launch: Launch) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-bench-").tempdir()?;
        let port = || Ok::<_, anyhow::Error>(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
        let ports =
            Ports { http: port()?, grpc: port()?, secure: port()?, https: port()?, monitoring: port()? };
        let authority = Arc::new(Authority::new()?);
        let own = authority.server(NAME)?;
        for (file, text) in [
            ("mesh.yaml", "{}\n"),
            ("cert.pem", &own.certificate),
            ("key.pem", &own.key),
            ("root.pem", &authority.root()),
        ] {
            fs::write(directory.path().join(file), text)?;
        }
        Ok(Self { launch, directory, authority, ports, process: None })
    }

    /// Starts it on a cluster and waits until it is ready.
    pub(crate) async fn start(&mut self, kubeconfig: &Path) -> Result<Started> {
        let mut command = self.command(kubeconfig);
        let started = Instant::now();
        let spawned = Process::spawn(self.launch.subject.name(), &mut command, self.directory.path())?;
        let process = self.process.insert(spawned);
        while !http::get(self.ports.http, "/ready").await.is_ok_and(|answer| answer.status.is_success()) {
            process.check_running()?;
            if started.elapsed() > PATIENCE {
                bail!(
                    "{} is not ready after {PATIENCE:?}:\n{}",
                    self.launch.subject.name(),
                    process.log_end()
                );
            }
            sleep(LOOK).await;
        }
        Ok(Started { took: started.elapsed(), cpu: usage::cpu(process.id())? })
    }

    /// Kills it without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Whether it was started and not killed.
    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Process ID; none while it does not run.
    pub(crate) fn pid(&mut self) -> Result<u32> {
        match &mut self.process {
            Some(process) => {
                process.check_running()?;
                Ok(process.id())
            }
            None => bail!("{} does not run", self.launch.subject.name()),
        }
    }

    /// Processor time it has used since it was started.
    pub(crate) fn cpu(&mut self) -> Result<Duration> {
        usage::cpu(self.pid()?)
    }

    /// Memory it has now, in bytes.
    pub(crate) fn memory(&mut self) -> Result<u64> {
        usage::memory(self.pid()?)
    }

    /// The most memory it has had, in bytes.
    pub(crate) fn peak_memory(&mut self) -> Result<u64> {
        usage::peak_memory(self.pid()?)
    }

    /// How often its generators ran, if it tells.
    pub(crate) async fn waste(&self) -> Option<Waste> {
        self.process.as_ref()?;
        Waste::ask(self.ports.http).await
    }

    /// Where proxies connect.
    pub(crate) fn target(&self) -> Result<Target> {
        if self.launch.tls { self.secure_target() } else { Ok(self.plaintext_target()) }
    }

    /// Where proxies connect without TLS.
    pub(crate) fn plaintext_target(&self) -> Target {
        Target { address: self.ports.grpc, tls: None }
    }

    /// Where workloads get certificates.
    pub(crate) fn certificate_port(&self) -> CertificatePort {
        CertificatePort { address: self.ports.secure, name: NAME, authority: Arc::clone(&self.authority) }
    }

    /// Where proxies connect with TLS.
    pub(crate) fn secure_target(&self) -> Result<Target> {
        let workload = self.authority.workload(&["spiffe://cluster.local/ns/edge/sa/default"])?;
        let config = self.authority.client(Some(&workload), &["h2"])?;
        let name = ServerName::try_from(NAME)?;
        Ok(Target { address: self.ports.secure, tls: Some((name, Arc::new(config))) })
    }

    fn command(&self, kubeconfig: &Path) -> Command {
        let file = |name: &str| self.directory.path().join(name);
        let mut command = Command::new(&self.launch.program);
        command
            .current_dir(self.directory.path())
            .arg("discovery")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--meshConfig")
            .arg(file("mesh.yaml"))
            .arg(format!("--httpAddr={}", self.ports.http))
            .arg(format!("--grpcAddr={}", self.ports.grpc))
            .arg(format!("--secureGRPCAddr={}", self.ports.secure))
            .arg(format!("--httpsAddr={}", self.ports.https))
            .arg(format!("--monitoringAddr={}", self.ports.monitoring))
            .arg(format!("--tlsCertFile={}", file("cert.pem").display()))
            .arg(format!("--tlsKeyFile={}", file("key.pem").display()))
            .arg(format!("--caCertFile={}", file("root.pem").display()))
            .envs([
                ("POD_NAMESPACE", "istio-system"),
                ("POD_NAME", "istiod-bench"),
                ("REVISION", "default"),
                ("CLUSTER_ID", "Kubernetes"),
                ("INJECT_ENABLED", "false"),
                // All proxies show one certificate.
                ("PILOT_ENABLE_XDS_IDENTITY_CHECK", "false"),
            ])
            .envs(self.launch.environment.iter().map(|(name, value)| (name, value)));
        if self.launch.subject == Subject::Canopusd {
            // A start is measured that knows nothing yet.
            command.arg("--snapshot=");
        }
        command
    }
}
