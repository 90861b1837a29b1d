//! Connections to gRPC servers that this process calls, with TLS and without.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// How often a server is asked whether it is there, and how long it may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// A server and how it is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Where it is, as `host:port`.
    pub(crate) address: String,
    /// With TLS, the name that its certificate must have, and how hands are shaken.
    pub(crate) tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
}

impl Server {
    /// Makes a connection.
    pub(crate) async fn connect(self) -> Result<Channel, String> {
        let endpoint =
            Endpoint::from_shared(format!("http://{}", self.address)).map_err(|error| error.to_string())?;
        // A server whose machine is gone says nothing, not even that.
        let endpoint = endpoint
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(PATIENCE)
            .keep_alive_while_idle(true);
        endpoint.connect_with_connector(Connector(self)).await.map_err(|error| root_cause(&error))
    }
}

/// What is at the bottom of an error: what is above it says no more than that there is one.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to the server, whatever it is asked for.
struct Connector(Server);

impl<U> Service<U> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: U) -> Self::Future {
        let Server { address, tls } = self.0.clone();
        Box::pin(async move {
            let plain = TcpStream::connect(address).await?;
            let stream: Box<dyn Stream> = match tls {
                Some((name, config)) => Box::new(TlsConnector::from(config).connect(name, plain).await?),
                None => Box::new(plain),
            };
            Ok(TokioIo::new(stream))
        })
    }
}
