//! Who declares fields of an object, as opposed to having set them once.
//!
//! Tools that keep clusters as a repository describes them either apply on the server's side, which managed fields tell, or
//! leave a copy of the manifest in an annotation. They put a field back as often as it is changed, so changing it helps
//! nobody.

use canopus_sources::kubernetes::ApiError;
use serde_json::Value;

/// Managers that apply once and do not put a field back: installers.
const INSTALLERS: [&str; 2] = ["helm", "istio-operator"];

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The managers of a conflict that keep the fields as they declare them.
///
/// Charts install the validation webhook with `failurePolicy: Ignore` in the expectation that the control plane changes it, so
/// an installer that declares nothing else is not in the way.
pub(super) fn keepers(conflict: &ApiError) -> Vec<&str> {
    let mut managers = conflict.conflicting_managers();
    if conflict.message.contains(".failurePolicy") && !conflict.message.contains(".caBundle") {
        managers.retain(|manager| !INSTALLERS.contains(manager));
    }
    managers
}

/// The managers among `conflicting` that declare some of `fields` in the object as it is stored.
pub(super) fn declarers(stored: &Value, fields: &Value, conflicting: &[&str]) -> Vec<String> {
    let entries = stored["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let applied = entries.iter().filter(|entry| entry["operation"] == "Apply");
    let mut found: Vec<String> = applied
        .filter_map(|entry| entry["manager"].as_str())
        .filter(|manager| conflicting.contains(manager))
        .map(str::to_owned)
        .collect();
    let manifest = stored["metadata"]["annotations"][LAST_APPLIED].as_str();
    let manifest: Option<Value> = manifest.and_then(|text| serde_json::from_str(text).ok());
    if manifest.is_some_and(|manifest| declares(&manifest, fields)) {
        found.push("kubectl apply".to_owned());
    }
    found.sort();
    found.dedup();
    found
}

/// Whether a manifest has a value for some field beside those that identify the object.
fn declares(manifest: &Value, fields: &Value) -> bool {
    let (Value::Object(manifest), Value::Object(fields)) = (manifest, fields) else {
        return !is_empty(manifest);
    };
    fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "name"))
        .any(|(name, field)| match (manifest.get(name), field) {
            (Some(Value::Array(there)), Value::Array(wanted)) => wanted
                .iter()
                .any(|wanted| same_name(there, wanted).is_some_and(|item| declares(item, wanted))),
            (Some(there), wanted) => declares(there, wanted),
            (None, _) => false,
        })
}

fn same_name<'a>(items: &'a [Value], wanted: &Value) -> Option<&'a Value> {
    items.iter().find(|item| item["name"] == wanted["name"])
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields() -> Value {
        json!({"kind": "K", "metadata": {"name": "a"}, "webhooks": [{"name": "w", "clientConfig": {"caBundle": "eA=="}}]})
    }

    fn stored(manifest: Value) -> Value {
        json!({"metadata": {"annotations": {LAST_APPLIED: manifest.to_string()}}})
    }

    #[test]
    fn manager_declares_when_it_applies_on_the_servers_side() {
        let stored = json!({"metadata": {"managedFields": [
            {"manager": "argocd-controller", "operation": "Apply"}, {"manager": "pilot-discovery", "operation": "Update"},
            {"manager": "flux", "operation": "Apply"},
        ]}});
        assert_eq!(
            declarers(&stored, &fields(), &["argocd-controller", "pilot-discovery"]),
            ["argocd-controller"]
        );
        assert!(declarers(&stored, &fields(), &["pilot-discovery"]).is_empty());
    }

    #[test]
    fn installer_does_not_keep_the_policy_that_it_installed() {
        let conflict = |field: &str| ApiError {
            code: 409,
            message: format!(
                "Apply failed with 1 conflict: conflict with \"helm\" using v1: .webhooks[name=\"w\"].{field}"
            ),
        };
        assert!(keepers(&conflict("failurePolicy")).is_empty());
        assert_eq!(keepers(&conflict("clientConfig.caBundle")), ["helm"]);
    }

    #[test]
    fn manifest_declares_when_it_has_a_value_for_the_field() {
        let with = |bundle: Value| {
            stored(json!({"webhooks": [{"name": "w", "clientConfig": {"caBundle": bundle, "service": {}}}]}))
        };
        assert_eq!(declarers(&with(json!("eQ==")), &fields(), &[]), ["kubectl apply"]);
        assert!(declarers(&with(json!("")), &fields(), &[]).is_empty());
        let other = stored(json!({"webhooks": [{"name": "other", "clientConfig": {"caBundle": "eQ=="}}]}));
        assert!(declarers(&other, &fields(), &[]).is_empty());
        assert!(
            declarers(&json!({"metadata": {"annotations": {LAST_APPLIED: "{"}}}), &fields(), &[]).is_empty()
        );
    }
}
