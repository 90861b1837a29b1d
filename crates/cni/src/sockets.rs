//! Small HTTP servers: for the plugin on sockets of the file system, for probes and metrics on ports.
//!
//! The sockets of the plugin are in a directory that only root may enter, are themselves for root alone, and the kernel is
//! asked who connects: what is said there enrols pods.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_runtime::tasks;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

/// The log's socket, in the agent's directory.
pub const LOG_SOCKET: &str = "log.sock";
/// The path of log lines.
pub const LOG_PATH: &str = "/log";

/// Requests larger than this are refused.
const MAX_REQUEST: usize = 1 << 20;

/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer.
pub type Answer = (StatusCode, String);

/// What a server does.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    fn handle(&self, path: &str, body: Bytes) -> impl Future<Output = Answer> + Send;
}

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct SocketError {
    address: String,
    source: io::Error,
}

/// Opens a socket for root alone, in the place of one that a process before left.
pub fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    let fail = |source| SocketError { address: path.display().to_string(), source };
    prepare(path).map_err(fail)?;
    let listener = UnixListener::bind(path).map_err(fail)?;
    restrict(path).map_err(fail)?;
    Ok(listener)
}

/// Makes the directory of a socket, for root alone, and removes a socket that is there.
pub fn prepare(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lets only root connect to a socket.
pub fn restrict(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Whether a user may talk to the agent: root, or who the agent runs as.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}

/// Serves a socket until the future is dropped.
pub async fn serve_unix<H: Handler>(listener: UnixListener, handler: Arc<H>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if is_trusted(peer.uid()) => {
                    tasks::detach("a call of the plugin", answer(stream, Arc::clone(&handler)));
                }
                Ok(peer) => tracing::warn!("user {} may not talk to the agent; refused", peer.uid()),
                Err(error) => tracing::warn!("a peer without credentials is refused: {error}"),
            },
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves a port until the future is dropped.
pub async fn serve_tcp<H: Handler>(address: SocketAddr, handler: Arc<H>) -> Result<Infallible, SocketError> {
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| SocketError { address: address.to_string(), source })?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tasks::detach("a call of the agent's port", answer(stream, Arc::clone(&handler)));
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepting fails when there are too many open files; that passes.
async fn pause(error: &io::Error) {
    tracing::warn!("cannot accept a connection: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn answer<H: Handler>(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, handler: Arc<H>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        async move {
            let path = request.uri().path().to_owned();
            let (status, text) = match Limited::new(request.into_body(), MAX_REQUEST).collect().await {
                Ok(body) => handler.handle(&path, body.to_bytes()).await,
                Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
            };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let server = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = server.await {
        tracing::debug!("a connection broke: {error}");
    }
}

/// Takes the plugin's log lines into the agent's log.
pub struct PluginLog;

impl Handler for PluginLog {
    async fn handle(&self, path: &str, body: Bytes) -> Answer {
        if path != LOG_PATH {
            return (StatusCode::NOT_FOUND, "not found".to_owned());
        }
        match serde_json::from_slice::<Vec<String>>(&body) {
            Ok(lines) => lines.iter().for_each(|line| log(line)),
            Err(error) => tracing::error!("log lines of the plugin cannot be read: {error}"),
        }
        (StatusCode::OK, String::new())
    }
}

fn log(line: &str) {
    let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
        tracing::debug!("a log line of the plugin is not JSON");
        return;
    };
    let message = entry["msg"].as_str().unwrap_or_default().trim();
    match entry["level"].as_str() {
        Some("debug") => tracing::debug!(target: "cni-plugin", "{message}"),
        Some("warn") => tracing::warn!(target: "cni-plugin", "{message}"),
        Some("error" | "fatal") => tracing::error!(target: "cni-plugin", "{message}"),
        _ => tracing::info!(target: "cni-plugin", "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_and_directory_are_for_root_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/log.sock");
        let _first = listen(&path).unwrap();
        let _second = listen(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
}
