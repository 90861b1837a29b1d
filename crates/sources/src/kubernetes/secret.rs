//! Single Secrets that the control plane itself keeps something in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::server::{Cluster, Failure};

/// The largest Secret there can be, with room for its metadata.
const MAX_BYTES: usize = 4 << 20;

/// A Secret as it is stored. It has no textual form, as its values are secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// The `data` of the Secret: base64 by key.
    pub data: BTreeMap<String, String>,
    /// By what to tell whether it has changed.
    pub resource_version: String,
}

/// Why a Secret could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(String);

impl From<Failure> for SecretError {
    fn from(failure: Failure) -> Self {
        Self(failure.to_string())
    }
}

impl Cluster {
    /// A Secret, if there is one of this name.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Option<StoredSecret>, SecretError> {
        match self.get(&path(namespace, name), "application/json", MAX_BYTES).await {
            Ok(answer) => read(&answer).map(Some),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Creates a Secret; `None` if there is one already.
    pub async fn create_secret(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<Option<StoredSecret>, SecretError> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "type": kind,
            "data": data,
        });
        taken(self.post(&path(namespace, ""), secret.to_string(), MAX_BYTES).await)
    }

    /// Replaces the values of a Secret of this version; `None` if it has changed since. What else it has stays.
    pub async fn replace_secret(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        data: &BTreeMap<String, String>,
    ) -> Result<Option<StoredSecret>, SecretError> {
        let path = path(namespace, name);
        let answer = self.get(&path, "application/json", MAX_BYTES).await?;
        let mut secret: Value =
            serde_json::from_slice(&answer).map_err(|error| SecretError(error.to_string()))?;
        if secret["metadata"]["resourceVersion"] != resource_version {
            return Ok(None);
        }
        secret["data"] = json!(data);
        // The API server compares the version that goes along once more.
        taken(self.put(&path, secret.to_string(), MAX_BYTES).await)
    }
}

fn path(namespace: &str, name: &str) -> String {
    let separator = if name.is_empty() { "" } else { "/" };
    format!("/api/v1/namespaces/{namespace}/secrets{separator}{name}")
}

fn taken(answer: Result<bytes::Bytes, Failure>) -> Result<Option<StoredSecret>, SecretError> {
    match answer {
        Ok(answer) => read(&answer).map(Some),
        Err(failure) if failure.is_conflict() => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

fn read(answer: &[u8]) -> Result<StoredSecret, SecretError> {
    // What is wrong with a Secret is told without its content.
    let secret: Value =
        serde_json::from_slice(answer).map_err(|_| SecretError("the answer is not JSON".to_owned()))?;
    let version = secret["metadata"]["resourceVersion"].as_str();
    let version = version.ok_or_else(|| SecretError("the answer has no resource version".to_owned()))?;
    let data = secret["data"].as_object().into_iter().flatten();
    let data = data.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    Ok(StoredSecret { data: data.collect(), resource_version: version.to_owned() })
}
