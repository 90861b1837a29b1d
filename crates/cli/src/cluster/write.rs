//! Changing objects of a cluster.

use anyhow::{Context as _, bail};
use canopus_base::json;
use canopus_base::tree::{Limits, Node};
use http::{Method, Request, header};
use kube::Error;
use serde_json::Value;

use super::Cluster;

/// Field manager of applied objects.
const FIELD_MANAGER: &str = "istioctl";

/// What the API server refused to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl Cluster {
    /// Creates an object below the path of a collection, or calls a subresource.
    pub(crate) fn create(&self, path: &str, object: &Value) -> anyhow::Result<Node> {
        self.send(Method::POST, path, "application/json", object.to_string())
    }

    /// Applies the fields of an object on the server's side.
    pub(crate) fn apply(&self, path: &str, object: &Value) -> anyhow::Result<Node> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", object.to_string())
    }

    /// Merges fields into an object.
    pub(crate) fn merge(&self, path: &str, fields: &Value) -> anyhow::Result<Node> {
        self.send(Method::PATCH, path, "application/merge-patch+json", fields.to_string())
    }

    /// Deletes an object; `false` if there is none.
    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<bool> {
        match self.send(Method::DELETE, path, "application/json", String::new()) {
            Ok(_) => Ok(true),
            Err(error) if error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 404) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn send(&self, method: Method, path: &str, content_type: &str, body: String) -> anyhow::Result<Node> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(body.into_bytes())?;
        let _entered = self.runtime.enter();
        let asked = tokio::time::timeout(self.timeout, self.client.request_text(request));
        let answer = self.runtime.block_on(asked);
        let answer = answer.with_context(|| format!("{path}: no answer within {:?}", self.timeout))?;
        let text = match answer {
            Err(Error::Api(status)) => {
                return Err(Refusal { code: status.code, message: status.message.clone() }.into());
            }
            Err(error) => bail!(self.transport(path, &error)),
            Ok(text) => text,
        };
        Ok(json::parse(text.as_bytes(), &Limits { max_bytes: text.len(), ..Limits::default() })?)
    }
}
