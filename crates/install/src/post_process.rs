//! What `k8s` of a component changes in the objects that its chart made.

use canopus_api::builtin;
use serde_json::{Value as Json, json};

use crate::component::{Component, Instance};
use crate::manifest::Manifest;
use crate::path;
use crate::tree::Tree;
use crate::{Error, path_patch};

/// Patched objects.
pub(crate) struct Patched {
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) warnings: Vec<String>,
}

/// Where a setting goes.
enum Target {
    /// The pods of the component's workload.
    Pods,
    /// The annotations of those pods.
    PodAnnotations,
    /// The component's container.
    Container,
    /// The spec of the component's workload.
    Workload,
    /// The spec of another object with the component's name.
    Spec(&'static str),
    /// The annotations of another object with the component's name.
    Annotations(&'static str),
}

/// Settings, the field each one is, and where it goes.
const SETTINGS: [(&str, &str, Target); 16] = [
    ("affinity", "affinity", Target::Pods),
    ("env", "env", Target::Container),
    ("hpaSpec", "", Target::Spec("HorizontalPodAutoscaler")),
    ("imagePullPolicy", "imagePullPolicy", Target::Container),
    ("nodeSelector", "nodeSelector", Target::Pods),
    ("podAnnotations", "", Target::PodAnnotations),
    ("podDisruptionBudget", "", Target::Spec("PodDisruptionBudget")),
    ("priorityClassName", "priorityClassName", Target::Pods),
    ("readinessProbe", "readinessProbe", Target::Container),
    ("replicaCount", "replicas", Target::Workload),
    ("resources", "resources", Target::Container),
    ("securityContext", "securityContext", Target::Pods),
    ("service", "", Target::Spec("Service")),
    ("serviceAnnotations", "", Target::Annotations("Service")),
    ("strategy", "strategy", Target::Workload),
    ("tolerations", "tolerations", Target::Pods),
];

pub(crate) fn apply(
    component: &Component,
    instance: &Instance,
    mut manifests: Vec<Manifest>,
    values: &Json,
) -> Result<Patched, Error> {
    let Some(settings) = &instance.kubernetes else { return Ok(Patched { manifests, warnings: Vec::new() }) };
    let (workload, name) = target_of(component, instance, values);
    for (setting, field, target) in &SETTINGS {
        let Some(mut value) = settings.get(*setting).cloned() else { continue };
        if *setting == "service"
            && component.is_gateway()
            && let Json::Object(service) = &mut value
        {
            // A chart gets the ports as values; merging them again by port number would double those that share one.
            service.remove("ports");
        }
        let (kind, patch) = patch(component, workload, field, target, value);
        for manifest in
            manifests.iter_mut().filter(|manifest| manifest.kind() == kind && manifest.name() == name)
        {
            merge(manifest, patch.clone())?;
        }
    }
    let warnings = overlay(settings, &mut manifests);
    Ok(Patched { manifests, warnings })
}

/// Kind and name of the workload that an instance is.
fn target_of(component: &Component, instance: &Instance, values: &Json) -> (&'static str, String) {
    let (kind, name) = component.workload.unwrap_or_default();
    let mut name = if instance.name.is_empty() { name.to_owned() } else { instance.name.clone() };
    if component.key == "pilot"
        && let Some(revision) = values.get("revision").and_then(Json::as_str)
        && !matches!(revision, "" | "default")
    {
        name = format!("{name}-{revision}");
    }
    (kind, name)
}

/// The kind of object that a setting changes, and how.
fn patch(
    component: &Component,
    workload: &'static str,
    field: &str,
    target: &Target,
    value: Json,
) -> (&'static str, Json) {
    match target {
        Target::Pods => (workload, json!({"spec": {"template": {"spec": {field: value}}}})),
        Target::PodAnnotations => {
            (workload, json!({"spec": {"template": {"metadata": {"annotations": value}}}}))
        }
        Target::Container => {
            let container = json!({"name": component.container, field: value});
            (workload, json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        }
        Target::Workload => (workload, json!({"spec": {field: value}})),
        Target::Spec(kind) => (kind, json!({"spec": value})),
        Target::Annotations(kind) => (kind, json!({"metadata": {"annotations": value}})),
    }
}

fn merge(manifest: &mut Manifest, patch: Json) -> Result<(), Error> {
    let refused = |reason: String| Error::Patch { object: manifest.described(), reason };
    let Some(kind) = builtin::object_type(manifest.api_version(), manifest.kind()) else {
        return Err(refused(format!(
            "no kind {:?} is registered for version {:?}",
            manifest.kind(),
            manifest.api_version()
        )));
    };
    let mut object = manifest.object.clone();
    kind.merge(&mut object, patch).map_err(|error| refused(error.to_string()))?;
    // An object may have one of the two only, and charts set the first. Parity: it is written as null, which is to say absent.
    if manifest.kind() == "PodDisruptionBudget"
        && let Some(Json::Object(spec)) = object.get_mut("spec")
        && spec.contains_key("maxUnavailable")
        && let Some(minimum) = spec.get_mut("minAvailable")
    {
        *minimum = Json::Null;
    }
    manifest.object = object;
    Ok(())
}

/// Applies the overlays, and tells of patches that lead nowhere.
///
/// Parity: those change nothing and fail nothing.
fn overlay(settings: &Tree, manifests: &mut [Manifest]) -> Vec<String> {
    let mut warnings = Vec::new();
    for overlay in settings.get("overlays").and_then(Json::as_array).into_iter().flatten() {
        let text = |field: &str| overlay.get(field).and_then(Json::as_str).unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        for manifest in
            manifests.iter_mut().filter(|manifest| manifest.kind() == kind && manifest.name() == name)
        {
            for patch in overlay.get("patches").and_then(Json::as_array).into_iter().flatten() {
                let path = patch.get("path").and_then(Json::as_str).unwrap_or_default();
                let value = patch.get("value").filter(|value| !value.is_null());
                if let Err(reason) = path_patch::apply(&mut manifest.object, &path::parse(path), value) {
                    warnings.push(format!(
                        "overlay of {kind} {name}: path {path}: {reason}; nothing was changed"
                    ));
                }
            }
        }
    }
    warnings
}
