use std::path::PathBuf;

use anyhow::Result;
use canopus_parts::{Part, ensure as install};

use crate::shell::{cargo, root, run};

/// What the programs of a cluster, its images and the suite are made from.
const PARTS: [Part; 10] = [
    Part::Envoy,
    Part::Iptables,
    Part::Containerd,
    Part::Runtime,
    Part::Kube,
    Part::Coredns,
    Part::Helm,
    Part::GatewayEcho,
    Part::GatewayMeshEcho,
    Part::GatewayConformance,
];

/// Runs Gateway API's official conformance suite against a mesh on a real cluster, and writes its report.
///
/// The cluster has a node of its own, canopusd from this tree, and Envoys that canopusd deploys. It takes root and about half an
/// hour. Every feature that the status of the GatewayClass claims is tested.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask gateway-conformance                                       everything, into docs/gateway-api-conformance.yaml
  cargo xtask gateway-conformance --test HTTPRouteSimpleSameNamespace   one test, without a report
  cargo xtask gateway-conformance --profiles GATEWAY-GRPC --keep        one profile; the cluster stays for a look")]
pub(crate) struct Arguments {
    /// Conformance profiles to run.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "GATEWAY-HTTP,GATEWAY-TLS,GATEWAY-GRPC,GATEWAY-TCP,MESH-HTTP,MESH-GRPC"
    )]
    profiles: String,

    /// The only tests to run; no report is written.
    #[arg(long = "test", value_name = "NAMES", value_delimiter = ',')]
    tests: Vec<String>,

    /// Where the report is written [default: docs/gateway-api-conformance.yaml].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Keep the cluster after the suite, until this is interrupted.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run_it(arguments: &Arguments) -> Result<()> {
    install(&PARTS)?;
    // With a test among them, programs are built with the features that tests have, and not once more without.
    run(cargo().args(["build", "--workspace", "--bins", "--test=gateway_conformance"]))?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--test=gateway_conformance", "--"]);
    command.arg("--profiles").arg(&arguments.profiles);
    if arguments.tests.is_empty() {
        let default = || root().join("docs/gateway-api-conformance.yaml");
        command.arg("--report").arg(arguments.report.clone().unwrap_or_else(default));
    } else {
        command.arg("--test").arg(arguments.tests.join(","));
    }
    if arguments.keep {
        command.arg("--keep");
    }
    run(&mut command)
}
