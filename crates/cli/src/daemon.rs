//! Asking a running control plane over its debug port.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::blocking::block_on;
use crate::{fetch, progress};

/// How long a control plane may take to accept a connection, and to begin its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the rest of the answer may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);

/// The port of a control plane's plain HTTP server.
const DEFAULT_PORT: u16 = 8080;

/// The JSON that a control plane at `url` answers about `path`, such as `/debug/world`.
pub(crate) fn ask(url: &str, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
    block_on(answer(url, path, parameters))
}

/// As [`ask`], with a body that belongs to the question.
pub(crate) fn send(url: &str, path: &str, parameters: &[(&str, &str)], body: Bytes) -> anyhow::Result<Value> {
    block_on(exchange(url, Method::POST, path, parameters, body))
}

/// As [`ask`], for callers that are asynchronous.
pub(crate) async fn answer(url: &str, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
    exchange(url, Method::GET, path, parameters, Bytes::new()).await
}

/// The path and the query of a question.
pub(crate) fn target(path: &str, parameters: &[(&str, &str)]) -> String {
    let query: Vec<String> =
        parameters.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    format!("{path}?{}", query.join("&"))
}

async fn exchange(
    url: &str,
    method: Method,
    path: &str,
    parameters: &[(&str, &str)],
    body: Bytes,
) -> anyhow::Result<Value> {
    let address = address(url)?;
    let _slow = progress::slow(&format!("asking the control plane at {url}"));
    let asked = request(&address, method, &target(path, parameters), body).await;
    let (status, body) = asked.with_context(|| format!("cannot ask the control plane at {url}"))?;
    if status != StatusCode::OK {
        let body = String::from_utf8_lossy(&body);
        bail!("the control plane at {url} answers {}: {}", status.as_u16(), body.trim());
    }
    serde_json::from_slice(&body).with_context(|| format!("{url}{path} is not JSON"))
}

async fn request(
    address: &str,
    method: Method,
    target: &str,
    body: Bytes,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let late = |limit: Duration| format!("no answer within {} seconds", limit.as_secs());
    let connection = timeout(PATIENCE, fetch::connect(address)).await.with_context(|| late(PATIENCE))??;
    let asked = timeout(PATIENCE, fetch::send(connection, address, method, target, body)).await;
    let answer = asked.with_context(|| late(PATIENCE))??;
    let status = answer.status();
    let reading =
        timeout(BODY_TIMEOUT, canopus_http::read(answer.into_body(), fetch::MAX_ANSWER_BYTES)).await;
    Ok((status, reading.with_context(|| late(BODY_TIMEOUT))??))
}

/// `host:port` of a URL.
fn address(url: &str) -> anyhow::Result<String> {
    if url.starts_with("https://") {
        bail!("{url}: debug answers are served over plain HTTP, on port {DEFAULT_PORT}");
    }
    let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '\r', '\n']);
    if !is_host(host) {
        bail!("{url:?}: expected http://HOST[:PORT]");
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") })
}

/// A text as the value of a query parameter.
pub(crate) fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_nothing_else() {
        assert_eq!(address("http://127.0.0.1:15014/").unwrap(), "127.0.0.1:15014");
        assert_eq!(address("istiod.istio-system").unwrap(), "istiod.istio-system:8080");
        assert_eq!(address("http://[::1]:8080").unwrap(), "[::1]:8080");
        for wrong in ["https://istiod:15017", "", "http://", "http://a/b", "http://a b", "a\r\nb"] {
            assert!(address(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn parameters_cannot_end_what_they_are_part_of() {
        assert_eq!(escaped("*.example.com&a=b c"), "%2A.example.com%26a%3Db%20c");
    }
}
