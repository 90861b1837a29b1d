//! gRPC probes: `grpc.health.v1.Health/Check`.

use std::net::SocketAddr;
use std::time::Duration;

use canopus_http::grpc;
use canopus_proto::Message as _;
use canopus_proto::grpc::health::v1::health_check_response::ServingStatus;
use canopus_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use http::{HeaderValue, Request, StatusCode, header};
use tokio::time::timeout;

use super::{GrpcAction, ProbeSettings, connect};

/// The answer has one small number.
const MAX_ANSWER: usize = 1 << 16;

pub(super) async fn probe(
    action: &GrpcAction,
    settings: &ProbeSettings,
    limit: Duration,
) -> Result<StatusCode, String> {
    let address = SocketAddr::new(settings.destination, action.port);
    let asking = async {
        let stream = connect(address, limit).await?;
        let request = Request::builder()
            .uri(format!("http://{address}/grpc.health.v1.Health/Check"))
            .header(header::USER_AGENT, "kube-probe/1.0");
        let question = HealthCheckRequest { service: action.service.clone().unwrap_or_default() };
        let answer = grpc::call(stream, request, &question.encode_to_vec(), MAX_ANSWER).await;
        let answer = answer.map_err(|error| format!("{address}: {error}"))?;
        match answer.grpc_status.as_ref().map(HeaderValue::as_bytes) {
            Some(b"0") | None => {
                judge(answer.message.as_deref()).map_err(|reason| format!("{address}: {reason}"))
            }
            Some(code) => {
                let code = String::from_utf8_lossy(code);
                Err(format!("{address}: the health check ends with gRPC status {code}"))
            }
        }
    };
    timeout(limit, asking).await.unwrap_or_else(|_| Err(format!("{address}: no answer in {limit:?}")))
}

fn judge(answer: Option<&[u8]>) -> Result<StatusCode, String> {
    let message = answer.ok_or("the health check has no answer")?;
    match HealthCheckResponse::decode(message) {
        Ok(response) if response.status() == ServingStatus::Serving => Ok(StatusCode::OK),
        Ok(_) => Err("the service says that it does not serve".to_owned()),
        Err(error) => Err(format!("the answer to the health check cannot be decoded: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_serving_is_healthy() {
        let answer = |status: ServingStatus| HealthCheckResponse { status: status.into() }.encode_to_vec();
        assert!(judge(Some(&answer(ServingStatus::Serving))).is_ok());
        for status in [ServingStatus::Unknown, ServingStatus::NotServing, ServingStatus::ServiceUnknown] {
            assert!(judge(Some(&answer(status))).is_err(), "{status:?}");
        }
        assert!(judge(Some(b"\xff")).is_err());
        assert!(judge(None).is_err());
    }
}
