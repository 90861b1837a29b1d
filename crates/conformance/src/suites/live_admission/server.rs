//! What else the port of the webhooks answers, asked of a `canopusd` that runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use canopus_admission::validation::{Answer, Outcome};
use canopus_testkit::{Process, free_port, http};

use crate::tool;

const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to a request without a body, once the process is ready.
pub(super) fn ask(path: &str) -> anyhow::Result<Answer> {
    tokio::runtime::Runtime::new().context("cannot start")?.block_on(answer(path))
}

async fn answer(path: &str) -> anyhow::Result<Answer> {
    let directory = tempfile::Builder::new().prefix("canopus-live-admission-").tempdir()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut command = tool::canopusd()?;
    command
        .arg("discovery")
        .arg("--configDir")
        .arg(directory.path())
        .args(["--registries=Mock", "--snapshot="]);
    // Without a port of their own, webhooks are served on this one.
    command.arg(format!("--httpAddr={address}")).arg("--httpsAddr=");
    command.args(["--grpcAddr=", "--secureGRPCAddr=", "--monitoringAddr="]).current_dir(directory.path());
    let mut process = Process::spawn("canopusd", &mut command, directory.path())?;
    let ready = async || http::get(address, "/ready").await?.ok();
    process.eventually("canopusd's readiness", PATIENCE, ready).await?;
    let response = http::get(address, path).await?;
    let outcome = Outcome::default();
    Ok(Answer { status: response.status.as_u16(), headers: &[], body: response.body.into_bytes(), outcome })
}
