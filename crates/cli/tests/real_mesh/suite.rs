//! Gateway API's own conformance tests, against proxies that the control plane deploys on a real cluster.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canopus_images::{Compression, Image, Labels, Layer, Rootfs};
use canopus_parts::{Part, find};
use canopus_testkit::eventually;

use crate::cluster::{MeshCluster, TAG};

const PATIENCE: Duration = Duration::from_secs(120);

/// How long the suite waits, in seconds. A node that shares two cores with others starts pods later than it expects by default.
const PATIENT: [&str; 19] = [
    "CreateTimeout:120",
    "DefaultTestTimeout:600",
    "DeleteTimeout:60",
    "GatewayListenersMustHaveConditions:300",
    "GatewayMustHaveAddress:600",
    "GatewayMustHaveCondition:600",
    "GatewayStatusMustHaveListeners:300",
    "GetTimeout:60",
    "HTTPRouteMustHaveCondition:300",
    "HTTPRouteMustNotHaveParents:300",
    "LatestObservedGenerationSet:600",
    "ListenerSetListenersMustHaveConditions:300",
    "ListenerSetMustHaveCondition:300",
    "MaxTimeToConsistency:180",
    "NamespacesMustBeReady:900",
    "RequestTimeout:30",
    "RouteMustHaveParents:300",
    "TCPRouteMustHaveCondition:300",
    "TLSRouteMustHaveCondition:300",
];

/// Gateways that start late are not to be killed for it.
const PATIENT_GATEWAYS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: patient-gateways, namespace: istio-system, labels: {gateway.istio.io/defaults-for-class: istio}}
data:
  deployment: |
    spec:
      template:
        spec:
          containers:
          - name: istio-proxy
            startupProbe: {failureThreshold: 600}
";

/// What reports say of whose they are.
pub(crate) const IMPLEMENTATION: [&str; 4] = [
    "-organization=canopus",
    "-project=canopus",
    "-url=https://canopus.example/",
    "-contact=canopus maintainers",
];

/// The tests of the core that `cargo xtask test` runs: each kind of route and of listener, who may refer to what, and what statuses say.
/// Nearly all of them use the gateways that the suite has for all tests, so that each takes seconds.
pub(crate) const CORE: [&str; 24] = [
    "BackendTLSPolicy",
    "GRPCRouteWeight",
    "GatewayModifyListeners",
    "HTTPRouteCrossNamespace",
    "HTTPRouteExactPathMatching",
    "HTTPRouteHTTPSListener",
    "HTTPRouteHeaderMatching",
    "HTTPRouteInvalidBackendRefUnknownKind",
    "HTTPRouteInvalidCrossNamespaceBackendRef",
    "HTTPRouteInvalidNonExistentBackendRef",
    "HTTPRouteInvalidReferenceGrant",
    "HTTPRouteMatching",
    "HTTPRouteMatchingAcrossRoutes",
    "HTTPRouteObservedGenerationBump",
    "HTTPRoutePartiallyInvalidViaInvalidReferenceGrant",
    "HTTPRoutePathMatchOrder",
    "HTTPRouteRedirectHostAndStatus",
    "HTTPRouteReferenceGrant",
    "HTTPRouteRequestHeaderModifier",
    "HTTPRouteRewritePath",
    "HTTPRouteSimpleSameNamespace",
    "HTTPRouteWeight",
    "TCPRouteReferenceGrant",
    "TLSRouteSimpleSameNamespace",
];

/// What of the suite runs.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) profiles: Vec<String>,
    /// The tests to run; none means all of the profiles.
    pub(crate) tests: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) report: Option<PathBuf>,
    /// Whether objects of the tests stay.
    pub(crate) keep: bool,
}

/// Makes a mesh on a cluster, with Gateway API's kinds and the servers that the tests talk to.
pub(crate) async fn prepare() -> Result<MeshCluster> {
    let cluster = MeshCluster::start().await?;
    load_servers(&cluster).await?;
    define_kinds(&cluster, &find(Part::GatewayConformance)?.with_file_name("crds")).await?;
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
    cluster.apply(PATIENT_GATEWAYS).await?;
    class_is_accepted(&cluster).await?;
    Ok(cluster)
}

