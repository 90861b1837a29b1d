use anyhow::Result;
use canopus_parts::{Part, ensure};

use crate::shell::{cargo, run};

/// Shows the control plane at work: real proxy, real requests, no Kubernetes.
///
/// Fetches Envoy, builds canopusd, starts it on a directory of Istio YAML, attaches a stock Envoy over ADS, sends requests
/// through it, edits the YAML while it runs, and tells what happens.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run_it() -> Result<()> {
    ensure(&[Part::Envoy])?;
    run(cargo().args([
        "build",
        "--quiet",
        "--package",
        "canopus-daemon",
        "--bin",
        "canopusd",
        "--example",
        "demo",
    ]))?;
    run(cargo().args(["run", "--quiet", "--package", "canopus-daemon", "--example", "demo"]))
}
