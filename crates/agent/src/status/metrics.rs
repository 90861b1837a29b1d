//! One page of metrics from three: the agent's own, Envoy's, and the application's.
//!
//! Pages are put one after the other. The application's comes last, because in the OpenMetrics format it ends with
//! `# EOF`, which ends the whole page; it alone decides the format that is announced. A part that cannot be had is left
//! out and counted: metrics of the others are still wanted.
//!
//! Pages have several megabytes, so what is received is not copied: a [`Page`] is a list of buffers.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_runtime::metrics::{Counter, Registry, catalogue};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Limited;
use hyper::body::Incoming;
use serde::Deserialize;
use tracing::{error, warn};

use super::Answer;
use super::page::Page;
use crate::local_http::{self as client, HttpError};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text";
/// An application's page may not be larger. Parity: pilot-agent's limit for more than one target.
const MAX_APPLICATION: usize = 10 << 20;
/// Scrapes are many and short-lived; the fastest level is small enough.
const ZSTD_LEVEL: i32 = 1;
const MAX_ENVOY: usize = 256 << 20;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Ports that are the proxy's own; scraping them would be a loop or a repetition.
const RESERVED: [(u16, &str); 9] = [
    (15000, "Envoy admin"),
    (15001, "outbound traffic capture"),
    (15004, "pilot debug"),
    (15006, "inbound traffic capture"),
    (15008, "HBONE tunnel"),
    (15020, "pilot-agent status / merged Prometheus"),
    (15021, "Envoy health"),
    (15053, "DNS proxy"),
    (15090, "Envoy Prometheus (already merged)"),
];

/// A page of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    port: u16,
    path: String,
}

/// What is merged.
pub struct MetricsSettings {
    registry: Arc<Registry>,
    envoy: Option<SocketAddr>,
    targets: Vec<Target>,
    scrapes: Counter,
    /// `METRICS_LOCALHOST_ACCESS_ONLY`.
    pub local_only: bool,
}

impl MetricsSettings {
    /// Merges the agent's metrics with those of Envoy, if it has a port, and of the application's targets.
    pub fn new(
        registry: Arc<Registry>,
        envoy_port: Option<u16>,
        targets: Vec<Target>,
        local_only: bool,
    ) -> Self {
        let envoy = envoy_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Self { scrapes: registry.value(catalogue::SCRAPES_TOTAL), registry, envoy, targets, local_only }
    }

    fn failed(&self, kind: &str) {
        self.registry.family(catalogue::SCRAPE_FAILURES_TOTAL).with([kind]).inc();
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    scrape: String,
    path: String,
    port: String,
    targets: Vec<AnnotatedTarget>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnnotatedTarget {
    port: String,
    path: String,
}

/// The targets that `ISTIO_PROMETHEUS_ANNOTATIONS` names.
pub fn targets(annotations: &str, status_port: u16) -> Result<Vec<Target>, String> {
    if annotations.is_empty() {
        return Ok(Vec::new());
    }
    let invalid = |reason: String| format!("ISTIO_PROMETHEUS_ANNOTATIONS: {reason}");
    let given: Annotations = serde_json::from_str(annotations).map_err(|error| invalid(error.to_string()))?;
    if given.scrape == "false" {
        return Ok(Vec::new());
    }
    let mut named = given.targets;
    if named.is_empty() {
        let port = if given.port.is_empty() { "80".to_owned() } else { given.port };
        named.push(AnnotatedTarget { port, path: given.path });
    }
    let check = |target: AnnotatedTarget| {
        let port = target.port.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| invalid(format!("{:?} is not a port", target.port)))?;
        if port == status_port {
            return Err(invalid(format!(
                "port {port} is the agent's own; remove prometheus.io/port={port} from the pod"
            )));
        }
        if let Some((_, reason)) = RESERVED.iter().find(|(reserved, _)| *reserved == port) {
            return Err(invalid(format!("port {port} is reserved ({reason}) and cannot be scraped")));
        }
        let path = if target.path.is_empty() { "/metrics".to_owned() } else { target.path };
        Ok(Target { port, path })
    };
    named.into_iter().map(check).collect()
}

pub(super) async fn answer(settings: &MetricsSettings, request: &Request<Incoming>) -> Answer {
    settings.scrapes.inc();
    let mut page = Page::from(Bytes::from(settings.registry.encode()));
    if let Some(envoy) = settings.envoy {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("/stats/prometheus{query}");
        match scrape(envoy, &path, request.headers(), "text/plain;version=0.0.4", MAX_ENVOY).await {
            Ok((_, body)) => page.append(body),
            Err(reason) => {
                error!("failed scraping envoy metrics: {reason}");
                settings.failed("envoy");
            }
        }
    }
    let format = application(settings, request.headers(), &mut page).await;
    respond(page, format, request.headers())
}

/// Adds the pages of the application, and gives the format to announce.
async fn application(settings: &MetricsSettings, headers: &HeaderMap, page: &mut Page) -> &'static str {
    let accept = accepted(headers);
    let mut format = None;
    let mut bodies = Vec::new();
    for target in &settings.targets {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, target.port));
        match scrape(address, &target.path, headers, &accept, MAX_APPLICATION).await {
            Ok((found, mut body)) => {
                let found = announced(&found);
                // Pages of different formats together are text.
                format = Some(if format.is_none_or(|format| format == found) { found } else { TEXT });
                body.remove_end_marker();
                bodies.push(body);
            }
            Err(reason) => {
                error!("failed scraping application metrics at {}{:?}: {reason}", target.port, target.path);
                settings.failed("application");
            }
        }
    }
    let format = format.unwrap_or(TEXT);
    for body in bodies {
        page.append(body);
        if page.last_byte().is_some_and(|last| last != b'\n') {
            page.push(Bytes::from_static(b"\n"));
        }
    }
    if format != TEXT {
        page.push(Bytes::from_static(b"# EOF\n"));
    }
    format
}

