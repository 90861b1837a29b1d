//! gRPC probes: `grpc.health.v1.Health/Check`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::{GrpcAction, ProbeSettings, connect};

/// The answer has one small number.
const MAX_ANSWER: usize = 1 << 16;
/// `HealthCheckResponse { status: SERVING }`.
const SERVING: [u8; 2] = [0x08, 0x01];

pub(super) async fn probe(
    action: &GrpcAction,
    settings: &ProbeSettings,
    limit: Duration,
) -> Result<StatusCode, String> {
    let address = SocketAddr::new(settings.destination, action.port);
    let asking = async {
        let failed = |error: hyper::Error| format!("{address}: {error}");
        let stream = connect(address, limit).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(failed)?;
        tokio::spawn(connection);
        let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, "kube-probe/1.0")
            .body(Full::new(question(action.service.as_deref().unwrap_or_default())))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        let refused = status(answer.headers());
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| format!("{address}: {error}"))?;
        let refused = refused.or_else(|| body.trailers().and_then(status));
        match refused {
            Some(code) if code != "0" => {
                Err(format!("{address}: the health check ends with gRPC status {code}"))
            }
            _ => judge(&body.to_bytes()).map_err(|reason| format!("{address}: {reason}")),
        }
    };
    timeout(limit, asking).await.unwrap_or_else(|_| Err(format!("{address}: no answer in {limit:?}")))
}

fn status(headers: &http::HeaderMap) -> Option<String> {
    headers.get("grpc-status")?.to_str().ok().map(str::to_owned)
}

/// `HealthCheckRequest { service }` with its gRPC prefix.
fn question(service: &str) -> Bytes {
    // A longer name is no name of a service; its length would need a second byte.
    let service = &service[..service.len().min(127)];
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        message.put_u8(service.len() as u8);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(&message);
    framed.freeze()
}

fn judge(answer: &[u8]) -> Result<StatusCode, String> {
    match answer.get(5..) {
        Some(body) if body == SERVING => Ok(StatusCode::OK),
        Some(_) => Err("the service says that it does not serve".to_owned()),
        None => Err("the health check has no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_serving_is_healthy() {
        assert!(judge(&[0, 0, 0, 0, 2, 8, 1]).is_ok());
        for answer in [&[0, 0, 0, 0, 2, 8, 2][..], &[0, 0, 0, 0, 0], &[]] {
            assert!(judge(answer).is_err());
        }
        assert_eq!(&question("a")[..], [0, 0, 0, 0, 3, 0x0a, 1, b'a']);
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
    }
}
