//! Sidecars: those that select nobody, the same pods as others, or pods without sidecars.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Sidecar;

use super::{in_mesh, selector};
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const AMBIENT_WORKLOAD: &str = "selected workload is in ambient mode, the policy has no impact";
const AMBIENT_NAMESPACE: &str = "namespace is in ambient mode, the policy has no impact";

/// A pod and the Sidecars that select it.
type SidecarsOfPod<'a> = (&'a Arc<Resource>, Vec<&'a Arc<Resource>>);

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    let mut by_pod: BTreeMap<(&str, &str), SidecarsOfPod<'_>> = BTreeMap::new();
    let mut by_namespace: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    for (resource, sidecar) in world.each::<Sidecar>() {
        let labels = sidecar.spec.workload_selector.as_ref().map(|selector| &selector.labels);
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else {
            by_namespace.entry(resource.namespace()).or_default().push(resource);
            continue;
        };
        let pods = world
            .objects_of_kind(Kind::Pod)
            .iter()
            .filter(|pod| pod.namespace() == resource.namespace() && selector::selects(labels, pod.labels()));
        let mut found = false;
        for pod in pods {
            found = true;
            by_pod.entry((pod.namespace(), pod.name())).or_insert_with(|| (pod, Vec::new())).1.push(resource);
        }
        if !found {
            let path = ["spec", "workloadSelector", "labels", selector::first_key(labels)];
            let parameters = ["selector".into(), selector::text(labels).into()];
            findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &path, &parameters);
        }
    }
    let mut ineffective = BTreeSet::new();
    for ((namespace, name), (pod, sidecars)) in by_pod {
        if in_mesh::is_ambient_pod(pod) {
            report_ineffective(&sidecars, AMBIENT_WORKLOAD, &mut ineffective, findings);
        } else if sidecars.len() > 1 {
            let names = names(&sidecars);
            for sidecar in sidecars {
                let parameters = [names.clone().into(), namespace.into(), name.into()];
                let kind = &catalogue::CONFLICTING_SIDECAR_WORKLOAD_SELECTORS;
                findings.add_at(kind, sidecar, &["metadata", "name"], &parameters);
            }
        }
    }
    for (namespace, sidecars) in by_namespace {
        let object = world.find(Kind::Namespace, "", namespace);
        if object.is_some_and(|object| in_mesh::is_ambient_namespace(object)) {
            report_ineffective(&sidecars, AMBIENT_NAMESPACE, &mut ineffective, findings);
        } else if sidecars.len() > 1 {
            let names = names(&sidecars);
            for sidecar in sidecars {
                let parameters = [names.clone().into(), namespace.into()];
                findings.add(&catalogue::MULTIPLE_SIDECARS_WITHOUT_WORKLOAD_SELECTORS, sidecar, &parameters);
            }
        }
    }
}

/// Reports each Sidecar once, for however many pods it is without effect.
fn report_ineffective(
    sidecars: &[&Arc<Resource>],
    reason: &str,
    reported: &mut BTreeSet<String>,
    findings: &mut Findings,
) {
    for sidecar in sidecars {
        if reported.insert(sidecar.full_name().into_owned()) {
            findings.add(&catalogue::INEFFECTIVE_POLICY, sidecar, &[reason.into()]);
        }
    }
}

/// The sorted names of objects, without namespaces.
pub(super) fn names(resources: &[&Arc<Resource>]) -> Vec<String> {
    let mut names: Vec<String> = resources.iter().map(|resource| resource.name().to_owned()).collect();
    names.sort();
    names
}
