//! What users lay over rendered objects, and what neither they nor templates may do.

use std::sync::Arc;

use canopus_api::gateway_api::Gateway;
use canopus_api::kube::ConfigMap;
use canopus_api::{Kind, ObjectKey, builtin, labels};
use canopus_mesh::gateway_api::GatewayDeployment;
use serde_json::Value;

use super::parse_overlay;

/// A kind that templates may make.
struct Deployable {
    kind: Kind,
    /// The key of its overlay.
    key: &'static str,
    /// Whether it exists only where an overlay asks for it.
    on_demand: bool,
}

const DEPLOYABLE: [Deployable; 5] = [
    Deployable { kind: Kind::Deployment, key: "deployment", on_demand: false },
    Deployable { kind: Kind::HorizontalPodAutoscaler, key: "horizontalPodAutoscaler", on_demand: true },
    Deployable { kind: Kind::PodDisruptionBudget, key: "podDisruptionBudget", on_demand: true },
    Deployable { kind: Kind::Service, key: "service", on_demand: false },
    Deployable { kind: Kind::ServiceAccount, key: "serviceAccount", on_demand: false },
];

/// Fields of the metadata that say which object it is, and whose. An overlay leaves them alone.
const IDENTITY: [&str; 11] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
];

fn deployable(object: &Value) -> Result<&'static Deployable, String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let found = DEPLOYABLE.iter().find(|deployable| deployable.kind.info().kind == kind);
    found.ok_or_else(|| {
        let known: Vec<_> = DEPLOYABLE.iter().map(|deployable| deployable.kind.info().kind).collect();
        format!(
            "the template makes a {kind:?}, but only these kinds are deployed for gateways: {}",
            known.join(", ")
        )
    })
}

/// Lays overlays over an object; none if nobody asks for the object.
pub(super) fn apply(mut object: Value, overlays: &[Arc<ConfigMap>]) -> Result<Option<Value>, String> {
    let deployable = deployable(&object)?;
    let identity = identity(&object);
    let mut is_asked_for = false;
    for map in overlays {
        let within = |reason: String| format!("ConfigMap {}/{}: {reason}", map.meta.namespace, map.meta.name);
        if let Some(unknown) =
            map.spec.data.keys().find(|key| !DEPLOYABLE.iter().any(|known| known.key == &***key))
        {
            let known: Vec<_> = DEPLOYABLE.iter().map(|known| known.key).collect();
            return Err(within(format!("key {unknown:?} means nothing; use {}", known.join(", "))));
        }
        let Some(text) = map.spec.get(deployable.key) else { continue };
        let in_key = |reason: String| within(format!("key {:?}: {reason}", deployable.key));
        let patch = parse_overlay(text).map_err(in_key)?;
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = builtin::object_type(api_version, deployable.kind.info().kind).ok_or_else(|| {
            format!("the template makes a {} of {api_version}", deployable.kind.info().kind)
        })?;
        kind.merge(&mut object, patch).map_err(|error| in_key(error.to_string()))?;
        // What the API server would refuse is known before anything is sent.
        kind.normalize(&mut object.clone()).map_err(|error| in_key(error.to_string()))?;
        is_asked_for = true;
    }
    if deployable.on_demand && !is_asked_for {
        return Ok(None);
    }
    let has_managed_fields =
        object["metadata"]["managedFields"].as_array().is_some_and(|all| !all.is_empty());
    if identity != self::identity(&object) || has_managed_fields {
        return Err(format!(
            "an overlay changes which {} it is: metadata may get labels and annotations, and nothing else",
            deployable.kind.info().kind
        ));
    }
    Ok(Some(object))
}

fn identity(object: &Value) -> Vec<Value> {
    // Absent and null are the same.
    IDENTITY.iter().map(|field| object["metadata"][*field].clone()).collect()
}

/// An object with the label that marks it, if it is one that this gateway may have.
pub(super) fn checked(
    mut object: Value,
    gateway: &Gateway,
    deployment: &GatewayDeployment,
) -> Result<(ObjectKey, Value), String> {
    let kind = deployable(&object)?.kind;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    if namespace != *gateway.meta.namespace {
        return Err(format!(
            "the template makes a {} in namespace {namespace:?}, but the gateway is in {}",
            kind.info().kind,
            gateway.meta.namespace
        ));
    }
    let is_expected = name == deployment.name || name == deployment.service_account;
    if name.is_empty() || !is_expected && !name.starts_with(&*gateway.meta.name) {
        return Err(format!(
            "the template makes a {} called {name:?}; the name must be {:?}, {:?}, or begin with {:?}",
            kind.info().kind,
            deployment.name,
            deployment.service_account,
            gateway.meta.name
        ));
    }
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(format!("the template makes a {} without metadata", kind.info().kind));
    };
    let marks = metadata.entry("labels").or_insert(Value::Null);
    if !marks.is_object() {
        *marks = Value::Object(serde_json::Map::new());
    }
    marks[labels::GATEWAY_MANAGED.name] = deployment.controller.replace('/', "-").into();
    Ok((ObjectKey::new(kind, &namespace, &name), object))
}
