//! HTTP and HTTPS probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_http::tls::{self, Servers};
use canopus_http::{Body, Version};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{HttpGet, ProbeSettings, connect, destination};

const MOST_REDIRECTS: usize = 10;

/// The status that the application answers with.
pub(super) async fn probe(
    get: &HttpGet,
    received: &HeaderMap,
    settings: &ProbeSettings,
    limit: Duration,
) -> Result<StatusCode, String> {
    let host = destination(&get.host, settings.destination);
    let address = SocketAddr::new(host, get.port.0);
    let tls = get.scheme.eq_ignore_ascii_case("https");
    let headers = headers(get, received, address);
    let mut path = if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) };
    let following = async {
        for _ in 0..=MOST_REDIRECTS {
            let answer = ask(address, tls, settings.http2, &path, &headers, limit).await?;
            let status = answer.status();
            match redirect(&answer, address) {
                Some(next) => path = next,
                None => return Ok(status),
            }
        }
        Err(format!("stopped after {MOST_REDIRECTS} redirects"))
    };
    timeout(limit, following).await.unwrap_or_else(|_| Err(format!("{address}: no answer in {limit:?}")))
}

/// The probe's own headers win over those of the kubelet.
fn headers(get: &HttpGet, received: &HeaderMap, address: SocketAddr) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in received {
        let hop =
            [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TE];
        if !hop.contains(name) && name != header::UPGRADE {
            headers.insert(name.clone(), value.clone());
        }
    }
    for given in &get.http_headers {
        let name = HeaderName::from_bytes(given.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&given.value)) {
            headers.insert(name, value);
        }
    }
    if let Ok(host) = address.to_string().parse() {
        headers.entry(header::HOST).or_insert(host);
    }
    headers
}

/// Where a redirect to the same host leads. One to another host is an answer.
fn redirect(answer: &Response<Body>, address: SocketAddr) -> Option<String> {
    if !answer.status().is_redirection() {
        return None;
    }
    let target: Uri = answer.headers().get(header::LOCATION)?.to_str().ok()?.parse().ok()?;
    let same = target.host().is_none_or(|host| host.trim_matches(['[', ']']) == address.ip().to_string());
    same.then(|| target.path_and_query().map_or("/".to_owned(), ToString::to_string))
}

async fn ask(
    address: SocketAddr,
    tls: bool,
    http2: bool,
    path: &str,
    headers: &HeaderMap,
    limit: Duration,
) -> Result<Response<Body>, String> {
    let failed = |error: canopus_http::Error| format!("{address}: {error}");
    let stream = connect(address, limit).await?;
    if !tls {
        let request = request(path, headers, None)?;
        return canopus_http::send(stream, Version::Http1, request).await.map_err(failed);
    }
    let name = ServerName::IpAddress(address.ip().into());
    let connector = TlsConnector::from(Arc::new(unverified(http2).map_err(|error| error.to_string())?));
    let stream = connector.connect(name, stream).await.map_err(|error| format!("{address}: {error}"))?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut headers = headers.clone();
        headers.remove(header::HOST);
        let request = request(path, &headers, Some(address))?;
        return canopus_http::send(stream, Version::Http2, request).await.map_err(failed);
    }
    canopus_http::send(stream, Version::Http1, request(path, headers, None)?).await.map_err(failed)
}

fn request(path: &str, headers: &HeaderMap, authority: Option<SocketAddr>) -> Result<Request<Bytes>, String> {
    let uri = authority.map_or(path.to_owned(), |authority| format!("https://{authority}{path}"));
    let mut request = Request::get(uri).body(Bytes::new()).map_err(|error| format!("{path:?}: {error}"))?;
    *request.headers_mut() = headers.clone();
    Ok(request)
}

/// Parity: kubelets do not verify certificates of probes, so neither does whoever probes for them.
fn unverified(http2: bool) -> Result<ClientConfig, rustls::Error> {
    let mut config = tls::client(Servers::Any)?.with_no_client_auth();
    config.alpn_protocols = if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![] };
    Ok(config)
}
