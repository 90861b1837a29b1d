//! An API server and how to reach it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use canopus_base::json;
use canopus_base::tree::{Limits, Node};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::{Body, Client};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::time::timeout;

use super::limit::{Limiter, RateLimit};

const JSON: &str = "application/json";

/// An error that the API server explains in more bytes than this is cut.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// How long the server may take to begin an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an answer that has an end may take to come to it.
const BODY_TIMEOUT: Duration = Duration::from_secs(150);

/// How to reach an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As the current context of a kubeconfig file says.
    Kubeconfig(PathBuf),
    /// As another context of a kubeconfig file says.
    Context {
        /// The file.
        kubeconfig: PathBuf,
        /// The name of the context.
        context: String,
    },
    /// As a pod of the cluster, with its service account.
    Pod,
}

/// Why an API server cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {message}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The pod's service account cannot be used.
    #[error("the pod's service account: {0}")]
    Pod(String),
}

/// A connection to one API server. Clones share it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    limiter: Arc<Limiter>,
}

impl Cluster {
    /// Whether both are clones of one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.limiter, &other.limiter)
    }

    /// Prepares to reach an API server, which need not be there yet.
    pub async fn connect(access: &Access, limit: RateLimit) -> Result<Self, AccessError> {
        let fail = |message: String| match access {
            Access::Kubeconfig(path) | Access::Context { kubeconfig: path, .. } => {
                AccessError::Kubeconfig { path: path.clone(), message }
            }
            Access::Pod => AccessError::Pod(message),
        };
        let config = match access {
            Access::Kubeconfig(path) | Access::Context { kubeconfig: path, .. } => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| fail(chain(&error)))?;
                let mut options = KubeConfigOptions::default();
                if let Access::Context { context, .. } = access {
                    options.context = Some(context.clone());
                }
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| fail(chain(&error)))?
            }
            Access::Pod => Config::incluster().map_err(|error| fail(chain(&error)))?,
        };
        Self::new(config, limit).map_err(|error| fail(chain(&error)))
    }

    /// Prepares a client.
    pub(super) fn new(mut config: Config, limit: RateLimit) -> kube::Result<Self> {
        // Callers decide when to retry, and log it.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)?, limiter: Arc::new(Limiter::new(limit)) })
    }

    /// Reaches an API server through a client that is already set up.
    pub fn from_client(client: Client, limit: RateLimit) -> Self {
        Self { client, limiter: Arc::new(Limiter::new(limit)) }
    }

    /// The same server, with a limit of its own: what is asked by one handle keeps nobody waiting who asks by another.
    #[must_use]
    pub fn limited(&self, limit: RateLimit) -> Self {
        Self { client: self.client.clone(), limiter: Arc::new(Limiter::new(limit)) }
    }

    /// Gets `path`. The answer may have no end.
    pub(super) async fn stream(&self, path: &str, accept: &str) -> Result<Body, Failure> {
        self.send(Request::get(path).header(header::ACCEPT, accept).body(Body::empty())).await
    }

    async fn send(&self, request: http::Result<Request<Body>>) -> Result<Body, Failure> {
        let request = request.map_err(|error| Failure::Transport(error.to_string()))?;
        self.limiter.turn().await;
        let answer = timeout(ANSWER_TIMEOUT, self.client.send(request)).await.map_err(|_| Failure::Silent)?;
        let response = answer.map_err(|error| Failure::Transport(chain(&error)))?;
        if response.status().is_success() {
            Ok(response.into_body())
        } else {
            Err(refusal(response.status(), response.into_body()).await)
        }
    }

    /// Gets the whole answer of `path`, if it is not larger than this.
    pub(super) async fn get(&self, path: &str, accept: &str, max_bytes: usize) -> Result<Bytes, Failure> {
        whole(self.stream(path, accept).await?, max_bytes).await
    }

    /// Posts a JSON document to `path` and gets the whole answer, if it is not larger than this.
    pub(super) async fn post(&self, path: &str, json: String, max_bytes: usize) -> Result<Bytes, Failure> {
        self.write(Request::post(path), JSON, json, max_bytes).await
    }

    /// Puts a JSON document in the place of the one at `path` and gets the whole answer, if it is not larger than this.
    pub(super) async fn put(&self, path: &str, json: String, max_bytes: usize) -> Result<Bytes, Failure> {
        self.write(Request::put(path), JSON, json, max_bytes).await
    }

    /// Sends a document of this type and gets the whole answer, if it is not larger than this.
    pub(super) async fn write(
        &self,
        request: http::request::Builder,
        content_type: &str,
        json: String,
        max_bytes: usize,
    ) -> Result<Bytes, Failure> {
        let request = request
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(json.into_bytes()));
        whole(self.send(request).await?, max_bytes).await
    }
}

