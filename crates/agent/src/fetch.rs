//! HTTP requests to servers outside this machine: Wasm modules, token servers, metadata of clouds.
//!
//! Which server is asked is often said by configuration that others write, so every connection, also that of a redirect,
//! passes an [`AddressGuard`] after the name is resolved and before it is connected to.

mod guard;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_http::tls::{self, Servers};
use canopus_http::{Body, Version};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub use self::guard::{AddressGuard, Blocked};
use crate::upstream::{ConnectError, Roots, Stream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is none.
    #[error("{url}: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// Why.
        reason: &'static str,
    },
    /// The server may not be asked.
    #[error("{host}: {blocked}")]
    Blocked {
        /// The server.
        host: String,
        /// Why.
        blocked: Blocked,
    },
    /// The server cannot be reached.
    #[error("{host}: {error}")]
    Network {
        /// The server.
        host: String,
        /// Why.
        error: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] ConnectError),
    /// The exchange broke.
    #[error("{host}: {error}")]
    Http {
        /// The server.
        host: String,
        /// Why.
        error: String,
    },
    /// The fetch took too long.
    #[error("no answer in {0:?}")]
    Late(Duration),
    /// The answer leads from one server to the next.
    #[error("more than {MAX_REDIRECTS} redirects")]
    Redirects,
    /// The answer is too large.
    #[error("the answer is larger than {0} bytes, or broke off")]
    Size(usize),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// GET unless said otherwise.
    pub method: Method,
    /// Where.
    pub url: Uri,
    /// Header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whether any certificate is accepted.
    pub unverified: bool,
}

impl Fetch {
    /// A GET request.
    pub fn get(url: &str) -> Result<Self, FetchError> {
        let parsed: Uri =
            url.parse().map_err(|_| FetchError::Url { url: url.to_owned(), reason: "it is not a URL" })?;
        Ok(Self {
            method: Method::GET,
            url: parsed,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            unverified: false,
        })
    }

    /// The host and the port.
    fn authority(&self) -> Result<(String, u16, bool), FetchError> {
        let invalid = |reason| FetchError::Url { url: self.url.to_string(), reason };
        let is_tls = match self.url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("expected http:// or https://")),
        };
        let host = self.url.host().ok_or_else(|| invalid("it has no host"))?;
        let port = self.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok((host.trim_matches(['[', ']']).to_owned(), port, is_tls))
    }
}

/// Makes requests.
#[derive(Clone, Debug)]
pub struct Fetcher {
    guard: Arc<AddressGuard>,
    roots: Roots,
}

impl Fetcher {
    /// Asks servers that the guard lets through and that certificates of these roots prove.
    pub fn new(guard: AddressGuard, roots: Roots) -> Self {
        Self { guard: Arc::new(guard), roots }
    }

    /// Sends a request and gives the head of the answer. Redirects are not followed.
    pub async fn send(&self, request: &Fetch) -> Result<Response<Body>, FetchError> {
        let (host, port, is_tls) = request.authority()?;
        let broken = |error: String| FetchError::Http { host: host.clone(), error };
        let stream = self.connect(&host, port, is_tls, request.unverified).await?;
        let path = request.url.path_and_query().map_or("/", |path| path.as_str());
        let mut message = Request::builder()
            .method(request.method.clone())
            .uri(path)
            .body(request.body.clone())
            .map_err(|error| broken(error.to_string()))?;
        *message.headers_mut() = request.headers.clone();
        let named = request.url.authority().map_or(host.as_str(), http::uri::Authority::as_str);
        if let Ok(named) = HeaderValue::from_str(named.rsplit('@').next().unwrap_or(named)) {
            message.headers_mut().entry(header::HOST).or_insert(named);
        }
        let answer = canopus_http::send(stream, Version::Http1, message).await;
        answer.map_err(|error| broken(error.to_string()))
    }

