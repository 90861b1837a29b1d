//! Single objects that the control plane itself reads and writes.
//!
//! Controllers write to the server that objects are read from, so they share its connection and its bounds on answers; a
//! handle of [`Cluster::limited`] bounds how often they ask. Objects are JSON here: what a writer does not know of an object
//! must survive being written back.

use canopus_api::{Kind, ObjectKey};
use http::Request;
use serde_json::Value;

use super::resource::encode;
use super::server::{Cluster, Failure};

/// The largest object an API server stores, with room for its managed fields.
const MAX_BYTES: usize = 8 << 20;

const JSON: &str = "application/json";

/// A list of operations, which are done all or not at all.
const PATCH: &str = "application/json-patch+json";

/// JSON is YAML, so this is what apply takes.
const APPLY: &str = "application/apply-patch+yaml";

/// Why an object could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status; 0 if the server could not be reached or understood.
    pub code: u16,
    /// The server's explanation.
    pub message: String,
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let code = if let Failure::Status { code, .. } = &failure { *code } else { 0 };
        Self { code, message: failure.to_string() }
    }
}

impl ApiError {
    /// Whether the object, its namespace or its kind does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether the object was changed meanwhile, exists already, or has fields of other managers.
    pub fn is_conflict(&self) -> bool {
        self.code == 409
    }

    /// Whether the object is not what a patch tests for, or what it would become is not valid.
    pub fn is_unprocessable(&self) -> bool {
        self.code == 422
    }

    /// Whether the control plane lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.code == 403
    }

    /// The field managers that own what an apply wanted to change, as the server names them.
    pub fn conflicting_managers(&self) -> Vec<&str> {
        let after = self.message.split("with \"").skip(1);
        let mut managers: Vec<&str> = after.filter_map(|rest| rest.split('"').next()).collect();
        managers.sort_unstable();
        managers.dedup();
        managers
    }
}

/// How an object is applied on the server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyOptions<'a> {
    /// Field manager that owns the applied fields.
    pub manager: &'a str,
    /// The subresource that is applied; empty for the object itself.
    pub subresource: &'a str,
    /// Whether fields of other managers are taken over.
    pub force: bool,
    /// Whether the server only says what it would do.
    pub dry_run: bool,
}

