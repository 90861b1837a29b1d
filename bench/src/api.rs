//! Writes to the Kubernetes API server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_testkit::KubeApi;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Answers longer than this are not read.
const ANSWER_LIMIT: usize = 4 << 20;

/// Requests of a bulk load that are under way at once.
const AT_ONCE: usize = 16;

/// The administrator's connection to an API server, which is opened again when the server closes it. Clones share it.
#[derive(Clone)]
pub(crate) struct Api {
    shared: Arc<Shared>,
}

struct Shared {
    sender: Mutex<SendRequest<Full<Bytes>>>,
    address: SocketAddr,
    tls: TlsConnector,
    authorization: String,
}

impl Api {
    /// Connects to a running API server.
    pub(crate) async fn connect(kube: &KubeApi) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(kube.ca_pem()?.as_bytes())?)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (address, tls) = (kube.address(), TlsConnector::from(Arc::new(config)));
        let sender = Mutex::new(open(address, &tls).await?);
        let authorization = format!("Bearer {}", kube.token());
        Ok(Self { shared: Arc::new(Shared { sender, address, tls, authorization }) })
    }

    /// The connection, a new one if the server has closed the last: it does so when nothing is said for a while.
    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>> {
        let mut sender = self.shared.sender.lock().await;
        if sender.is_closed() {
            *sender = open(self.shared.address, &self.shared.tls).await?;
        }
        Ok(sender.clone())
    }

    /// Creates an object in a collection; one that is there already is left as it is.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<()> {
        let status = self.send(Method::POST, collection, "application/json", object).await?;
        ensure!(status.is_success() || status == StatusCode::CONFLICT, "POST {collection}: {status}");
        Ok(())
    }

    /// Creates many objects.
    pub(crate) async fn create_all(&self, objects: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let create = |(collection, object): (String, Value)| {
            let api = self.clone();
            async move { api.create(&collection, &object).await }
        };
        all(objects.into_iter().map(create)).await
    }

    /// Changes some fields of many objects.
    pub(crate) async fn merge_all(&self, patches: impl IntoIterator<Item = (String, Value)>) -> Result<()> {
        let merge = |(path, patch): (String, Value)| {
            let api = self.clone();
            async move { api.merge(&path, &patch).await }
        };
        all(patches.into_iter().map(merge)).await
    }

    /// Changes some fields of an object.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        let status = self.send(Method::PATCH, path, "application/merge-patch+json", patch).await?;
        ensure!(status.is_success(), "PATCH {path}: {status}");
        Ok(())
    }

    /// Changes some fields of an object, or applies them on the server's side if the query of the path names their manager; the
    /// resource version that the object has then. It is the one from before if the server found nothing to change.
    pub(crate) async fn change(&self, path: &str, patch: &Value) -> Result<u64> {
        let content = match path.contains("fieldManager=") {
            true => "application/apply-patch+yaml",
            false => "application/merge-patch+json",
        };
        let (status, answer) = self.exchange(Method::PATCH, path, content, patch).await?;
        ensure!(status.is_success(), "PATCH {path}: {status}");
        let object: Value = serde_json::from_slice(&answer)?;
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
        version.with_context(|| format!("PATCH {path}: the answer has no resource version"))
    }

    /// Deletes an object, if it is there.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let status = self.send(Method::DELETE, path, "application/json", &Value::Null).await?;
        ensure!(status.is_success() || status == StatusCode::NOT_FOUND, "DELETE {path}: {status}");
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<StatusCode> {
        Ok(self.exchange(method, path, content, body).await?.0)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<(StatusCode, Bytes)> {
        let body = if body.is_null() { Bytes::new() } else { serde_json::to_vec(body)?.into() };
        let what = format!("{method} {path}");
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.shared.address))
            .header(header::AUTHORIZATION, &self.shared.authorization)
            .header(header::CONTENT_TYPE, content)
            .body(Full::new(body))?;
        let response = self.sender().await?.send_request(request).await.with_context(|| what.clone())?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        let answer = answer.map_err(anyhow::Error::from_boxed)?.to_bytes();
        // A conflict and an absence mean something to the caller; anything else is told with what the server says.
        let expected = matches!(status, StatusCode::CONFLICT | StatusCode::NOT_FOUND);
        ensure!(status.is_success() || expected, "{what}: {status}: {}", String::from_utf8_lossy(&answer));
        Ok((status, answer))
    }
}

/// Does many requests, some of them at once.
async fn all(
    requests: impl Iterator<Item = impl Future<Output = Result<()>> + Send + 'static>,
) -> Result<()> {
    let mut under_way = JoinSet::new();
    for request in requests {
        if under_way.len() >= AT_ONCE
            && let Some(done) = under_way.join_next().await
        {
            done??;
        }
        under_way.spawn(request);
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}

async fn open(address: SocketAddr, tls: &TlsConnector) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::from(address.ip()), stream).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
