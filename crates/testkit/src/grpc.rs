use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use canopus_parts::Part;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The method that a [`GrpcCaller`] calls: it takes nothing and returns a string, the name of who answers.
pub const GRPC_METHOD: &str = "/echo.Echo/Name";

/// How long an order may take: each call of it has five seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gRPC client that asks a control plane where its calls go.
#[derive(Debug)]
pub struct GrpcCaller {
    orders: ChildStdin,
    outcomes: Lines<BufReader<ChildStdout>>,
    /// The client ends when its standard input does, which happens also if this process is killed.
    _process: Child,
    _directory: TempDir,
}

/// What became of some calls.
#[derive(Debug, Default, Deserialize)]
pub struct Called {
    /// How often each server answered, by its name.
    pub answers: BTreeMap<String, usize>,
    /// How often a call failed, by the reason.
    pub failures: BTreeMap<String, usize>,
}

impl GrpcCaller {
    /// Starts a client of `target`, such as `xds:///echo.default.svc.cluster.local:7070`, with a bootstrap in JSON.
    pub fn start(target: &str, bootstrap: &Value) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-grpc-").tempdir()?;
        let file = directory.path().join("grpc-bootstrap.json");
        fs::write(&file, bootstrap.to_string()).context("writing the bootstrap")?;
        let mut process = Command::new(canopus_parts::find(Part::Grpc)?.join("grpc-caller"))
            .arg(target)
            .env("GRPC_XDS_BOOTSTRAP", file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the gRPC client")?;
        let orders = process.stdin.take().context("the gRPC client has no input")?;
        let outcomes = process.stdout.take().context("the gRPC client has no output")?;
        let outcomes = BufReader::new(outcomes).lines();
        Ok(Self { orders, outcomes, _process: process, _directory: directory })
    }

    /// Makes so many calls with these headers.
    pub async fn call(&mut self, calls: usize, headers: &[(&str, &str)]) -> Result<Called> {
        let headers: BTreeMap<_, _> = headers.iter().copied().collect();
        let order = json!({"calls": calls, "headers": headers});
        self.orders.write_all(format!("{order}\n").as_bytes()).await.context("asking the gRPC client")?;
        let outcome =
            timeout(PATIENCE, self.outcomes.next_line()).await.context("no word of the calls")??;
        let outcome = outcome.context("the gRPC client has ended; what it wrote is above")?;
        serde_json::from_str(&outcome).with_context(|| format!("`{outcome}` is not an outcome"))
    }
}
