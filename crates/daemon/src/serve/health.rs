//! `grpc.health.v1.Health`, as load balancers and `grpc_health_probe` ask it.
//!
//! By hand, as `tonic-health` has no `List` and is told states rather than asking for readiness.

use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::grpc::health::v1::health_check_response::ServingStatus;
use canopus_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse, HealthListResponse};
use canopus_runtime::ready::Readiness;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::{Status, Streaming};

use super::call::{self, Answers};

/// What its methods start with.
pub(super) const PREFIX: &str = "/grpc.health.v1.Health/";

/// Services a client may ask for by name; the empty name is the whole server.
const SERVICES: [&str; 2] = ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"];

/// How often a server that was ready is looked at by whoever watches it.
const PERIOD: Duration = Duration::from_secs(1);

/// What is known of the health of the server.
#[derive(Clone)]
pub(super) struct Health {
    /// What the process has to wait for before it serves, if anything.
    pub(super) readiness: Option<Readiness>,
    /// Becomes true when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
}

impl Health {
    fn is_good(&self) -> bool {
        !*self.stopping.borrow() && self.readiness.as_ref().is_none_or(Readiness::is_ready)
    }

    fn status(&self) -> ServingStatus {
        if self.is_good() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }

    /// Waits until the health is other than it was; false if it will not be any more.
    async fn changes(&mut self, status: ServingStatus) -> bool {
        while self.status() == status {
            if *self.stopping.borrow() {
                return false;
            }
            let ready = async {
                match self.readiness.as_ref().filter(|_| status == ServingStatus::NotServing) {
                    Some(readiness) => readiness.wait().await,
                    // A process rarely stops being ready: it is not worth telling at once.
                    None => sleep(PERIOD).await,
                }
            };
            tokio::select! {
                () = ready => {}
                stopping = self.stopping.changed() => if stopping.is_err() { return false },
            }
        }
        true
    }
}

/// Answers a question about the health of the server.
pub(super) async fn answer(request: Request<Body>, health: Health) -> Response<Body> {
    match request.uri().path().strip_prefix(PREFIX) {
        Some("Check") => call::answer(request, |asked, answers| check(asked, answers, health)).await,
        Some("List") => call::answer(request, |_, answers| list(answers, health)).await,
        Some("Watch") => call::answer(request, |asked, answers| watch(asked, answers, health)).await,
        _ => Status::unimplemented("there is no such method").into_http(),
    }
}

async fn check(asked: Streaming<Bytes>, answers: Answers, health: Health) {
    let answer = service(asked).await.and_then(|service| match SERVICES.contains(&service.as_str()) {
        true => Ok(message(health.status())),
        false => Err(Status::not_found("there is no such service")),
    });
    // A caller that is gone does not care.
    let _ = answers.send(answer).await;
}

async fn list(answers: Answers, health: Health) {
    let status = HealthCheckResponse { status: health.status().into() };
    let statuses = SERVICES.into_iter().map(|service| (service.to_owned(), status)).collect();
    let _ = answers.send(Ok(HealthListResponse { statuses }.encode_to_vec().into())).await;
}

/// Tells the health at once, and again whenever it changes. What is not known stays unknown.
async fn watch(asked: Streaming<Bytes>, answers: Answers, mut health: Health) {
    let service = match service(asked).await {
        Ok(service) => service,
        Err(status) => {
            let _ = answers.send(Err(status)).await;
            return;
        }
    };
    if !SERVICES.contains(&service.as_str()) {
        let _ = answers.send(Ok(message(ServingStatus::ServiceUnknown))).await;
        tokio::select! {
            () = answers.closed() => {}
            _ = health.stopping.wait_for(|stopping| *stopping) => {}
        }
        return;
    }
    loop {
        let status = health.status();
        if answers.send(Ok(message(status))).await.is_err() {
            return;
        }
        tokio::select! {
            () = answers.closed() => return,
            changed = health.changes(status) => if !changed { return },
        }
    }
}

/// The service that a question is about.
async fn service(mut asked: Streaming<Bytes>) -> Result<String, Status> {
    let unreadable = || Status::invalid_argument("the question cannot be read");
    let message = asked.message().await?.ok_or_else(unreadable)?;
    HealthCheckRequest::decode(message).map(|request| request.service).map_err(|_| unreadable())
}

fn message(status: ServingStatus) -> Bytes {
    HealthCheckResponse { status: status.into() }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const SERVING_FRAME: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    const NOT_SERVING_FRAME: &[u8] = &[0, 0, 0, 0, 2, 8, 2];

    fn health(readiness: &Readiness) -> (watch::Sender<bool>, Health) {
        let (stop, stopping) = watch::channel(false);
        (stop, Health { readiness: Some(readiness.clone()), stopping })
    }

    async fn ask(method: &str, frame: &'static [u8], health: &Health) -> Body {
        let request = Request::builder().uri(format!("{PREFIX}{method}")).body(Body::new(Full::from(frame)));
        answer(request.unwrap(), health.clone()).await.into_body()
    }

    /// All there is in a body, and the status behind it.
    async fn whole(body: Body) -> (Vec<u8>, Option<String>) {
        let collected = body.collect().await.unwrap();
        let status = collected.trailers().and_then(|trailers| trailers.get("grpc-status"));
        let status = status.map(|status| status.to_str().unwrap().to_owned());
        (collected.to_bytes().to_vec(), status)
    }

    #[tokio::test]
    async fn health_is_readiness() {
        let readiness = Readiness::new();
        let guard = readiness.register("something");
        let (_stop, health) = health(&readiness);
        let check = async || whole(ask("Check", &[0; 5], &health).await).await.0;
        assert_eq!(check().await, NOT_SERVING_FRAME);
        guard.ready();
        assert_eq!(check().await, SERVING_FRAME);
    }

    #[tokio::test]
    async fn whoever_watches_is_told_of_changes_until_the_server_stops() {
        let readiness = Readiness::new();
        let guard = readiness.register("something");
        let (stop, health) = health(&readiness);
        let mut watched = ask("Watch", &[0; 5], &health).await;
        let mut next = async || watched.frame().await.unwrap().unwrap().into_data().ok();
        assert_eq!(next().await.as_deref(), Some(NOT_SERVING_FRAME));
        guard.ready();
        assert_eq!(next().await.as_deref(), Some(SERVING_FRAME));
        stop.send_replace(true);
        assert_eq!(next().await.as_deref(), Some(NOT_SERVING_FRAME));
        assert_eq!(next().await, None, "the end of the stream");
    }

    #[tokio::test]
    async fn list_tells_the_health_of_each_service() {
        let (_stop, health) = health(&Readiness::new());
        let listed = whole(ask("List", &[0; 5], &health).await).await.0;
        let statuses = HealthListResponse::decode(&listed[5..]).unwrap().statuses;
        assert!(statuses.keys().eq(SERVICES), "{statuses:?}");
        assert!(statuses.values().all(|status| status.status() == ServingStatus::Serving), "{statuses:?}");
    }

    #[tokio::test]
    async fn what_is_not_served_has_a_status() {
        let (_stop, health) = health(&Readiness::new());
        let status = async |method: &str, frame| {
            let body = ask(method, frame, &health).await;
            whole(body).await.1
        };
        assert_eq!(status("Check", &[0, 0, 0, 0, 3, 0x0a, 1, b'x']).await.as_deref(), Some("5"));
        assert_eq!(status("Check", &[0, 0, 0, 0, 1, 0x0a]).await.as_deref(), Some("3"));
        assert_eq!(status("Check", &[]).await.as_deref(), Some("3"));
    }
}
