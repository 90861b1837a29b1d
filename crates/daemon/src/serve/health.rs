//! `grpc.health.v1.Health`, as load balancers and `grpc_health_probe` ask it.

use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use bytes::{BufMut as _, Bytes, BytesMut};
use canopus_runtime::ready::Readiness;
use http_body_util::{BodyExt as _, Full, Limited};
use tonic::Status;
use tonic::body::Body;

/// What its methods start with.
pub(super) const PREFIX: &str = "/grpc.health.v1.Health/";

/// The longest question that is read.
const LONGEST: usize = 4096;

/// Services a client may ask for by name; the empty name is the whole server.
const SERVICES: [&str; 2] = ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"];

const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

/// Answers a question about the health of the server.
pub(super) async fn answer(request: Request<Body>, readiness: Option<&Readiness>) -> Response<Body> {
    match check(request, readiness).await {
        Ok(status) => response(status),
        Err(status) => status.into_http(),
    }
}

async fn check(request: Request<Body>, readiness: Option<&Readiness>) -> Result<u8, Status> {
    if request.uri().path() != "/grpc.health.v1.Health/Check" {
        // Clients that would rather watch take this for good health.
        return Err(Status::unimplemented("only Check is served"));
    }
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    let body = body.map_err(|_| Status::invalid_argument("the question cannot be read"))?.to_bytes();
    let service = service(&body).ok_or_else(|| Status::invalid_argument("the question cannot be read"))?;
    if !SERVICES.iter().any(|known| known.as_bytes() == service) {
        return Err(Status::not_found("there is no such service"));
    }
    Ok(if readiness.is_none_or(Readiness::is_ready) { SERVING } else { NOT_SERVING })
}

/// The name in a question: its only field.
fn service(frame: &[u8]) -> Option<&[u8]> {
    const NAME: u8 = 0x0a;
    match frame.get(5..)? {
        [] => Some(&[]),
        [NAME, length, name @ ..] if *length < 0x80 && usize::from(*length) == name.len() => Some(name),
        _ => None,
    }
}

fn response(status: u8) -> Response<Body> {
    const STATUS: u8 = 0x08;
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(2);
    frame.put_slice(&[STATUS, status]);
    let trailers =
        HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
    let body = Full::new(Bytes::from(frame)).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(path: &str, frame: &'static [u8], readiness: &Readiness) -> (Vec<u8>, Option<String>) {
        let request = Request::builder().uri(path).body(Body::new(Full::from(frame))).unwrap();
        let response = answer(request, Some(readiness)).await;
        let failed = response.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
        (response.into_body().collect().await.unwrap().to_bytes().to_vec(), failed)
    }

    #[tokio::test]
    async fn health_is_readiness() {
        let readiness = Readiness::new();
        let guard = readiness.register("something");
        let check = "/grpc.health.v1.Health/Check";
        assert_eq!(ask(check, &[0, 0, 0, 0, 0], &readiness).await.0, [0, 0, 0, 0, 2, 8, 2]);
        guard.ready();
        assert_eq!(ask(check, &[0, 0, 0, 0, 0], &readiness).await.0, [0, 0, 0, 0, 2, 8, 1]);
    }

    #[tokio::test]
    async fn what_is_not_served_has_a_status() {
        let readiness = Readiness::new();
        let check = "/grpc.health.v1.Health/Check";
        let unknown = ask(check, &[0, 0, 0, 0, 3, 0x0a, 1, b'x'], &readiness).await;
        assert_eq!(unknown.1.as_deref(), Some("5"));
        assert_eq!(ask(check, b"nonsense", &readiness).await.1.as_deref(), Some("3"));
        assert_eq!(ask("/grpc.health.v1.Health/Watch", &[], &readiness).await.1.as_deref(), Some("12"));
    }
}
