use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use canopus_images::{Compression, Labels, Programs, canopusd, proxy, runtime};
use canopus_testkit::KubeCluster;

pub(crate) const HUB: &str = "localhost/canopus";
pub(crate) const TAG: &str = env!("CARGO_PKG_VERSION");

/// Kinds of which an uninstallation must leave nothing.
const KINDS: &str = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,\
                     mutatingwebhookconfigurations,validatingwebhookconfigurations,configmaps,secrets,services,deployments";

/// A cluster whose node has the images of this build.
pub(crate) struct MeshCluster {
    cluster: KubeCluster,
}

impl MeshCluster {
    pub(crate) async fn start() -> Result<Self> {
        let cluster = KubeCluster::start().await?;
        let stripped = tempfile::tempdir()?;
        for name in ["canopusd", "canopus-agent"] {
            let built = Path::new(env!("CARGO_BIN_EXE_canopus")).with_file_name(name);
            ensure!(
                built.exists(),
                "{} is missing; run `cargo build -p canopus-daemon -p canopus-agent`",
                built.display()
            );
            let status = Command::new("strip")
                .args(["--strip-debug", "-o"])
                .arg(stripped.path().join(name))
                .arg(built)
                .status();
            ensure!(
                status.context("running `strip`, which comes with the linker")?.success(),
                "strip failed"
            );
        }
        let programs = Programs {
            directory: stripped.path().to_owned(),
            hub: HUB.to_owned(),
            tag: TAG.to_owned(),
            labels: Labels::new(),
            compression: Compression::None,
        };
        let base = Arc::new(runtime(Compression::None)?);
        cluster.load(&canopusd(&programs, &base, None)?).await?;
        cluster.load(&proxy(&programs, &base, None)?).await?;
        Ok(Self { cluster })
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
