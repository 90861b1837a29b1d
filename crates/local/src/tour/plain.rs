//! Speaking HTTP without TLS to a workload, as a neighbour without a certificate would.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered over HTTP; the first line.
    Answered(String),
    /// The connection was accepted, and closed without a word.
    Closed(&'static str),
}

/// Sends a request. A connection that is not accepted, silence, and words that are not HTTP are errors: they tell nothing of who
/// may speak.
pub(super) async fn ask(address: SocketAddr) -> Result<Outcome> {
    let exchange = timeout(PATIENCE, exchange(address)).await;
    exchange.unwrap_or_else(|_| bail!("{address} does not answer within {} s", PATIENCE.as_secs()))
}

async fn exchange(address: SocketAddr) -> Result<Outcome> {
    let mut stream =
        TcpStream::connect(address).await.with_context(|| format!("{address} cannot be reached"))?;
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    if let Err(error) = stream.write_all(request.as_bytes()).await {
        return closed(&error).with_context(|| address.to_string());
    }
    let mut head = Vec::new();
    let mut buffer = [0; 512];
    // The first line is enough, and more than this is none.
    while !head.contains(&b'\n') && head.len() < 4096 {
        match stream.read(&mut buffer).await {
            Ok(0) if head.is_empty() => return Ok(Outcome::Closed("connection closed")),
            Ok(0) => break,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
            Err(error) => return closed(&error).with_context(|| address.to_string()),
        }
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default().trim();
    if !line.starts_with("HTTP/1.") {
        bail!("{address} answers plain HTTP with {line:?}");
    }
    Ok(Outcome::Answered(line.to_owned()))
}

fn closed(error: &io::Error) -> Result<Outcome> {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Outcome::Closed("connection reset")),
        _ => bail!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// What is found at a server that reads the request and then says this.
    async fn found(answer: &'static [u8]) -> Result<Outcome> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serve = async {
            let (mut stream, _) = listener.accept().await?;
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await?;
            stream.write_all(answer).await
        };
        let (served, found) = tokio::join!(serve, ask(address));
        served?;
        found
    }

    #[tokio::test]
    async fn answer_and_refusal_are_told_apart() {
        let answered = found(b"HTTP/1.1 404 Not Found\r\n\r\n").await.unwrap();
        assert_eq!(answered, Outcome::Answered("HTTP/1.1 404 Not Found".to_owned()));
        assert_eq!(found(b"").await.unwrap(), Outcome::Closed("connection closed"));
        assert!(found(b"\x15\x03\x01\x00\x02\x02").await.is_err());
    }

    #[tokio::test]
    async fn port_where_nobody_listens_is_no_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = ask(address).await.unwrap_err().to_string();
        assert!(error.contains("cannot be reached"), "{error}");
    }
}
