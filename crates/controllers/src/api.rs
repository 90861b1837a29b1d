//! The operations of an API server that applying needs, as a trait so that appliers can be tested without one.

use std::future::Future;

use canopus_api::ObjectKey;
use canopus_sources::kubernetes::{ApiError, ApplyOptions, Cluster};
use serde_json::Value;

/// Reads and writes single objects.
pub trait Api: Send + Sync + 'static {
    /// An object as it is stored.
    fn read(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Value>, ApiError>> + Send;

    /// Applies fields on the server's side and gives the object as it is then.
    fn apply(
        &self,
        key: &ObjectKey,
        fields: &Value,
        options: ApplyOptions<'_>,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send;

    /// Replaces the status of an object if it still has the resource version of `object`.
    fn replace_status(
        &self,
        key: &ObjectKey,
        object: &Value,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Creates an object; a conflict if it is there.
    fn create(
        &self,
        key: &ObjectKey,
        object: &Value,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Does the operations of a JSON patch to an object or a subresource of it, all or none.
    fn patch(
        &self,
        key: &ObjectKey,
        subresource: &str,
        patch: &Value,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Deletes an object if it still has this resource version.
    fn delete(
        &self,
        key: &ObjectKey,
        version: &str,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

impl Api for Cluster {
    async fn read(&self, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
        self.read_object(key).await
    }

    async fn apply(
        &self,
        key: &ObjectKey,
        fields: &Value,
        options: ApplyOptions<'_>,
    ) -> Result<Value, ApiError> {
        match self.apply_object(key, fields, options).await {
            // Roles of Istio's charts allow to create and update some kinds, but not to patch them, which applying takes.
            Err(error) if error.is_forbidden() && options.subresource.is_empty() => {
                update(self, key, fields, options, error).await
            }
            done => done,
        }
    }

    async fn replace_status(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<(), ApiError> {
        self.replace_object(key, "status", object, dry_run).await.map(drop)
    }

    async fn create(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<(), ApiError> {
        let created = if dry_run {
            self.try_create_object(key, object).await
        } else {
            self.create_object(key, object).await
        };
        created.map(drop)
    }

    async fn patch(
        &self,
        key: &ObjectKey,
        subresource: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        self.patch_object(key, subresource, patch, dry_run).await.map(drop)
    }

    async fn delete(&self, key: &ObjectKey, version: &str, dry_run: bool) -> Result<(), ApiError> {
        self.delete_version(key, version, dry_run).await
    }
}

/// Brings fields into an object by replacing all of it.
async fn update(
    cluster: &Cluster,
    key: &ObjectKey,
    fields: &Value,
    options: ApplyOptions<'_>,
    refusal: ApiError,
) -> Result<Value, ApiError> {
    let Some(mut stored) = cluster.read_object(key).await? else {
        if options.dry_run {
            return Ok(fields.clone());
        }
        return cluster.create_object(key, fields).await.map_err(|error| keep(refusal, error));
    };
    if !options.force
        && let Some(conflict) = conflict(&stored, fields, options.manager)
    {
        return Err(conflict);
    }
    merge(&mut stored, fields);
    let replaced = cluster.replace_object(key, "", &stored, options.dry_run).await;
    replaced.map_err(|error| keep(refusal, error))
}

/// The conflict that applying would have reported: somebody else applies some of the fields.
fn conflict(stored: &Value, fields: &Value, own: &str) -> Option<ApiError> {
    let entries = stored["metadata"]["managedFields"].as_array().into_iter().flatten();
    let others = entries.filter(|entry| entry["operation"] == "Apply" && entry["manager"] != own);
    others.into_iter().find_map(|entry| {
        let theirs = entry["fieldsV1"].to_string();
        let mut both = leaves(fields);
        both.retain(|leaf| theirs.contains(&format!("\"f:{leaf}\"")));
        let paths: Vec<String> = both.iter().map(|leaf| format!(".{leaf}")).collect();
        let manager = entry["manager"].as_str().unwrap_or_default();
        let message = format!("conflict with \"{manager}\": {}", paths.join(", "));
        (!paths.is_empty()).then_some(ApiError { code: 409, message })
    })
}

/// The first refusal says which right is missing; another error says more.
fn keep(refusal: ApiError, error: ApiError) -> ApiError {
    if error.is_forbidden() { refusal } else { error }
}

/// Lays fields over an object. Items of lists are those with the same name.
fn merge(object: &mut Value, fields: &Value) {
    match (object, fields) {
        (Value::Object(object), Value::Object(fields)) => {
            for (name, field) in fields {
                merge(object.entry(name.clone()).or_insert(Value::Null), field);
            }
        }
        (Value::Array(items), Value::Array(fields))
            if fields.iter().all(|field| field["name"].is_string()) =>
        {
            for field in fields {
                match items.iter_mut().find(|item| item["name"] == field["name"]) {
                    Some(item) => merge(item, field),
                    None => items.push(field.clone()),
                }
            }
        }
        (object, fields) => *object = fields.clone(),
    }
}

/// The names of the fields that have values, without those that identify an object.
fn leaves(fields: &Value) -> Vec<&str> {
    match fields {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "name"))
            .flat_map(|(name, field)| match field {
                Value::Object(_) | Value::Array(_) => leaves(field),
                _ => vec![name.as_str()],
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FIELD_MANAGER;

    #[test]
    fn conflict_names_the_fields_that_somebody_else_applies() {
        let fields = json!({"webhooks": [{"name": "w", "failurePolicy": "Fail", "clientConfig": {"caBundle": "eA=="}}]});
        let stored = |manager: &str, operation: &str| {
            let theirs = json!({"f:webhooks": {"k:{}": {"f:failurePolicy": {}}}});
            json!({"metadata": {"managedFields": [{"manager": manager, "operation": operation, "fieldsV1": theirs}]}})
        };
        let found = conflict(&stored("helm", "Apply"), &fields, FIELD_MANAGER).unwrap();
        assert_eq!(found.message, "conflict with \"helm\": .failurePolicy");
        assert_eq!(conflict(&stored("helm", "Update"), &fields, FIELD_MANAGER), None);
        assert_eq!(conflict(&stored(FIELD_MANAGER, "Apply"), &fields, FIELD_MANAGER), None);
    }

    #[test]
    fn fields_are_laid_over_items_of_the_same_name() {
        let mut object =
            json!({"webhooks": [{"name": "a", "rules": [1]}, {"name": "b"}], "data": {"x": "1"}});
        merge(
            &mut object,
            &json!({"webhooks": [{"name": "b", "clientConfig": {"caBundle": "eA=="}}], "data": {"y": "2"}}),
        );
        assert_eq!(
            object,
            json!({"webhooks": [{"name": "a", "rules": [1]}, {"name": "b", "clientConfig": {"caBundle": "eA=="}}],
                   "data": {"x": "1", "y": "2"}})
        );
        assert_eq!(
            leaves(&json!({"kind": "K", "webhooks": [{"name": "b", "clientConfig": {"caBundle": "eA=="}}]})),
            ["caBundle"]
        );
    }
}
