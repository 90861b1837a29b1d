//! `canopusd request`: what a person in the pod asks the process beside them.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use canopus_http::Version;
use clap::Args;
use http::{Request, header};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer that is read.
const LONGEST: usize = 1 << 30;

/// How long the process may take to begin its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `canopusd request`.
#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    /// The method, usually GET.
    method: String,
    /// The path, such as debug/configz.
    path: String,
    /// What to send along.
    #[arg(default_value = "")]
    body: String,
    /// Where the process answers.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:15014")]
    address: String,
}

/// The body of the answer.
pub(super) fn send(args: &RequestArgs) -> anyhow::Result<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(ask(args))
}

async fn ask(args: &RequestArgs) -> anyhow::Result<String> {
    let RequestArgs { method, path, body, address } = args;
    let request = Request::builder()
        .method(&**method)
        .uri(format!("/{}", path.trim_start_matches('/')))
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "close")
        .body(Bytes::copy_from_slice(body.as_bytes()))
        .context("neither the method nor the path may contain blanks")?;
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let asked = timeout(PATIENCE, canopus_http::send(stream, Version::Http1, request)).await;
    let answer = asked.with_context(|| format!("{address}: no answer within {PATIENCE:?}"))?;
    let answer = answer.with_context(|| format!("{address} does not answer"))?;
    let status = answer.status();
    let body = canopus_http::read(answer.into_body(), LONGEST).await?;
    let body = String::from_utf8_lossy(&body);
    if !status.is_success() {
        bail!("{address} answers {}: {}", status.as_u16(), body.trim());
    }
    Ok(body.into_owned())
}