impl Cluster {
    /// Reads an object, in the first version of its kind that the server has.
    pub async fn read_object(&self, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
        let info = key.kind.info();
        for version in info.versions {
            match self.get(&path(key, version, ""), JSON, MAX_BYTES).await {
                Ok(answer) => return parse(&answer).map(Some),
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(None)
    }

    /// Applies fields of an object on the server's side, which creates it if need be. `fields` name the version.
    pub async fn apply_object(
        &self,
        key: &ObjectKey,
        fields: &Value,
        options: ApplyOptions<'_>,
    ) -> Result<Value, ApiError> {
        let mut target = path(key, version(fields, key.kind), options.subresource);
        target.push_str("?fieldManager=");
        encode(options.manager, &mut target);
        target.push_str(if options.force { "&force=true" } else { "" });
        target.push_str(if options.dry_run { "&dryRun=All" } else { "" });
        let answer = self.write(Request::patch(&target), APPLY, fields.to_string(), MAX_BYTES).await?;
        parse(&answer)
    }

    /// Creates an object; an error of [`ApiError::is_conflict`] if it is there already.
    pub async fn create_object(&self, key: &ObjectKey, object: &Value) -> Result<Value, ApiError> {
        self.create(key, object, false).await
    }

    /// Asks whether an object could be created.
    pub async fn try_create_object(&self, key: &ObjectKey, object: &Value) -> Result<Value, ApiError> {
        self.create(key, object, true).await
    }

    async fn create(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<Value, ApiError> {
        let collection = ObjectKey::new(key.kind, &key.namespace, "");
        let mut target = path(&collection, version(object, key.kind), "");
        target.push_str(if dry_run { "?dryRun=All" } else { "" });
        parse(&self.post(&target, object.to_string(), MAX_BYTES).await?)
    }

    /// Replaces an object, or its subresource if one is named, if it still has the resource version of `object`.
    pub async fn replace_object(
        &self,
        key: &ObjectKey,
        subresource: &str,
        object: &Value,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let mut target = path(key, version(object, key.kind), subresource);
        target.push_str(if dry_run { "?dryRun=All" } else { "" });
        parse(&self.put(&target, object.to_string(), MAX_BYTES).await?)
    }

    /// Does the operations of a JSON patch to an object, or to a subresource of it. The server refuses them with 422 if a test among
    /// them fails.
    pub async fn patch_object(
        &self,
        key: &ObjectKey,
        subresource: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let mut target = path(key, key.kind.info().versions[0], subresource);
        target.push_str(if dry_run { "?dryRun=All" } else { "" });
        let answer = self.write(Request::patch(&target), PATCH, patch.to_string(), MAX_BYTES).await?;
        parse(&answer)
    }

    /// Deletes an object; nothing happens if it is not there.
    pub async fn delete_object(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.delete(key, String::new()).await
    }

    /// Deletes an object if it still has this resource version; nothing happens if it is not there.
    pub async fn delete_version(
        &self,
        key: &ObjectKey,
        version: &str,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let mut options = serde_json::json!({"preconditions": {"resourceVersion": version}});
        if dry_run {
            options["dryRun"] = serde_json::json!(["All"]);
        }
        self.delete(key, options.to_string()).await
    }

    async fn delete(&self, key: &ObjectKey, options: String) -> Result<(), ApiError> {
        let target = path(key, key.kind.info().versions[0], "");
        match self.write(Request::delete(&target), JSON, options, MAX_BYTES).await {
            Err(failure) if !failure.is_not_found() => Err(failure.into()),
            _ => Ok(()),
        }
    }

    /// The version of Kubernetes that the server reports: major and minor.
    pub async fn kubernetes_version(&self) -> Result<(u16, u16), ApiError> {
        let answer = parse(&self.get("/version", JSON, 1 << 16).await?)?;
        let number = |field: &str| {
            let text = answer[field].as_str()?;
            // Some providers add a sign to the minor version.
            text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
        };
        number("major").zip(number("minor")).ok_or_else(|| ApiError {
            code: 0,
            message: format!("the server's version cannot be read: {answer}"),
        })
    }
}

/// The version that an object is written in.
fn version(object: &Value, kind: Kind) -> &str {
    let written = object["apiVersion"].as_str().map(|text| text.rsplit_once('/').map_or(text, |(_, v)| v));
    written.unwrap_or(kind.info().versions[0])
}

fn path(key: &ObjectKey, version: &str, subresource: &str) -> String {
    let info = key.kind.info();
    let mut path = match info.group {
        "" => "/api/".to_owned(),
        group => format!("/apis/{group}/"),
    };
    encode(version, &mut path);
    if info.is_namespaced() {
        path.push_str("/namespaces/");
        encode(&key.namespace, &mut path);
    }
    path.push('/');
    path.push_str(info.plural);
    for element in [&*key.name, subresource] {
        if !element.is_empty() {
            path.push('/');
            encode(element, &mut path);
        }
    }
    path
}

fn parse(answer: &[u8]) -> Result<Value, ApiError> {
    // The text of an object may be secret, so it is not repeated.
    serde_json::from_slice(answer).map_err(|error| ApiError {
        code: 0,
        message: format!("the answer is not JSON (line {}, column {})", error.line(), error.column()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_names_group_version_namespace_and_subresource() {
        let key = ObjectKey::new(Kind::HttpRoute, "shop", "cart");
        let written = json!({"apiVersion": "gateway.networking.k8s.io/v1beta1"});
        assert_eq!(
            path(&key, version(&written, key.kind), "status"),
            "/apis/gateway.networking.k8s.io/v1beta1/namespaces/shop/httproutes/cart/status"
        );
        let key = ObjectKey::new(Kind::ConfigMap, "a/../b", "");
        assert_eq!(path(&key, "v1", ""), "/api/v1/namespaces/a%2F..%2Fb/configmaps");
        let key = ObjectKey::new(Kind::ClusterTrustBundle, "", "istio.io:istiod-ca:root-cert");
        assert_eq!(
            path(&key, version(&json!({}), key.kind), ""),
            "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/istio.io%3Aistiod-ca%3Aroot-cert"
        );
    }

    #[test]
    fn conflict_names_the_managers_once_each() {
        let message = "Apply failed with 3 conflicts: conflicts with \"argocd\" using v1:\n- .a\n- .b\nconflicts with \
                       \"helm\":\n- .c (status 409)";
        let error = ApiError { code: 409, message: message.to_owned() };
        assert_eq!(error.conflicting_managers(), ["argocd", "helm"]);
    }
}
