use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use canopus_images::{Compression, Labels, Layer, Programs, canopusd, cni, proxy, runtime, storefront};
use canopus_testkit::KubeCluster;
use tempfile::TempDir;

pub(crate) const HUB: &str = "localhost/canopus";
pub(crate) const TAG: &str = env!("CARGO_PKG_VERSION");

/// Kinds of which an uninstallation must leave nothing.
const KINDS: &str = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,\
                     mutatingwebhookconfigurations,validatingwebhookconfigurations,configmaps,secrets,services,deployments";

/// A cluster whose node has the images of this build.
pub(crate) struct MeshCluster {
    cluster: KubeCluster,
    runtime: Arc<Layer>,
}

impl MeshCluster {
    pub(crate) async fn start() -> Result<Self> {
        let cluster = KubeCluster::start().await?;
        let runtime = Arc::new(runtime(Compression::None)?);
        let (programs, _directory) = programs(&["canopusd", "canopus-agent"])?;
        cluster.load(&canopusd(&programs, &runtime, None)?).await?;
        cluster.load(&proxy(&programs, &runtime, None)?).await?;
        Ok(Self { cluster, runtime })
    }

    /// Puts the image of the node agent on the node too.
    pub(crate) async fn load_node_agent(&self) -> Result<()> {
        let (programs, _directory) = programs(&["canopus-cni"])?;
        self.cluster.load(&cni(&programs, &self.runtime, None)?).await
    }

    /// Puts the image of the sample on the node too.
    pub(crate) async fn load_storefront(&self) -> Result<()> {
        let (programs, _directory) = programs(&["storefront"])?;
        self.cluster.load(&storefront(&programs, &self.runtime, None)?).await
    }

    /// Runs our own command line tool against the cluster.
    pub(crate) async fn canopus(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopus"));
        command.args(arguments).arg("--kubeconfig").arg(self.kubeconfig()).stdin(Stdio::null());
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        let (said, printed) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        ensure!(
            output.status.success(),
            "canopus {} ({}):\n{printed}{said}",
            arguments.join(" "),
            output.status
        );
        Ok(printed.into_owned())
    }

    /// The names of all objects of some kinds.
    pub(crate) async fn objects(&self) -> Result<BTreeSet<String>> {
        let format = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let text = self.kubectl(&["get", KINDS, "--all-namespaces", "-o", format]).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// Programs of this build, without what only debuggers read, in a directory of their own.
fn programs(names: &[&str]) -> Result<(Programs, TempDir)> {
    let stripped = tempfile::tempdir()?;
    for name in names {
        let built = Path::new(env!("CARGO_BIN_EXE_canopus")).with_file_name(name);
        ensure!(built.exists(), "{} is missing; run `cargo build --workspace --bins`", built.display());
        let mut strip = Command::new("strip");
        let status = strip.args(["--strip-debug", "-o"]).arg(stripped.path().join(name)).arg(built).status();
        ensure!(status.context("running `strip`, which comes with the linker")?.success(), "strip failed");
    }
    let programs = Programs {
        directory: stripped.path().to_owned(),
        hub: HUB.to_owned(),
        tag: TAG.to_owned(),
        labels: Labels::new(),
        compression: Compression::None,
    };
    Ok((programs, stripped))
}

impl Deref for MeshCluster {
    type Target = KubeCluster;

    fn deref(&self) -> &KubeCluster {
        &self.cluster
    }
}

/// Istio's charts, if the conformance corpus lies beside the repository.
pub(crate) fn istio_charts() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let charts = repository.parent()?.join("shared/conformance/charts/live/charts");
    charts.is_dir().then_some(charts)
}