    /// Sends a request and follows redirects. What proves who asks stays with the first server, and TLS is not given up.
    pub async fn follow(&self, mut request: Fetch) -> Result<Response<Body>, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send(&request).await?;
            let location = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let Some(location) = location.filter(|_| is_redirect(answer.status())) else { return Ok(answer) };
            let next = resolve(&request.url, location)?;
            if next.authority() != request.url.authority() {
                request.headers.remove(header::AUTHORIZATION);
            }
            if request.url.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(FetchError::Url {
                    url: next.to_string(),
                    reason: "a redirect may not give up TLS",
                });
            }
            request.url = next;
        }
        Err(FetchError::Redirects)
    }

    async fn connect(
        &self,
        host: &str,
        port: u16,
        is_tls: bool,
        unverified: bool,
    ) -> Result<Box<dyn Stream>, FetchError> {
        let network = |error| FetchError::Network { host: host.to_owned(), error };
        let addresses = tokio::net::lookup_host((host, port)).await.map_err(network)?;
        let mut failure = network(io::Error::other("the name has no address"));
        for address in addresses {
            if let Err(blocked) = self.guard.check(address) {
                failure = FetchError::Blocked { host: host.to_owned(), blocked };
                continue;
            }
            match timeout(CONNECT_TIMEOUT, self.connect_to(address, host, is_tls, unverified)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = FetchError::Late(CONNECT_TIMEOUT),
            }
        }
        Err(failure)
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        host: &str,
        is_tls: bool,
        unverified: bool,
    ) -> Result<Box<dyn Stream>, FetchError> {
        let network = |error| FetchError::Network { host: host.to_owned(), error };
        let stream = TcpStream::connect(address).await.map_err(network)?;
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let invalid = |_| FetchError::Url { url: host.to_owned(), reason: "it is no server name" };
        let name = ServerName::try_from(host.to_owned()).map_err(invalid)?;
        let connector = TlsConnector::from(Arc::new(self.client_config(unverified)?));
        Ok(Box::new(connector.connect(name, stream).await.map_err(network)?))
    }

    fn client_config(&self, unverified: bool) -> Result<ClientConfig, ConnectError> {
        let servers = if unverified { Servers::Any } else { Servers::Trusted(self.roots.load()?) };
        let mut config = tls::client(servers)?.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The URL that a `Location` means. Only absolute URLs and absolute paths occur.
fn resolve(base: &Uri, location: &str) -> Result<Uri, FetchError> {
    let invalid = || FetchError::Url { url: location.to_owned(), reason: "the redirect leads nowhere" };
    let next: Uri = location.parse().map_err(|_| invalid())?;
    if next.authority().is_some() {
        return Ok(next);
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = next.into_parts().path_and_query;
    Uri::from_parts(parts).map_err(|_| invalid())
}

/// The whole body, up to a limit.
pub async fn body(answer: Response<Body>, limit: usize) -> Result<Bytes, FetchError> {
    canopus_http::read(answer.into_body(), limit).await.map_err(|_| FetchError::Size(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved_against_the_page_they_come_from() {
        let base: Uri = "https://a.example:8443/x/y?z".parse().unwrap();
        assert_eq!(resolve(&base, "/other?q=1").unwrap(), "https://a.example:8443/other?q=1");
        assert_eq!(resolve(&base, "https://b.example/").unwrap(), "https://b.example/");
        assert!(resolve(&base, "http://[").is_err());
    }

    #[tokio::test]
    async fn answer_is_bounded_and_redirects_are_guarded() {
        let echo = canopus_testkit::Echo::start("module").await.unwrap();
        let url = format!("http://{}/module", echo.address());
        let open = Fetcher::new(AddressGuard::open(), Roots::System);
        let answer = open.follow(Fetch::get(&url).unwrap()).await.unwrap();
        assert!(matches!(body(answer, 10).await, Err(FetchError::Size(10))));
        let guarded = Fetcher::new(AddressGuard::default(), Roots::System);
        let error = guarded.follow(Fetch::get(&url).unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("loopback"), "{error}");
    }
}
