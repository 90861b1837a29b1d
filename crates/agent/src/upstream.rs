//! Connections to the control plane and its certificate authority: TCP, TLS unless it is turned off, HTTP/2 above.
//!
//! Everything that proves identity is read anew for every connection: the token and the roots are files that others
//! renew while the agent runs.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::address::HostPort;

/// Parity: how long pilot-agent waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Tokens and certificate files may not be larger.
const MAX_FILE: u64 = 1 << 20;

/// Which roots a server's certificate may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The operating system's roots.
    System,
    /// The roots in a PEM file.
    File(PathBuf),
}

/// A certificate to present, as files that may be renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The chain.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A server and how to talk to it.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Where it is.
    pub address: HostPort,
    /// TLS, unless it is turned off.
    pub tls: Option<Tls>,
    /// A file with a token, if one is presented. A file that is missing or empty is no token.
    pub token: Option<PathBuf>,
}

/// How TLS is spoken.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The name the server's certificate must have.
    pub server_name: String,
    /// Roots that the server's certificate must lead to.
    pub roots: Roots,
    /// What to present.
    pub client: Option<ClientFiles>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The name cannot be in a certificate.
    #[error("{0:?} is no server name; set ISTIOD_SAN to the name in the control plane's certificate")]
    ServerName(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
    /// The server does not answer.
    #[error("{address}: {error}; is the control plane running, and reachable from here?")]
    Network {
        /// Where.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The server is not who it should be, or refuses us.
    #[error(
        "{address}: TLS handshake failed: {error}; the root certificate must have signed the server's, and the server's \
         must name {name}"
    )]
    Handshake {
        /// Where.
        address: String,
        /// The name that was expected.
        name: String,
        /// Why.
        error: io::Error,
    },
}

/// What to do about a refusal.
pub(crate) fn hint(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Unauthenticated => {
            "; the token is missing, expired or of an audience it does not accept"
        }
        tonic::Code::PermissionDenied => {
            "; the caller may not have this identity: check POD_NAMESPACE and SERVICE_ACCOUNT"
        }
        _ => "",
    }
}

/// A stream of bytes of either kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    /// Connects.
    pub async fn connect(&self) -> Result<Box<dyn Stream>, ConnectError> {
        let tls = self.tls.as_ref().map(Tls::prepare).transpose()?;
        let HostPort { host, port } = &self.address;
        let address = || format!("{host}:{port}");
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in 5 seconds");
        let tcp = timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), *port))).await;
        let tcp = tcp.unwrap_or_else(|_| Err(late()));
        let tcp = tcp.map_err(|error| ConnectError::Network { address: address(), error })?;
        // Small requests must not wait for acknowledgements of earlier ones.
        let _ = tcp.set_nodelay(true);
        let Some((config, name)) = tls else { return Ok(Box::new(tcp)) };
        let handshake = TlsConnector::from(Arc::new(config)).connect(name.clone(), tcp);
        let stream = timeout(CONNECT_TIMEOUT, handshake).await.unwrap_or_else(|_| Err(late()));
        let failed =
            |error| ConnectError::Handshake { address: address(), name: name.to_str().into(), error };
        Ok(Box::new(stream.map_err(failed)?))
    }

    /// The token to present now.
    pub fn token(&self) -> Result<Option<String>, ConnectError> {
        let Some(path) = &self.token else { return Ok(None) };
        match read(path) {
            Ok(bytes) => {
                let token = String::from_utf8_lossy(&bytes).trim().to_owned();
                Ok((!token.is_empty()).then_some(token))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(path, &error)),
        }
    }

    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Tls {
    fn prepare(&self) -> Result<(ClientConfig, ServerName<'static>), ConnectError> {
        let name = ServerName::try_from(self.server_name.clone());
        let name = name.map_err(|_| ConnectError::ServerName(self.server_name.clone()))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.load()?);
        let client = self.client.as_ref().map(ClientFiles::load).transpose()?.flatten();
        let mut config = match client {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok((config, name))
    }
}

impl Roots {
    pub(crate) fn load(&self) -> Result<RootCertStore, ConnectError> {
        let mut store = RootCertStore::empty();
        match self {
            Self::System => store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
            Self::File(path) => {
                let bytes = read(path).map_err(|error| unusable(path, &error))?;
                let found = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
                store.add_parsable_certificates(found)
            }
        };
        if store.is_empty() {
            let path = match self {
                Self::System => PathBuf::from("the system's root certificates"),
                Self::File(path) => path.clone(),
            };
            let reason =
                "there is no certificate in it; expected PEM with the roots of the control plane".to_owned();
            return Err(ConnectError::File { path, reason });
        }
        Ok(store)
    }
}

impl ClientFiles {
    /// The certificate; `None` as long as the files are not there.
    #[allow(clippy::type_complexity, reason = "the pair that rustls wants")]
    fn load(&self) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, ConnectError> {
        if !self.certificate.exists() || !self.key.exists() {
            return Ok(None);
        }
        let bytes = |path: &PathBuf| read(path).map_err(|error| unusable(path, &error));
        let broken = |path: &PathBuf, error: rustls::pki_types::pem::Error| ConnectError::File {
            path: path.clone(),
            reason: format!("{error}; expected PEM"),
        };
        let chain = CertificateDer::pem_slice_iter(&bytes(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| broken(&self.certificate, error))?;
        let key =
            PrivateKeyDer::from_pem_slice(&bytes(&self.key)?).map_err(|error| broken(&self.key, error))?;
        Ok(Some((chain, key)))
    }
}

fn unusable(path: &std::path::Path, error: &io::Error) -> ConnectError {
    let reason = format!("{error}; mount the file, or see to it that this user may read it");
    ConnectError::File { path: path.to_owned(), reason }
}

/// A file of bounded size.
pub(crate) fn read(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > MAX_FILE {
        return Err(io::Error::other(format!("{size} bytes are too many; the limit is {MAX_FILE}")));
    }
    fs::read(path)
}

/// Connects for gRPC clients that bring their own HTTP/2.
#[derive(Clone, Debug)]
pub struct Connector(pub Arc<Upstream>);

impl<U> Service<U> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: U) -> Self::Future {
        let upstream = Arc::clone(&self.0);
        Box::pin(async move { upstream.connect().await.map(TokioIo::new) })
    }
}
