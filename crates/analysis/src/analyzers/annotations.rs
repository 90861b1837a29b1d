//! Annotations of Istio's on Kubernetes' own kinds: unknown, deprecated, misplaced or invalid ones.

use canopus_admission::injection;
use canopus_api::{Kind, annotations, labels};

use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const KINDS: [Kind; 4] = [Kind::Namespace, Kind::Service, Kind::Pod, Kind::Deployment];

/// Annotations that the mesh itself writes.
const IGNORED: [&str; 3] =
    [annotations::SIDECAR_STATUS.name, annotations::GATEWAY_CONTROLLER_VERSION.name, labels::REVISION.name];

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    for kind in KINDS {
        for resource in world.objects_of_kind(kind) {
            check(resource, kind.info().kind, findings);
        }
    }
}

fn check(resource: &Resource, kind: &str, findings: &mut Findings) {
    for (name, value) in resource.object.meta().annotations.iter() {
        if !is_istio(name) || IGNORED.contains(&name) {
            continue;
        }
        let Some(known) = annotations::find(name) else {
            findings.add(&catalogue::UNKNOWN_ANNOTATION, resource, &[name.into()]);
            continue;
        };
        let is_inject = name == annotations::SIDECAR_INJECT.name;
        if known.deprecated && !(is_inject && resource.labels().contains_key(&labels::SIDECAR_INJECT)) {
            let extra = if is_inject { " in favor of the \"sidecar.istio.io/inject\" label" } else { "" };
            findings.add(&catalogue::DEPRECATED_ANNOTATION, resource, &[name.into(), extra.into()]);
        }
        if known.kinds.contains(&"Any") {
            continue;
        }
        if !known.kinds.contains(&kind) {
            let kinds = known.kinds.join(", ");
            findings.add(&catalogue::MISPLACED_ANNOTATION, resource, &[name.into(), kinds.into()]);
        } else if let Err(error) = injection::check_annotation(name, value) {
            findings.add(&catalogue::INVALID_ANNOTATION, resource, &[name.into(), error.into()]);
        }
    }
}

fn is_istio(name: &str) -> bool {
    let group = name.split('/').next().unwrap_or_default();
    name == "kubernetes.io/ingress.class" || group.ends_with("istio.io")
}