async fn scrape(
    address: SocketAddr,
    path: &str,
    headers: &HeaderMap,
    accept: &str,
    limit: usize,
) -> Result<(String, Page), String> {
    let patience = headers
        .get("x-prometheus-scrape-timeout-seconds")
        .and_then(|value| value.to_str().ok()?.parse::<f64>().ok())
        .filter(|seconds| (0.0..600.0).contains(seconds))
        .map_or(DEFAULT_TIMEOUT, Duration::from_secs_f64);
    let mut forwarded = HeaderMap::new();
    if let Ok(accept) = HeaderValue::from_str(accept) {
        forwarded.insert(header::ACCEPT, accept);
    }
    for name in ["user-agent", "x-prometheus-scrape-timeout-seconds"] {
        if let Some(value) = headers.get(name) {
            forwarded.insert(name, value.clone());
        }
    }
    let fetching = async {
        let answer = client::send(address, "GET", path, forwarded, patience).await?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(HttpError::Status { status, text: String::new() });
        }
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let body = Page::read(Limited::new(answer.into_body(), limit)).await;
        let body = body.map_err(|error| HttpError::Body(format!("{error} (the limit is {limit} bytes)")))?;
        Ok((kind, body))
    };
    let late = HttpError::Late { address, limit: patience };
    tokio::time::timeout(patience, fetching).await.unwrap_or(Err(late)).map_err(|error| error.to_string())
}

/// What the application may answer with: the client's wishes, without formats that cannot be put after others.
fn accepted(headers: &HeaderMap) -> String {
    const FALLBACK: &str = "text/plain;version=0.0.4";
    let wishes = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let mut kept: Vec<&str> = Vec::new();
    for wish in wishes.split(',').map(str::trim).filter(|wish| !wish.is_empty()) {
        let kind = wish.split(';').next().unwrap_or_default().trim();
        let wish = match kind {
            "*" | "*/*" => FALLBACK,
            "application/*" => "application/openmetrics-text;version=0.0.1",
            "text/*" | "text/plain" | OPEN_METRICS => wish,
            _ => continue,
        };
        if !kept.contains(&wish) {
            kept.push(wish);
        }
    }
    if kept.is_empty() { FALLBACK.to_owned() } else { kept.join(",") }
}

fn announced(content_type: &str) -> &'static str {
    let mut parts = content_type.split(';').map(str::trim);
    if parts.next() != Some(OPEN_METRICS) {
        return TEXT;
    }
    match parts.find_map(|part| part.strip_prefix("version=")) {
        Some("1.0.0") => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Some("0.0.1" | "") | None => "application/openmetrics-text; version=0.0.1; charset=utf-8",
        Some(_) => TEXT,
    }
}

