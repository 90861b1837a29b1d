//! Whether the API server gets answers of this control plane's validation webhook.
//!
//! An object that the webhook refuses whatever else it says is created as a dry run. Once the refusal comes back, the webhook
//! works from end to end: service, port, certificate and roots. What follows from it is up to the controller of webhooks.

use std::time::Duration;

use canopus_api::{annotations, labels};
use canopus_controllers::trust::ValidationProof;
use canopus_engine::Batch;
use canopus_sources::kubernetes::{ApiError, Cluster};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{debug, info};

/// The pause after the first try; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Tries until the webhook is seen to work, and stores that it was.
pub(crate) async fn prove(cluster: Cluster, namespace: String, revision: String, store: impl Fn(Batch)) {
    let path = format!("/apis/networking.istio.io/v1/namespaces/{namespace}/gateways");
    let object = invalid(&namespace, &revision);
    let mut pause = FIRST_PAUSE;
    loop {
        match cluster.try_create_at(&path, &object).await {
            Err(error) if is_refusal(&error) => break,
            Ok(()) => debug!("the API server does not ask the validation webhook yet"),
            Err(error) => debug!(%error, "the validation webhook is not seen to work yet"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    info!("the validation webhook works; invalid objects are refused from now on");
    let mut batch = Batch::new();
    batch.set::<ValidationProof>((), true);
    store(batch);
    std::future::pending::<()>().await;
}

/// A Gateway that validation always refuses.
fn invalid(namespace: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {
            "name": "invalid-gateway",
            "namespace": namespace,
            "labels": {labels::REVISION.name: revision},
            "annotations": {annotations::WEBHOOK_ALWAYS_REJECT.name: "true"},
        },
        "spec": {},
    })
}

/// Whether the webhook itself refused, and not the API server on its own.
fn is_refusal(error: &ApiError) -> bool {
    error.message.contains("validation.istio.io\" denied the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_the_webhook_is_told_from_others() {
        let error = |message: &str| ApiError { code: 400, message: message.to_owned() };
        assert!(is_refusal(&error(
            "admission webhook \"rev.validation.istio.io\" denied the request: rejecting (status 400)"
        )));
        assert!(is_refusal(&error(
            "admission webhook \"validation.istio.io\" denied the request: rejecting"
        )));
        assert!(!is_refusal(&error("failed calling webhook \"validation.istio.io\": connection refused")));
        assert!(!is_refusal(&error(
            "Gateway.networking.istio.io \"invalid-gateway\" is invalid: spec.servers: Required value"
        )));
    }
}