/// Waits until the class of ordinary gateways is ours.
pub(crate) async fn class_is_accepted(cluster: &MeshCluster) -> Result<()> {
    let accepted = "jsonpath={.status.conditions[?(@.type==\"Accepted\")].status}";
    eventually("the gateway class", PATIENCE, async || {
        let status = cluster.kubectl(&["get", "gatewayclass", "istio", "-o", accepted]).await?;
        ensure!(status == "True", "Accepted is {status:?}");
        Ok(())
    })
    .await
}

/// Runs the suite with every feature that the control plane claims, and returns how it ended.
pub(crate) async fn run(cluster: &MeshCluster, selection: &Selection) -> Result<ExitStatus> {
    Ok(command(cluster, selection).await?.status().await?)
}

/// Runs tests of the suite, and fails with what they printed last if one of them does.
pub(crate) async fn check(cluster: &MeshCluster, selection: &Selection) -> Result<()> {
    let output = command(cluster, selection).await?.output().await?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let passed = printed.lines().filter(|line| line.starts_with("    --- PASS: TestConformance/")).count();
    ensure!(
        output.status.success() && passed == selection.tests.len(),
        "{passed} of {} tests of the suite passed:\n{}",
        selection.tests.len(),
        end_of(&printed)
    );
    Ok(())
}

/// The end of a text, as much as one can read.
fn end_of(text: &str) -> &str {
    const LENGTH: usize = 40_000;
    &text[text.ceil_char_boundary(text.len().saturating_sub(LENGTH))..]
}

async fn command(cluster: &MeshCluster, selection: &Selection) -> Result<tokio::process::Command> {
    let mut features = claimed_features(cluster).await?;
    if !selection.profiles.iter().any(|profile| profile.starts_with("MESH")) {
        // With one of these the suite sets up the workloads of its tests for meshes.
        features.retain(|feature| !feature.starts_with("Mesh"));
    }
    let mut command = suite()?;
    command
        .env("KUBECONFIG", cluster.kubeconfig())
        // Most of a test is waiting for pods, so some at a time.
        .args(["-test.v", "-test.timeout=3h", "-test.parallel=4", "-gateway-class=istio"])
        .arg(format!("-timeout-config-overrides={}", PATIENT.join(";")))
        .arg("-namespace-labels=istio-injection=enabled")
        .arg(format!("-supported-features={}", features.join(",")))
        .arg(format!("-conformance-profiles={}", selection.profiles.join(",")))
        .arg("-usable-address=infra-backend-v1.gateway-conformance-infra.svc.cluster.local")
        .arg("-unusable-address=foo")
        .args(IMPLEMENTATION)
        .arg(format!("-version={TAG}"));
    if !selection.tests.is_empty() {
        command.arg(format!("-tests={}", selection.tests.join(",")));
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
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    Ok(command)
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

/// Defines the kinds of a directory, such as those of Gateway API, of the suite's own version.
pub(crate) async fn define_kinds(cluster: &MeshCluster, directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files.iter().filter(|file| !file.ends_with("kustomization.yaml")) {
        cluster.apply(&fs::read_to_string(file)?).await?;
    }
    Ok(())
}

/// Puts the servers of the tests on the node.
async fn load_servers(cluster: &MeshCluster) -> Result<()> {
    let mesh_echo = find(Part::GatewayMeshEcho)?.join("mesh-echo");
    let servers = [
        ("/echo-basic:", find(Part::GatewayEcho)?.join("echo-basic")),
        ("/echo-advanced:", mesh_echo.clone()),
        // The suite has it for UDPRoutes, which are not served; it has to run all the same.
        ("/coredns:", mesh_echo),
    ];
    load_images(cluster, suite()?, &servers).await
}

/// Puts programs on the node, by the names that a suite's manifests have for their images. Part of the name tells which.
pub(crate) async fn load_images(
    cluster: &MeshCluster,
    mut suite: Command,
    servers: &[(&str, PathBuf)],
) -> Result<()> {
    let output = suite.arg("images").output().context("listing the images of the suite")?;
    let listed = String::from_utf8(output.stdout)?;
    let names: BTreeSet<&str> = listed.lines().collect();
    for (marker, program) in servers {
        let names: Vec<String> =
            names.iter().filter(|name| name.contains(marker)).map(|name| (*name).to_owned()).collect();
        ensure!(!names.is_empty(), "the suite names no image with `{marker}`");
        cluster.load(&server(names, program)?).await?;
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