async fn whole(body: Body, max_bytes: usize) -> Result<Bytes, Failure> {
    let collecting = Limited::new(body, max_bytes).collect();
    match timeout(BODY_TIMEOUT, collecting).await.map_err(|_| Failure::Silent)? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::TooLarge(max_bytes)),
        Err(error) => Err(Failure::Transport(chain(error.as_ref()))),
    }
}

/// Why the API server did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server answered with an error status.
    #[error("{message} (status {code})")]
    Status {
        /// The HTTP status, or the one in a `Status` object.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// The server could not be reached, or the connection broke.
    #[error("{0}")]
    Transport(String),
    /// The server was silent for too long.
    #[error("the connection has been silent for too long")]
    Silent,
    /// The answer cannot be parsed.
    #[error("the answer cannot be understood: {0}")]
    Malformed(String),
    /// The answer is larger than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The server is at an older version than it was before.
    #[error(
        "the server is at resource version {now} after {before}: its store was restored from an older copy, or it is another server"
    )]
    Rewound {
        /// The version it is at.
        now: Box<str>,
        /// The version it was at before.
        before: Box<str>,
    },
    /// What a watch reported is not what there is.
    #[error("{0}")]
    Differs(String),
}

impl Failure {
    fn code(&self) -> u16 {
        if let Self::Status { code, .. } = self { *code } else { 0 }
    }

    /// Whether the watch cannot go on from where it was: everything has to be listed anew.
    pub(super) fn needs_listing(&self) -> bool {
        self.code() == StatusCode::GONE.as_u16() || self.is_inconsistent()
    }

    /// Whether the server contradicts what it said before.
    pub(super) fn is_inconsistent(&self) -> bool {
        matches!(self, Self::Rewound { .. } | Self::Differs(_))
    }

    /// Whether there is no such resource.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == StatusCode::NOT_FOUND.as_u16()
    }

    /// Whether somebody else was faster.
    pub(super) fn is_conflict(&self) -> bool {
        self.code() == StatusCode::CONFLICT.as_u16()
    }

    /// Whether we may not look.
    pub(super) fn is_forbidden(&self) -> bool {
        self.code() == StatusCode::FORBIDDEN.as_u16()
    }

    /// Whether the question itself was wrong.
    pub(super) fn is_invalid(&self) -> bool {
        let code = self.code();
        code == StatusCode::BAD_REQUEST.as_u16() || code == StatusCode::UNPROCESSABLE_ENTITY.as_u16()
    }

    /// What a `Status` object says.
    pub(super) fn from_status(status: &Node) -> Self {
        let code = status.get("code").and_then(Node::as_i64).and_then(|code| u16::try_from(code).ok());
        let message = status.get("message").and_then(Node::as_str).unwrap_or("no reason given");
        Self::Status { code: code.unwrap_or(500), message: message.to_owned() }
    }
}

async fn refusal(status: StatusCode, body: Body) -> Failure {
    let text = whole(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let said = json::parse(&text, &Limits::default()).ok();
    let message = said.as_ref().and_then(|said| said.get("message")).and_then(Node::as_str);
    let message = match message {
        Some(message) => message.to_owned(),
        // The body is not a Status: it comes from a proxy, or from a server that is starting or stopping.
        None => String::from_utf8_lossy(&text).trim().chars().take(200).collect(),
    };
    Failure::Status { code: status.as_u16(), message }
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Many errors repeat their cause.
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
