use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The longest request body an upstream takes.
const BODY_LIMIT: usize = 1 << 20;

/// An HTTP upstream that answers every request, HTTP/1.1 or HTTP/2, with a description of it.
#[derive(Debug)]
pub struct Echo {
    address: SocketAddr,
    server: JoinHandle<()>,
}

/// What an [`Echo`] says about the request that reached it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echoed {
    /// The name the upstream was started with.
    pub upstream: String,
    /// HTTP version, such as `HTTP/1.1`.
    pub version: String,
    /// Method.
    pub method: String,
    /// Host the request was for.
    pub host: String,
    /// Path with query.
    pub path: String,
    /// Header fields; the values of a repeated one are joined by commas.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: String,
}

impl Echo {
    /// Starts an upstream on a port of its own.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_at(name, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Starts an upstream at this address.
    pub async fn start_at(name: &str, address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.context("binding an echo upstream")?;
        let address = listener.local_addr()?;
        let name = name.to_owned();
        let router = Router::new().fallback(move |request| describe(name, request));
        let server = tokio::spawn(async move {
            // Serving ends with the task; there is no other way out to report.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, server })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Echoed {
    /// Reads the description back from an answer's body.
    pub fn from_body(body: &str) -> Result<Self> {
        serde_json::from_str(body).with_context(|| format!("not an answer of an echo upstream: {body}"))
    }
}

async fn describe(upstream: String, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        headers
            .entry(name.to_string())
            .and_modify(|joined| *joined = format!("{joined},{value}"))
            .or_insert_with(|| value.into_owned());
    }
    let host = head.uri.authority().map(ToString::to_string);
    let host = host.or_else(|| headers.get("host").cloned()).unwrap_or_default();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    Json(Echoed {
        upstream,
        version: format!("{:?}", head.version),
        method: head.method.to_string(),
        host,
        path,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Method, request};

    #[tokio::test]
    async fn echo_tells_what_reached_it() {
        let echo = Echo::start("v1").await.unwrap();
        let sent = request(Method::POST, echo.address(), "/a?b=c")
            .host("shop.example")
            .header("x-tag", "one")
            .header("x-tag", "two")
            .body("hello");
        let echoed = Echoed::from_body(&sent.send().await.unwrap().ok().unwrap()).unwrap();
        assert_eq!(
            (echoed.upstream, echoed.version, echoed.method, echoed.host, echoed.path, echoed.body),
            (
                "v1".to_owned(),
                "HTTP/1.1".to_owned(),
                "POST".to_owned(),
                "shop.example".to_owned(),
                "/a?b=c".to_owned(),
                "hello".to_owned()
            )
        );
        assert_eq!(echoed.headers["x-tag"], "one,two");
    }

    #[tokio::test]
    async fn echo_speaks_http2() {
        let echo = Echo::start("v2").await.unwrap();
        let sent = request(Method::GET, echo.address(), "/").host("shop.example").http2();
        let echoed = Echoed::from_body(&sent.send().await.unwrap().ok().unwrap()).unwrap();
        assert_eq!((echoed.version.as_str(), echoed.host.as_str()), ("HTTP/2.0", "shop.example"));
    }
}
