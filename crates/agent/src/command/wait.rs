//! `canopus-agent wait`: ends when the proxy is ready, for hooks that hold the application back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use http::Uri;

use crate::local_http;

/// The arguments of `wait`.
#[derive(Args, Clone, Debug)]
pub(super) struct WaitArgs {
    /// Longest time to wait, in seconds
    #[arg(long = "timeoutSeconds", default_value_t = 60)]
    timeout: u64,
    /// Longest time for one answer, in milliseconds
    #[arg(long = "requestTimeoutMillis", default_value_t = 500)]
    request_timeout: u64,
    /// Time between questions, in milliseconds
    #[arg(long = "periodMillis", default_value_t = 500)]
    period: u64,
    /// What to ask
    #[arg(long = "url", default_value = "http://localhost:15021/healthz/ready")]
    url: String,
}

/// Asks until the answer is 200.
pub(super) async fn until_ready(args: &WaitArgs) -> anyhow::Result<()> {
    let url: Uri = args.url.parse().with_context(|| format!("--url: {:?} is not a URL", args.url))?;
    let host = url.host().with_context(|| format!("--url: {:?} has no host", args.url))?;
    let port = url.port_u16().unwrap_or(80);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let limit = Duration::from_millis(args.request_timeout.max(1));
    let mut reason = "nobody was asked".to_owned();
    while Instant::now() < deadline {
        match tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await {
            Ok(addresses) => {
                for address in addresses {
                    match local_http::text(address, "GET", path, limit).await {
                        Ok(_) => return Ok(()),
                        Err(error) => reason = error.to_string(),
                    }
                }
            }
            Err(error) => reason = format!("{host}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(args.period.max(1))).await;
    }
    bail!("timeout waiting for Envoy proxy to become ready. Last error: {reason}")
}
