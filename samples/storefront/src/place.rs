//! Where this program and the others are.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "programs of users are set up by their environment")]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The version of this program.
pub(crate) fn version() -> String {
    variable("VERSION").unwrap_or_else(|| "v1".to_owned())
}

/// Opens the port this program is told to, or its own.
pub(crate) async fn listen(own: u16) -> Result<TcpListener> {
    let port = match variable("PORT") {
        Some(port) => port.parse().with_context(|| format!("PORT: {port}"))?,
        None => own,
    };
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(address).await.with_context(|| format!("port {port}"))?;
    println!("listening on {address}");
    Ok(listener)
}

/// `host:port` of a service.
pub(crate) fn service(name: &str, own_port: u16) -> String {
    let name_in_variables = name.to_uppercase();
    let host = variable(&format!("{name_in_variables}_SERVICE_HOST")).unwrap_or_else(|| name.to_owned());
    let port = variable(&format!("{name_in_variables}_SERVICE_PORT")).unwrap_or_else(|| own_port.to_string());
    format!("{host}:{port}")
}
