//! AuthorizationPolicies that select nobody or name namespaces that do not exist.

use std::collections::BTreeMap;

use canopus_api::Kind;
use canopus_api::istio::AuthorizationPolicy;
use canopus_api::kube::Pod;
use canopus_base::labels::Labels;

use super::{in_mesh, selector};
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    let pods = mesh_pods(world);
    for (resource, policy) in world.each::<AuthorizationPolicy>() {
        workloads(world, resource, policy, &pods, findings);
        namespaces(world, resource, policy, findings);
    }
}

/// The labels of the pods in the mesh, by namespace.
fn mesh_pods(world: &World) -> BTreeMap<&str, Vec<&Labels>> {
    let mut pods: BTreeMap<&str, Vec<&Labels>> = BTreeMap::new();
    for (resource, pod) in world.each::<Pod>() {
        let containers = in_mesh::containers(&pod.spec);
        let (labels, annotations) = (&pod.meta.labels, &pod.meta.annotations);
        let has_proxy = in_mesh::has_proxy(world, resource.namespace(), labels, annotations, containers);
        if has_proxy || in_mesh::is_ambient_pod(resource) {
            pods.entry(resource.namespace()).or_default().push(labels);
        }
    }
    pods
}

fn workloads(
    world: &World,
    resource: &Resource,
    policy: &AuthorizationPolicy,
    pods: &BTreeMap<&str, Vec<&Labels>>,
    findings: &mut Findings,
) {
    let wanted = policy.spec.selector.as_ref().map(|selector| &selector.match_labels);
    let own = pods.get(resource.namespace()).map(Vec::as_slice).unwrap_or_default();
    let is_mesh_wide = resource.namespace() == world.mesh_config.root_namespace;
    let is_used = match wanted {
        None => is_mesh_wide || !own.is_empty(),
        Some(wanted) if is_mesh_wide => {
            pods.values().flatten().any(|labels| selector::selects(wanted, labels))
        }
        Some(wanted) => own.iter().any(|labels| selector::selects(wanted, labels)),
    };
    if !is_used {
        let labels = wanted.map(selector::text).unwrap_or_default();
        findings.add(&catalogue::NO_MATCHING_WORKLOADS_FOUND, resource, &[labels.into()]);
    }
}

fn namespaces(world: &World, resource: &Resource, policy: &AuthorizationPolicy, findings: &mut Findings) {
    for (i, rule) in policy.spec.rules.iter().enumerate() {
        for (j, from) in rule.from.iter().enumerate() {
            let Some(source) = &from.source else { continue };
            let named = source.namespaces.iter().enumerate().chain(source.not_namespaces.iter().enumerate());
            for (k, name) in named {
                let exists = world
                    .objects_of_kind(Kind::Namespace)
                    .iter()
                    .any(|namespace| matches(namespace.name(), name));
                if !exists {
                    let [i, j, k] = [i, j, k].map(|index| index.to_string());
                    let path = ["spec", "rules", &i, "from", &j, "source", "namespaces", &k];
                    let parameters = ["namespace".into(), name.into()];
                    findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &path, &parameters);
                }
            }
        }
    }
}

/// Whether a namespace fits a name that may begin or end with a wildcard.
fn matches(namespace: &str, pattern: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if let Some(suffix) = pattern.strip_prefix('*') {
        return namespace.ends_with(suffix);
    }
    match pattern.strip_suffix('*') {
        Some(prefix) => namespace.starts_with(prefix),
        None => namespace.eq_ignore_ascii_case(pattern),
    }
}
