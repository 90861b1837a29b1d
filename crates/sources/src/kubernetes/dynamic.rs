//! Objects of any kind, known only by what the API server says of their types: what an installer applies.

use http::Request;
use serde_json::{Value, json};

use super::managed::{ApiError, ApplyOptions};
use super::resource::encode;
use super::server::{Cluster, Failure};

/// The largest answer: a list of objects of one kind that an installer made.
const MAX_BYTES: usize = 64 << 20;

const JSON: &str = "application/json";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const APPLY: &str = "application/apply-patch+yaml";

/// A type of objects that an API server has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceType {
    /// Group and version as objects write them: `apps/v1`, or `v1` for Kubernetes' core.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

impl ResourceType {
    /// The path of an object, or of all objects if `name` is empty; of all namespaces if `namespace` is.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = version_path(&self.api_version);
        if self.is_namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            encode(namespace, &mut path);
        }
        path.push('/');
        encode(&self.plural, &mut path);
        if !name.is_empty() {
            path.push('/');
            encode(name, &mut path);
        }
        path
    }
}

impl ResourceType {
    /// The type as rights name it: `deployments.apps`, or `services` for Kubernetes' core.
    pub fn group_resource(&self) -> String {
        match self.group() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

fn version_path(api_version: &str) -> String {
    let mut path = if api_version.contains('/') { "/apis".to_owned() } else { "/api".to_owned() };
    for element in api_version.split('/') {
        path.push('/');
        encode(element, &mut path);
    }
    path
}

impl Cluster {
    /// The version of the API server, such as `v1.36.3`.
    pub async fn server_version(&self) -> Result<String, ApiError> {
        let answer = self.json("/version").await?;
        Ok(answer["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether services can be listed with these credentials: what a registry needs first.
    pub async fn can_list_services(&self) -> Result<(), ApiError> {
        self.json("/api/v1/services?limit=1").await.map(drop)
    }

    /// The types of a version; none if the server does not have it.
    pub async fn resource_types(&self, api_version: &str) -> Result<Vec<ResourceType>, ApiError> {
        let answer = match self.json(&version_path(api_version)).await {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer?,
        };
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let entries = answer["resources"].as_array().into_iter().flatten();
        let types = entries.filter(|entry| !text(entry, "name").contains('/')).map(|entry| ResourceType {
            api_version: api_version.to_owned(),
            kind: text(entry, "kind"),
            plural: text(entry, "name"),
            is_namespaced: entry["namespaced"] == true,
        });
        Ok(types.collect())
    }

    /// The object at a path.
    pub async fn read_at(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.json(path).await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The objects at a path that have these labels, such as `app=istiod,istio.io/rev`.
    pub async fn list_at(&self, path: &str, labels: &str) -> Result<Vec<Value>, ApiError> {
        let mut target = format!("{path}?labelSelector=");
        encode(labels, &mut target);
        let answer = match self.json(&target).await {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer?,
        };
        Ok(answer["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies fields of the object at a path on the server's side, and gives the object as it is then.
    pub async fn apply_at(
        &self,
        path: &str,
        fields: &Value,
        options: ApplyOptions<'_>,
    ) -> Result<Value, ApiError> {
        let mut target = format!("{path}?fieldManager=");
        encode(options.manager, &mut target);
        target.push_str(if options.force { "&force=true" } else { "" });
        target.push_str(if options.dry_run { "&dryRun=All" } else { "" });
        let answer = self.write(Request::patch(&target), APPLY, fields.to_string(), MAX_BYTES).await?;
        parse(&answer)
    }

    /// Asks the server whether it would create an object below a path. Nothing is created.
    pub async fn try_create_at(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        self.post(&format!("{path}?dryRun=All"), object.to_string(), MAX_BYTES)
            .await
            .map(drop)
            .map_err(ApiError::from)
    }

    /// Whether this user may do something to objects of a type, in a namespace or in the whole cluster.
    pub async fn may_i(
        &self,
        verb: &str,
        resource: &ResourceType,
        namespace: &str,
    ) -> Result<bool, ApiError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": namespace, "verb": verb, "group": resource.group(), "resource": resource.plural,
            }},
        });
        let answer = self.post(ACCESS_REVIEWS, review.to_string(), MAX_BYTES).await?;
        Ok(parse(&answer)?["status"]["allowed"] == true)
    }

    /// Deletes the object at a path and what it owns: before it if that is in the foreground, else after it. Whether there was
    /// one.
    pub async fn delete_at(&self, path: &str, in_foreground: bool) -> Result<bool, ApiError> {
        let policy = if in_foreground { "Foreground" } else { "Background" };
        let target = format!("{path}?propagationPolicy={policy}");
        match self.write(Request::delete(&target), JSON, String::new(), MAX_BYTES).await {
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure.into()),
            Ok(_) => Ok(true),
        }
    }

    async fn json(&self, path: &str) -> Result<Value, ApiError> {
        parse(&self.get(path, JSON, MAX_BYTES).await?)
    }
}

fn parse(answer: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(answer).map_err(|error| Failure::Malformed(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(api_version: &str, plural: &str, is_namespaced: bool) -> ResourceType {
        ResourceType {
            api_version: api_version.into(),
            kind: String::new(),
            plural: plural.into(),
            is_namespaced,
        }
    }

    #[test]
    fn path_has_the_namespace_of_namespaced_types_alone() {
        assert_eq!(kind("v1", "pods", true).path("shop", "cart"), "/api/v1/namespaces/shop/pods/cart");
        assert_eq!(kind("apps/v1", "deployments", true).path("", ""), "/apis/apps/v1/deployments");
        let role = kind("rbac.authorization.k8s.io/v1", "clusterroles", false);
        assert_eq!(role.path("shop", "a/b"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%2Fb");
    }
}
