//! `canopusd request`: what a person in the pod asks the process beside them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

/// The longest answer that is read.
const LONGEST: u64 = 1 << 30;

/// How long the process may take between two parts of its answer.
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
    let RequestArgs { method, path, body, address } = args;
    if [method, path].iter().any(|text| text.contains(|c: char| c.is_whitespace() || c.is_control())) {
        bail!("neither the method nor the path may contain blanks");
    }
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (path, length) = (path.trim_start_matches('/'), body.len());
    write!(stream, "{method} /{path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).context("the answer broke off")?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        bail!("{address} answers {status}: {}", body.trim());
    }
    Ok(body.to_owned())
}
