//! What the API server asks before it stores an object.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::{self, Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use canopus_admission::injection::webhook as injection;
use canopus_admission::validation::{self, Count, MAX_BODY, Resource};
use tokio::time::timeout;
use tracing::{error, info};

use crate::injection::Injection;
use crate::metrics::AdmissionMetrics;
use crate::spans::{Attribute, Tracer, Within};

/// How long the body of a request may take; the API server waits for an answer for 30 s at most.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The most characters of a refusal that are logged: whoever asks has the whole of it.
const MAX_LOGGED: usize = 1024;

/// Counts the webhooks' answers.
#[derive(Clone)]
pub struct Admission {
    /// Counts it.
    pub metrics: Arc<AdmissionMetrics>,
    /// Records spans of it.
    pub tracer: Arc<Tracer>,
    /// Injects pods; none if injection is switched off.
    pub injection: Option<Arc<Injection>>,
}

impl Admission {
    fn answered(&self, started: SystemTime, count: &Count) {
        self.metrics.count(count);
        if !self.tracer.is_on() {
            return;
        }
        let (resource, allowed) = match count {
            Count::Passed(Resource { resource, .. }) => (resource.as_str(), true),
            Count::Failed(Resource { resource, .. }, _) => (resource.as_str(), false),
            Count::HttpError(_) => ("", false),
        };
        let attributes = [
            ("canopus.resource", Attribute::Text(resource.to_owned())),
            ("canopus.valid", Attribute::Truth(allowed)),
        ];
        self.tracer.record("admission", Within::Itself, started, attributes);
    }
}

/// The webhooks, to stand on a port of their own or beside others.
pub fn router(admission: Admission) -> Router {
    Router::new()
        .route("/validate", any(validate))
        .route("/validate/{*rest}", any(validate))
        .route("/inject", any(inject))
        .route("/inject/{*rest}", any(inject))
        .with_state(admission)
}

async fn validate(State(admission): State<Admission>, request: Request<Body>) -> Response {
    let started = SystemTime::now();
    let Some((head, content)) = read(request).await else {
        return respond(408, &[], Vec::new());
    };
    let answer = tokio::task::block_in_place(|| {
        validation::answer(&validation::Request {
            path: head.uri.path_and_query().map_or("/", |path| path.as_str()),
            content_type: head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()),
            body: &content,
        })
    });
    if let Some(count) = &answer.outcome.count {
        admission.answered(started, count);
    }
    if let Some(refusal) = &answer.outcome.refusal {
        info!("an object was refused: {}", excerpt(refusal));
    }
    respond(answer.status, answer.headers, answer.body)
}

async fn inject(State(admission): State<Admission>, request: Request<Body>) -> Response {
    let Some(injector) = &admission.injection else {
        return respond(404, &[], b"404 page not found\n".to_vec());
    };
    let started = Instant::now();
    let Some((head, content)) = read(request).await else {
        return respond(408, &[], Vec::new());
    };
    let request = injection::Request {
        path: head.uri.path_and_query().map_or("/", |path| path.as_str()),
        content_type: head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()),
        body: &content,
    };
    let answer = tokio::task::block_in_place(|| injector.answer(&request));
    admission.metrics.count_injection(&answer.outcome, started.elapsed());
    let pod = &answer.outcome.pod;
    match &answer.outcome.failure {
        Some(failure) => error!(pod, "Pod injection failed: {}", excerpt(failure)),
        None => info!(pod, skipped = answer.outcome.skipped, "Process sidecar injection request"),
    }
    respond(answer.status, answer.headers, answer.body)
}

/// Reads a request; `None` if its body takes too long.
async fn read(request: Request<Body>) -> Option<(Parts, Bytes)> {
    let (head, content) = request.into_parts();
    // A byte beyond the limit is enough to know that the body is too large.
    let content = timeout(BODY_TIMEOUT, body::to_bytes(content, MAX_BODY + 1)).await.ok()?;
    Some((head, content.unwrap_or_else(|_| vec![0; MAX_BODY + 1].into())))
}

fn respond(status: u16, headers: &[(&'static str, &'static str)], body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        response.headers_mut().insert(*name, header::HeaderValue::from_static(value));
    }
    response
}

/// The beginning of a text.
fn excerpt(text: &str) -> &str {
    text.char_indices().nth(MAX_LOGGED).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use canopus_runtime::metrics::Registry;
    use canopus_testkit::http::{self, Method};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_stream::wrappers::TcpListenerStream;

    use super::*;
    use crate::serve::web;

    /// The webhooks on a port, until the task is aborted.
    async fn serve() -> (std::net::SocketAddr, JoinHandle<()>) {
        let admission = Admission {
            metrics: Arc::new(AdmissionMetrics::new(&Registry::new())),
            tracer: Arc::new(Tracer::off()),
            injection: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = TcpListenerStream::new(listener);
        (address, tokio::spawn(web::serve(incoming, router(admission), std::future::pending())))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn review_that_is_too_long_is_refused_in_words() {
        let (address, served) = serve().await;
        let ask = |bytes: usize| {
            let request = http::request(Method::POST, address, "/validate");
            request.header("content-type", "application/json").body(vec![b' '; bytes]).send()
        };
        let refused = ask(MAX_BODY + 1).await.unwrap();
        assert_eq!(
            (refused.status.as_u16(), &*refused.body),
            (400, "Request entity too large: limit is 6291456\n")
        );
        let read = ask(MAX_BODY).await.unwrap();
        assert!(!read.body.contains("too large"), "{}", read.body);
        served.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_takes_too_long_is_a_timeout() {
        let (address, served) = serve().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nab")
            .await
            .unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
        served.abort();
    }

    #[test]
    fn long_refusals_are_cut_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"é".repeat(2000)).chars().count(), MAX_LOGGED);
    }
}
