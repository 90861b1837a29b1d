//! What an API server says that others may do.

use serde_json::{Value, json};

use super::server::{Cluster, Failure};

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Answers are short.
const MAX_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the API server does not say who may read secrets: {0}")]
pub struct ReviewError(String);

impl Cluster {
    /// Whether a service account may list the Secrets of its namespace.
    pub async fn may_list_secrets(&self, namespace: &str, account: &str) -> Result<bool, ReviewError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{namespace}:{account}"),
                "resourceAttributes": {"namespace": namespace, "verb": "list", "resource": "secrets"},
            },
        });
        let fail = |failure: Failure| ReviewError(failure.to_string());
        let answer = self.post(PATH, review.to_string(), MAX_BYTES).await.map_err(fail)?;
        let answer: Value =
            serde_json::from_slice(&answer).map_err(|error| ReviewError(error.to_string()))?;
        let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
        allowed.ok_or_else(|| ReviewError("there is no status.allowed".to_owned()))
    }
}
