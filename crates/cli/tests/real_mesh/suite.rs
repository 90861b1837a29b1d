//! Gateway API's own conformance tests, against proxies that the control plane deploys on a real cluster.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use canopus_images::{Compression, Image, Labels, Layer, Rootfs};
use canopus_parts::{Part, find};
use canopus_testkit::eventually;

use crate::cluster::{MeshCluster, TAG};

const PATIENCE: Duration = Duration::from_secs(120);

/// What of the suite runs.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) profiles: Vec<String>,
    /// One test; without it all tests of the profiles run.
    pub(crate) test: Option<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) report: Option<PathBuf>,
    /// Whether objects of the tests stay.
    pub(crate) keep: bool,
}

/// Makes a mesh on a cluster, with Gateway API's kinds and the servers that the tests talk to.
pub(crate) async fn prepare() -> Result<MeshCluster> {
    let cluster = MeshCluster::start().await?;
    load_images(&cluster).await?;
    define_kinds(&cluster).await?;
    let settings = [
        "install",
        "--skip-confirmation",
        "--set=profile=minimal",
        "--set=values.pilot.env.PILOT_ENABLE_ALPHA_GATEWAY_API=true",
        // Dozens of gateways run at once, and this node is small.
        "--set=values.global.proxy.resources.requests.cpu=5m",
        "--set=values.global.proxy.resources.requests.memory=32Mi",
    ];
    cluster.canopus(&settings).await.context("install")?;
    let accepted = "jsonpath={.status.conditions[?(@.type==\"Accepted\")].status}";
    eventually("the gateway class", PATIENCE, async || {
        let status = cluster.kubectl(&["get", "gatewayclass", "istio", "-o", accepted]).await?;
        ensure!(status == "True", "Accepted is {status:?}");
        Ok(())
    })
    .await?;
    Ok(cluster)
}

/// Runs the suite with every feature that the control plane claims, and returns how it ended.
pub(crate) async fn run(cluster: &MeshCluster, selection: &Selection) -> Result<ExitStatus> {
    let features = claimed_features(cluster).await?;
    let mut command = suite()?;
    command
        .env("KUBECONFIG", cluster.kubeconfig())
        // One test at a time: beside dozens of other gateways a node of two cores is slower than tests are patient.
        .args(["-test.v", "-test.timeout=3h", "-disable-parallel-tests", "-gateway-class=istio"])
        .arg("-namespace-labels=istio-injection=enabled")
        .arg(format!("-supported-features={}", features.join(",")))
        .arg(format!("-conformance-profiles={}", selection.profiles.join(",")))
        .arg("-usable-address=infra-backend-v1.gateway-conformance-infra.svc.cluster.local")
        .arg("-unusable-address=foo")
        .args(["-organization=canopus", "-project=canopus", "-url=https://canopus.example/"])
        .arg(format!("-version={TAG}"))
        .arg("-contact=canopus maintainers");
    if let Some(test) = &selection.test {
        command.arg(format!("-run-test={test}"));
    }
    if !selection.skip.is_empty() {
        command.arg(format!("-skip-tests={}", selection.skip.join(",")));
    }
    if let Some(report) = &selection.report {
        command.arg("-report-output").arg(report);
    }
    if selection.keep {
        command.args(["-cleanup-base-resources=false"]);
    }
    Ok(tokio::process::Command::from(command).kill_on_drop(true).status().await?)
}

fn suite() -> Result<Command> {
    Ok(Command::new(find(Part::GatewayConformance)?.join("gateway-conformance")))
}

/// The features in the status of the class of ordinary gateways.
async fn claimed_features(cluster: &MeshCluster) -> Result<Vec<String>> {
    let names = "jsonpath={.status.supportedFeatures[*].name}";
    let text = cluster.kubectl(&["get", "gatewayclass", "istio", "-o", names]).await?;
    ensure!(!text.is_empty(), "the status of GatewayClass istio names no supported features");
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Defines the kinds of Gateway API, of the suite's own version.
async fn define_kinds(cluster: &MeshCluster) -> Result<()> {
    let directory = find(Part::GatewayConformance)?.with_file_name("crds");
    let entries = fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files.iter().filter(|file| !file.ends_with("kustomization.yaml")) {
        cluster.apply(&fs::read_to_string(file)?).await?;
    }
    Ok(())
}

/// Puts the servers of the tests on the node, by the names that the suite's manifests have for them.
async fn load_images(cluster: &MeshCluster) -> Result<()> {
    let output = suite()?.arg("images").output().context("listing the images of the suite")?;
    let listed = String::from_utf8(output.stdout)?;
    let names: BTreeSet<&str> = listed.lines().collect();
    ensure!(!names.is_empty(), "the suite names no images");
    for (marker, program) in [
        ("/echo-basic:", find(Part::GatewayEcho)?.join("echo-basic")),
        ("/echo-advanced:", find(Part::GatewayMeshEcho)?.join("mesh-echo")),
        // The suite has it for UDPRoutes, which are not served; it has to run all the same.
        ("/coredns:", find(Part::GatewayMeshEcho)?.join("mesh-echo")),
    ] {
        let names: Vec<String> =
            names.iter().filter(|name| name.contains(marker)).map(|name| (*name).to_owned()).collect();
        if names.is_empty() {
            bail!("the suite names no image with `{marker}`");
        }
        cluster.load(&server(names, &program)?).await?;
    }
    Ok(())
}

fn server(names: Vec<String>, program: &Path) -> Result<Image> {
    let mut rootfs = Rootfs::default();
    // The suite calls the client of the mesh's server by this name.
    rootfs.copy("/usr/local/bin/server", program)?.link("/usr/local/bin/client", "server");
    let layer = Layer::new("server of conformance tests", &rootfs, Compression::None)?;
    Ok(Image {
        names,
        layers: vec![Arc::new(layer)],
        entrypoint: vec!["/usr/local/bin/server".to_owned()],
        user: "0:0".to_owned(),
        labels: Labels::new(),
    })
}
