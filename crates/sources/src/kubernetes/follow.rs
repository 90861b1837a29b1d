//! Following objects that are no part of the mesh's model, decoded into whatever the caller looks at of them.
//!
//! A node agent follows the pods of its node this way: the list is asked for once, changes are watched from its version on,
//! and everything is listed anew when the server no longer knows that version.

use std::time::Duration;

use http::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::lines::{Line, Lines};
use super::managed::ApiError;
use super::resource::encode;
use super::server::{Cluster, Failure};
use crate::retry::Retry;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The largest list, of the objects that one caller selects.
const MAX_LIST_BYTES: usize = 256 << 20;

/// The largest object.
const MAX_OBJECT_BYTES: usize = 12 << 20;

/// The server sends a bookmark about every minute. Without a word for this long the connection is taken for dead.
const SILENCE: Duration = Duration::from_secs(150);

/// What is told of followed objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed<T> {
    /// The complete list.
    Listed(Vec<T>),
    /// An object is new or different.
    Present(T),
    /// An object is gone; this is what it was.
    Gone(T),
}

/// Which objects are followed: a path, and selectors as the API server takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followable {
    /// The path of all objects, such as `/api/v1/pods`.
    pub path: String,
    /// Selects by fields, such as `spec.nodeName=a`.
    pub fields: String,
    /// Selects by labels.
    pub labels: String,
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

/// The version alone; objects of all kinds have it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Versioned {
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

impl Followable {
    fn target(&self, more: &str) -> String {
        let mut target = format!("{}?{more}", self.path);
        for (key, selector) in [("fieldSelector", &self.fields), ("labelSelector", &self.labels)] {
            if !selector.is_empty() {
                target.push_str(&format!("&{key}="));
                encode(selector, &mut target);
            }
        }
        target
    }
}

impl Cluster {
    /// Follows objects until the future is dropped. `tell` hears of them in the server's order; an object that cannot be
    /// decoded is logged and skipped.
    pub async fn follow_at<T: DeserializeOwned>(
        &self,
        what: &Followable,
        mut tell: impl AsyncFnMut(Followed<T>),
    ) {
        let mut retry = Retry::default();
        loop {
            let Err(failure) = self.list_and_watch(what, &mut retry, &mut tell).await;
            let pause = retry.pause();
            tracing::warn!("following {}: {failure}; listing anew in {pause:?}", what.path);
            sleep(pause).await;
        }
    }

    async fn list_and_watch<T: DeserializeOwned>(
        &self,
        what: &Followable,
        retry: &mut Retry,
        tell: &mut impl AsyncFnMut(Followed<T>),
    ) -> Result<std::convert::Infallible, Failure> {
        let malformed = |error: serde_json::Error| Failure::Malformed(error.to_string());
        let bytes = self.get(&what.target(""), JSON, MAX_LIST_BYTES).await?;
        let List { metadata, items } = serde_json::from_slice(&bytes).map_err(malformed)?;
        drop(bytes);
        tell(Followed::Listed(items)).await;
        retry.reset();
        let mut version = metadata.resource_version;
        loop {
            let parameters =
                format!("watch=true&allowWatchBookmarks=true&timeoutSeconds=570&resourceVersion={version}");
            let body = self.stream(&what.target(&parameters), JSON).await?;
            let mut lines = Lines::new(body, MAX_OBJECT_BYTES);
            loop {
                let line = match timeout(SILENCE, lines.next()).await.map_err(|_| Failure::Silent)?? {
                    Some(Line::Text(line)) => line,
                    Some(Line::TooLong(_)) => return Err(Failure::TooLarge(MAX_OBJECT_BYTES)),
                    // The server ends every watch after a while.
                    None => break,
                };
                let event: Event<'_> = serde_json::from_slice(&line).map_err(malformed)?;
                if event.kind == "ERROR" {
                    let status: Value = serde_json::from_str(event.object.get()).map_err(malformed)?;
                    let code =
                        status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                    let message = status["message"].as_str().unwrap_or("no reason given").to_owned();
                    return Err(Failure::Status { code, message });
                }
                let versioned: Versioned = serde_json::from_str(event.object.get()).map_err(malformed)?;
                version = versioned.metadata.resource_version;
                if event.kind == "BOOKMARK" {
                    continue;
                }
                match serde_json::from_str(event.object.get()) {
                    Ok(object) if event.kind == "DELETED" => tell(Followed::Gone(object)).await,
                    Ok(object) => tell(Followed::Present(object)).await,
                    Err(error) => tracing::error!("following {}: an object is skipped: {error}", what.path),
                }
            }
        }
    }

    /// Changes fields of the object at a path; `null` removes one.
    pub async fn merge_patch_at(&self, path: &str, patch: &Value) -> Result<(), ApiError> {
        let written =
            self.write(Request::patch(path), MERGE_PATCH, patch.to_string(), MAX_OBJECT_BYTES).await;
        Ok(written.map(drop)?)
    }

    /// Creates an object below a path.
    pub async fn create_at(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        Ok(self.post(path, object.to_string(), MAX_OBJECT_BYTES).await.map(drop)?)
    }

    /// Deletes the object at a path if it is still this one, in this state.
    pub async fn delete_unchanged_at(&self, path: &str, uid: &str, version: &str) -> Result<(), ApiError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
        });
        let deleted = self.write(Request::delete(path), JSON, options.to_string(), MAX_OBJECT_BYTES).await;
        Ok(deleted.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_part_of_the_question() {
        let what = Followable {
            path: "/api/v1/pods".into(),
            fields: "spec.nodeName=a".into(),
            labels: String::new(),
        };
        assert_eq!(what.target("watch=true"), "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Da");
    }
}
