//! Connections to a discovery port.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::XdsArguments;
use super::tls::{self, Presented};

/// Where a control plane listens and how it is spoken to.
pub(super) struct Target {
    address: String,
    /// The name its certificate must have.
    name: String,
    tls: Option<Arc<ClientConfig>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Target {
    /// What the command line names; `root` is one more root that the control plane may have.
    pub(super) fn new(arguments: &XdsArguments, root: Option<&str>, namespace: &str) -> anyhow::Result<Self> {
        let given = &arguments.xds_address;
        let has_port = given.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { given.clone() } else { format!("{given}:{}", arguments.xds_port) };
        let name = if arguments.authority.is_empty() {
            format!("istiod.{namespace}.svc")
        } else {
            arguments.authority.clone()
        };
        let presented =
            (!arguments.cert_dir.is_empty()).then(|| presented(&arguments.cert_dir)).transpose()?;
        let tls = if arguments.plaintext {
            None
        } else {
            Some(Arc::new(tls::config(presented.as_ref(), root, arguments.insecure)?))
        };
        Ok(Self { address, name, tls })
    }

    pub(super) async fn channel(&self) -> anyhow::Result<Channel> {
        let name = ServerName::try_from(self.name.clone())
            .with_context(|| format!("--authority {}: this is no server name", self.name))?;
        let endpoint = Endpoint::from_shared(format!("http://{}", self.name))
            .with_context(|| format!("--authority {}: this is no server name", self.name))?;
        let connector = Connector { address: self.address.clone(), name, tls: self.tls.clone() };
        endpoint.connect_with_connector(connector).await.with_context(|| {
            format!(
                "cannot connect to {}; a certificate that is not to be checked needs --insecure",
                self.address
            )
        })
    }
}

/// The files of a directory that proxies keep certificates in.
fn presented(directory: &str) -> anyhow::Result<Presented> {
    let read = |name: &str| {
        let path = Path::new(directory).join(name);
        fs::read(&path).with_context(|| format!("--cert-dir: cannot read {}", path.display()))
    };
    Ok(Presented { chain: read("cert-chain.pem")?, key: read("key.pem")?, root: read("root-cert.pem")? })
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to one address, whatever it is asked for.
struct Connector {
    address: String,
    name: ServerName<'static>,
    tls: Option<Arc<ClientConfig>>,
}

impl<U> Service<U> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: U) -> Self::Future {
        let (address, name, tls) = (self.address.clone(), self.name.clone(), self.tls.clone());
        Box::pin(async move {
            let tcp = TcpStream::connect(&address).await?;
            let stream: Box<dyn Stream> = match tls {
                Some(config) => Box::new(TlsConnector::from(config).connect(name, tcp).await?),
                None => Box::new(tcp),
            };
            Ok(TokioIo::new(stream))
        })
    }
}
