//! Token exchange (RFC 8693) for applications of this machine, on `--stsPort`.
//!
//! An application, or Envoy's gRPC, sends a token it has and gets one for somebody else. Who exchanges is a [`TokenBackend`];
//! [`OauthBackend`] asks an OAuth server that the operator has named. Istio's own server of this kind spoke to Google alone
//! and is gone; manifests still name the port.
//!
//! Only this machine is answered. Tokens are never logged, and answers are not to be stored.

mod oauth;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_runtime::tasks::detach;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

pub use oauth::{OauthBackend, OauthSettings};

/// Where tokens are exchanged.
const PATH: &str = "/token";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// A token may be some kilobytes; a form has two of them at most.
const MAX_FORM: usize = 256 << 10;
const MAX_CONNECTIONS: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be exchanged. Fields are named as in the RFC.
#[derive(Clone, Default)]
pub struct ExchangeRequest {
    /// The token of whom the new one is about.
    pub subject_token: Zeroizing<String>,
    /// URN of the subject token's type.
    pub subject_token_type: String,
    /// All other parameters of the form, such as `audience`, `scope` and `resource`.
    pub parameters: BTreeMap<String, String>,
}

impl fmt::Debug for ExchangeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.parameters.keys().collect();
        f.debug_struct("ExchangeRequest").field("parameters", &names).finish_non_exhaustive()
    }
}

/// A token that was issued.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct IssuedToken {
    /// The token.
    pub access_token: String,
    /// URN of the issued token's type.
    #[serde(default)]
    pub issued_token_type: String,
    /// How it is used, such as `Bearer`.
    #[serde(default)]
    pub token_type: String,
    /// How long it counts, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Why there is no token, in the words of the RFC.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {error_description}")]
pub struct ExchangeError {
    /// OAuth error code, such as `invalid_request` or `invalid_target`.
    pub error: String,
    /// What is wrong.
    #[serde(default)]
    pub error_description: String,
}

impl ExchangeError {
    fn new(error: &str, description: impl Into<String>) -> Self {
        Self { error: error.to_owned(), error_description: description.into() }
    }
}

/// The result of an exchange, once it is there.
pub type Exchange<'a> = Pin<Box<dyn Future<Output = Result<IssuedToken, ExchangeError>> + Send + 'a>>;

/// Exchanges tokens.
pub trait TokenBackend: Send + Sync {
    /// The token for a token.
    fn exchange(&self, request: ExchangeRequest) -> Exchange<'_>;
}

/// Binds the port on this machine's own address.
pub async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

/// Serves for as long as it is polled.
pub async fn serve(listener: TcpListener, backend: Arc<dyn TokenBackend>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    info!(target: "sts", "tokens are exchanged at {PATH}");
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(target: "sts", "cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let backend = Arc::clone(&backend);
        detach("token exchange", async move {
            let service = service_fn(move |request| {
                let backend = Arc::clone(&backend);
                async move { Ok::<_, Infallible>(answer(request, &*backend).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(TIMEOUT)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                debug!(target: "sts", "{error}");
            }
            drop(permit);
        });
    }
}

async fn answer(request: Request<Incoming>, backend: &dyn TokenBackend) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return json(
            StatusCode::NOT_FOUND,
            &ExchangeError::new("invalid_request", format!("tokens are exchanged at {PATH}")),
        );
    }
    if request.method() != Method::POST {
        return json(StatusCode::METHOD_NOT_ALLOWED, &ExchangeError::new("invalid_request", "expected POST"));
    }
    let result = match read(request).await {
        Ok(wanted) => {
            let late = || ExchangeError::new("temporarily_unavailable", format!("no token in {TIMEOUT:?}"));
            timeout(TIMEOUT, backend.exchange(wanted)).await.unwrap_or_else(|_| Err(late()))
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(token) => json(StatusCode::OK, &token),
        Err(error) => {
            warn!(target: "sts", "a token is not exchanged: {error}");
            let status = match error.error.as_str() {
                "temporarily_unavailable" | "server_error" => StatusCode::BAD_GATEWAY,
                "invalid_client" => StatusCode::UNAUTHORIZED,
                _ => StatusCode::BAD_REQUEST,
            };
            json(status, &error)
        }
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

async fn read(request: Request<Incoming>) -> Result<ExchangeRequest, ExchangeError> {
    let invalid = |description: &str| ExchangeError::new("invalid_request", description);
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case("application/x-www-form-urlencoded")
    {
        return Err(invalid("expected the content type application/x-www-form-urlencoded"));
    }
    let body = Limited::new(request.into_body(), MAX_FORM).collect().await;
    let body = body.map_err(|_| invalid("the form is too long"))?.to_bytes();
    let form = std::str::from_utf8(&body).map_err(|_| invalid("the form is not text"))?;
    parse_form(form)
}

/// Reads a form. Parity: what has to be there is what the RFC says, and the grant type is checked first.
fn parse_form(form: &str) -> Result<ExchangeRequest, ExchangeError> {
    let mut wanted = ExchangeRequest::default();
    let mut grant = String::new();
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        match name.as_str() {
            "grant_type" => grant = value,
            "subject_token" => wanted.subject_token = Zeroizing::new(value),
            "subject_token_type" => wanted.subject_token_type = value,
            _ => drop(wanted.parameters.insert(name, value)),
        }
    }
    if grant != GRANT {
        return Err(ExchangeError::new("unsupported_grant_type", format!("expected grant_type={GRANT}")));
    }
    if wanted.subject_token.is_empty() {
        return Err(ExchangeError::new("invalid_request", "subject_token is missing"));
    }
    if wanted.subject_token_type.is_empty() {
        return Err(ExchangeError::new("invalid_request", "subject_token_type is missing"));
    }
    Ok(wanted)
}

fn decode(text: &str) -> Result<String, ExchangeError> {
    let invalid = || ExchangeError::new("invalid_request", "the form is not percent-encoded");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().ok_or_else(invalid)?, digit().ok_or_else(invalid)?);
                u8::try_from(high << 4 | low).map_err(|_| invalid())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

#[cfg(test)]
mod tests;
