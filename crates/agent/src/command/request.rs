//! `canopus-agent request METHOD PATH`: asks Envoy or the agent from inside the container.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::local_http;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The arguments of `request`.
#[derive(Args, Clone, Debug)]
pub(super) struct RequestArgs {
    /// The method, such as GET or POST
    method: String,
    /// The path, such as config_dump or stats?filter=x
    path: String,
    /// Accepted for the sake of old callers; no page of Envoy wants one
    #[arg(hide = true)]
    body: Option<String>,
    /// The port to ask: 15000 is Envoy, 15020 and 15021 are the agent's status
    #[arg(long = "debug-port", default_value_t = 15000)]
    port: u16,
}

/// The answer, and nothing else.
pub(super) async fn send(args: &RequestArgs) -> anyhow::Result<String> {
    if ![15000, 15004, 15020, 15021].contains(&args.port) {
        bail!("port {} is not allowed, must be one of: [15000 15004 15020 15021]", args.port);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let path = format!("/{}", args.path.trim_start_matches('/'));
    let method = args.method.to_ascii_uppercase();
    let answer = local_http::text(address, &method, &path, TIMEOUT).await;
    answer.with_context(|| format!("failed executing Envoy request {method} {path}"))
}