fn respond(page: Page, format: &'static str, headers: &HeaderMap) -> Answer {
    let wants =
        headers.get(header::ACCEPT_ENCODING).and_then(|wanted| wanted.to_str().ok()).unwrap_or_default();
    let encoding = encoding(wants);
    let compressed = encoding.and_then(|encoding| encoding.compress(&page));
    let encoded = encoding.filter(|_| compressed.is_some());
    let mut response = Response::new(compressed.map_or(page, |bytes| Page::from(Bytes::from(bytes))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(encoding) = encoded {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
    response
}

/// How a page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Zstd,
    Gzip,
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    fn compress(self, page: &Page) -> Option<Vec<u8>> {
        let room = Vec::with_capacity(page.len() / 8);
        let written = match self {
            Self::Zstd => zstd::Encoder::new(room, ZSTD_LEVEL).and_then(|mut encoder| {
                page.chunks().try_for_each(|chunk| encoder.write_all(chunk))?;
                encoder.finish()
            }),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(room, Compression::fast());
                let written = page.chunks().try_for_each(|chunk| encoder.write_all(chunk));
                written.and_then(|()| encoder.finish())
            }
        };
        written.inspect_err(|error| warn!("metrics cannot be compressed: {error}")).ok()
    }
}

/// The encoding to use: of those the client takes, the one that takes the least time.
fn encoding(wants: &str) -> Option<Encoding> {
    let accepts = |name: &str| {
        wants.split(',').any(|wanted| {
            let mut parts = wanted.split(';').map(str::trim);
            let is_refused = || wanted.split(';').any(|part| matches!(part.trim(), "q=0" | "q=0.0"));
            parts.next() == Some(name) && !is_refused()
        })
    };
    [Encoding::Zstd, Encoding::Gzip].into_iter().find(|encoding| accepts(encoding.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_from_annotations() {
        let found = |text: &str| {
            targets(text, 15020).map(|targets| {
                targets
                    .iter()
                    .map(|target| format!("{}{}", target.port, target.path))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
        };
        assert_eq!(found(""), Ok(String::new()));
        assert_eq!(found("{\"scrape\": \"false\", \"port\": \"1\"}"), Ok(String::new()));
        assert_eq!(found("{}"), Ok("80/metrics".into()));
        assert_eq!(found("{\"port\": \"8080\", \"path\": \"/x\"}"), Ok("8080/x".into()));
        assert_eq!(
            found("{\"targets\": [{\"port\": \"1\"}, {\"port\": \"2\", \"path\": \"/y\"}]}"),
            Ok("1/metrics 2/y".into())
        );
        for broken in ["{\"port\": \"015020\"}", "{\"port\": \"15090\"}", "{\"port\": \"http\"}", "{"] {
            assert!(found(broken).unwrap_err().starts_with("ISTIO_PROMETHEUS_ANNOTATIONS: "), "{broken}");
        }
    }

    #[test]
    fn formats_that_cannot_be_merged_are_not_asked_for() {
        let accepted = |wishes: &str| {
            accepted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(wishes).unwrap())]))
        };
        assert_eq!(
            accepted(
                "application/vnd.google.protobuf;q=0.8, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"
            ),
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4"
        );
        assert_eq!(accepted("image/png"), "text/plain;version=0.0.4");
    }

    #[test]
    fn encoding_is_one_that_the_client_takes() {
        assert_eq!(encoding("gzip, deflate, zstd;q=0.5"), Some(Encoding::Zstd));
        assert_eq!(encoding("gzip;q=1.0,zstd;q=0"), Some(Encoding::Gzip));
        assert_eq!(encoding("br"), None);
        let page = b"a_metric{label=\"x\"} 1\n".repeat(1000);
        let mut whole = Page::from(Bytes::from(page[..5000].to_vec()));
        whole.push(Bytes::from(page[5000..].to_vec()));
        let small = Encoding::Zstd.compress(&whole).unwrap();
        assert!(small.len() < page.len() / 10);
        assert_eq!(zstd::bulk::decompress(&small, page.len()).unwrap(), page);
    }
}
