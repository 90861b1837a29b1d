//! HTTP calls to other services.

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// The largest answer that is read.
const LARGEST: usize = 1 << 20;

/// A service and the connections to it.
#[derive(Clone)]
pub(crate) struct Service {
    /// The name that requests are for, however the service is reached.
    name: &'static str,
    address: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Service {
    /// A service at `host:port`.
    pub(crate) fn new(name: &'static str, address: String) -> Self {
        Self { name, address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Asks for a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::get(uri).header(header::HOST, self.name).body(Empty::new())?;
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(|error| anyhow::anyhow!(error))?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

impl Answer {
    /// The body as JSON, or what went wrong as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| serde_json::json!({"error": String::from_utf8_lossy(&self.body).trim()}))
    }
}
