//! Runs Gateway API's official conformance suite on a real cluster; `cargo xtask gateway-conformance` is the way to call it.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a program talks on its standard streams")]

#[path = "real_mesh/cluster.rs"]
#[allow(dead_code, reason = "the tests of installations use the rest")]
mod cluster;
#[path = "support/gateway_report.rs"]
mod report;
#[path = "real_mesh/suite.rs"]
#[allow(dead_code, reason = "the test of the core uses the rest")]
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use canopus_testkit::KubeCluster;
use clap::Parser;

use suite::Selection;

#[derive(Parser)]
struct Arguments {
    /// Profiles to run.
    #[arg(long, value_delimiter = ',')]
    profiles: Vec<String>,
    /// The only tests to run.
    #[arg(long = "test", value_delimiter = ',')]
    tests: Vec<String>,
    /// Tests that are left out.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Where the official report is written.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Keep the cluster after the suite, until the program is interrupted.
    #[arg(long)]
    keep: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if !KubeCluster::is_available() {
        return Ok(ExitCode::FAILURE);
    }
    let cluster = suite::prepare().await?;
    eprintln!("the mesh is up: KUBECONFIG={}", cluster.kubeconfig().display());
    let selection = Selection {
        profiles: arguments.profiles,
        tests: arguments.tests,
        skip: arguments.skip,
        report: arguments.report,
        keep: arguments.keep,
    };
    let status = suite::run(&cluster, &selection).await?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    if selection.report.is_some_and(|path| path == repository.join(report::REPORT)) {
        report::update(&repository)?;
    }
    if arguments.keep {
        eprintln!("kept: KUBECONFIG={}; interrupt to end it", cluster.kubeconfig().display());
        tokio::signal::ctrl_c().await?;
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
