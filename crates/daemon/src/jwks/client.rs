//! A client for documents that users point at: bounded in time and size, and not to every address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_http::tls::Servers;
use canopus_http::{Body, Version};
use canopus_mesh::blocked::Blocked;
use canopus_runtime::flags::{
    BLOCKED_CIDRS_IN_JWKS_URIS, CANOPUS_ALLOW_LOCAL_JWKS, Flags, JWKS_RESOLVER_INSECURE_SKIP_VERIFY,
};
use http::{Request, Response, Uri, header};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tracing::warn;

use super::fetch::FetchError;
use super::resolver::Resolver;

/// The longest document that is read.
const MAX_BYTES: usize = 1 << 20;

/// How often a server may send the client elsewhere.
const MAX_REDIRECTS: usize = 10;

/// How many documents are fetched at once.
const AT_ONCE: usize = 16;

/// Authorities beside those of the system.
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

/// The client. Clones share what is costly.
#[derive(Clone)]
pub(super) struct Client {
    blocked: Arc<Blocked>,
    /// Whether loopback addresses and the machine's own are asked too.
    allow_local: bool,
    tls: Option<TlsConnector>,
    resolver: Resolver,
    turns: Arc<Semaphore>,
}

impl Client {
    pub(super) fn new(flags: &Flags) -> Self {
        let tls = tls(flags.get(JWKS_RESOLVER_INSECURE_SKIP_VERIFY));
        let tls = tls.inspect_err(|error| warn!(%error, "nothing can be fetched over https")).ok();
        let (blocked, errors) = Blocked::new(flags.get(BLOCKED_CIDRS_IN_JWKS_URIS));
        errors.iter().for_each(|error| warn!(%error, "BLOCKED_CIDRS_IN_JWKS_URIS"));
        Self {
            blocked: Arc::new(blocked),
            allow_local: flags.get(CANOPUS_ALLOW_LOCAL_JWKS),
            tls: tls.map(|tls| TlsConnector::from(Arc::new(tls))),
            resolver: Resolver::system(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// A client that trusts these authorities, in PEM.
    #[cfg(test)]
    pub(super) fn trusting(flags: &Flags, roots: &[u8]) -> Self {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots).flatten());
        let config = config(store, false).expect("a configuration");
        Self { tls: Some(TlsConnector::from(Arc::new(config))), ..Self::new(flags) }
    }

    /// The document at an address.
    pub(super) async fn get(&self, uri: &str, timeout: Duration) -> Result<String, FetchError> {
        match tokio::time::timeout(timeout, self.follow(uri)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(FetchError::Timeout(timeout)),
        }
    }

    /// Whether an address is one of this machine that is not asked.
    fn is_local(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        !self.allow_local && (address.is_loopback() || address.is_unspecified())
    }

    async fn follow(&self, uri: &str) -> Result<String, FetchError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let mut uri = absolute(uri)?;
        for _ in 0..=MAX_REDIRECTS {
            match self.ask(&uri).await? {
                Answer::Document(text) => return Ok(text),
                Answer::Elsewhere(place) => uri = relative_to(&uri, &place)?,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn ask(&self, uri: &Uri) -> Result<Answer, FetchError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = self.connect(host, port).await?;
        if !is_secure {
            return exchange(stream, uri).await;
        }
        let tls = self.tls.as_ref().ok_or(FetchError::NoTls)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Uri(uri.to_string()))?;
        exchange(tls.connect(name, stream).await?, uri).await
    }

    /// Connects to the first address of a host that may be connected to and answers.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, FetchError> {
        let mut last = None;
        for address in self.resolver.resolve(host, port).await? {
            // What is resolved is what is connected to: there is no second look that could find something else.
            if self.blocked.contains(address.ip()) || self.is_local(address.ip()) {
                last = Some(FetchError::Blocked(address.ip()));
                continue;
            }
            match TcpStream::connect(address).await {
                // A connection to this machine itself is refused: local ports trust such callers.
                Ok(stream) if !self.allow_local && is_own(&stream) => {
                    last = Some(FetchError::Blocked(address.ip()));
                }
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error.into()),
            }
        }
        Err(last.unwrap_or_else(|| FetchError::Unknown(host.to_owned())))
    }
}

/// Whether both ends of a connection have the same address.
fn is_own(stream: &TcpStream) -> bool {
    let ends = (stream.local_addr(), stream.peer_addr());
    matches!(ends, (Ok(local), Ok(peer)) if local.ip() == peer.ip())
}

/// What a server says.
enum Answer {
    Document(String),
    Elsewhere(String),
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    uri: &Uri,
) -> Result<Answer, FetchError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, "canopus")
        .header(header::CONNECTION, "close")
        .body(Bytes::new())
        .map_err(|_| FetchError::Uri(uri.to_string()))?;
    read(canopus_http::send(stream, Version::Http1, request).await?).await
}

async fn read(response: Response<Body>) -> Result<Answer, FetchError> {
    let status = response.status();
    if status.is_redirection()
        && let Some(place) = response.headers().get(header::LOCATION)
    {
        let place = place.to_str().map_err(|_| FetchError::Status(status))?;
        return Ok(Answer::Elsewhere(place.to_owned()));
    }
    if !status.is_success() {
        return Err(FetchError::Status(status));
    }
    let body = canopus_http::read(response.into_body(), MAX_BYTES).await?;
    String::from_utf8(body.into()).map(Answer::Document).map_err(|_| FetchError::NotJson)
}

fn absolute(uri: &str) -> Result<Uri, FetchError> {
    let wrong = || FetchError::Uri(uri.to_owned());
    let parsed: Uri = uri.parse().map_err(|_| wrong())?;
    let is_web = matches!(parsed.scheme_str(), Some("http" | "https"));
    if is_web && parsed.host().is_some() { Ok(parsed) } else { Err(wrong()) }
}

/// Where a server sends the client: to another server, or to another path of the same.
fn relative_to(uri: &Uri, place: &str) -> Result<Uri, FetchError> {
    if !place.starts_with('/') || place.starts_with("//") {
        return absolute(place);
    }
    let (scheme, authority) = (uri.scheme_str().unwrap_or("http"), uri.authority());
    absolute(&format!("{scheme}://{}{place}", authority.map_or("", |authority| authority.as_str())))
}

/// The settings of connections to servers that the system's authorities vouch for.
pub(super) fn tls(unchecked: bool) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Ok(extra) = std::fs::read(EXTRA_ROOTS) {
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&extra).flatten());
    }
    config(roots, unchecked)
}

fn config(roots: RootCertStore, unchecked: bool) -> Result<ClientConfig, rustls::Error> {
    let servers = match unchecked {
        true => Servers::Any,
        false if roots.is_empty() => {
            return Err(rustls::Error::General("there are no root certificates".into()));
        }
        false => Servers::Trusted(roots),
    };
    Ok(canopus_http::tls::client(servers)?.with_no_client_auth())
}
