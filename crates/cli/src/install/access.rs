//! Which cluster commands work on.

use std::path::PathBuf;

use anyhow::Context as _;
use canopus_runtime::flags::Flags;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};

/// An installer asks about hundreds of objects one after another; the API server's own limits protect it.
const LIMIT: RateLimit = RateLimit { qps: 200.0, burst: 400 };

/// Which cluster.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterArguments {
    /// Kubeconfig file; without, the first of $KUBECONFIG, else ~/.kube/config.
    #[arg(short = 'c', long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without, its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArguments {
    /// A connection to the cluster.
    pub(crate) async fn connect(&self) -> anyhow::Result<Cluster> {
        let kubeconfig = self.kubeconfig.clone().or_else(default_kubeconfig);
        let kubeconfig =
            kubeconfig.context("no kubeconfig: name one with --kubeconfig, or set $KUBECONFIG")?;
        let access = match &self.context {
            Some(context) => Access::Context { kubeconfig, context: context.clone() },
            None => Access::Kubeconfig(kubeconfig),
        };
        Cluster::connect(&access, LIMIT).await.context("cannot reach Kubernetes")
    }
}

/// Where kubectl would look.
fn default_kubeconfig() -> Option<PathBuf> {
    let flags = Flags::from_env();
    let listed = flags
        .variable("KUBECONFIG")
        .and_then(|paths| std::env::split_paths(paths).find(|path| path.is_file()));
    listed.or_else(|| Some(PathBuf::from(flags.variable("HOME")?).join(".kube/config")))
}

/// Runs a command that waits for a cluster.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(command)
}
