//! Whether workloads are part of the mesh.

use canopus_api::kube::{Container, PodSpec};
use canopus_api::{Kind, annotations, labels};
use canopus_base::labels::Labels;

use crate::world::{Resource, World};

pub(super) const PROXY: &str = "istio-proxy";
pub(super) const INJECTION_LABEL: &str = "istio-injection";

/// The containers and init containers of a pod.
pub(super) fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.containers.iter().chain(&pod.init_containers)
}

/// The image of the proxy's container; empty if there is none.
pub(super) fn proxy_image<'a>(mut containers: impl Iterator<Item = &'a Container>) -> &'a str {
    containers
        .find(|container| &*container.name == PROXY)
        .map(|container| &*container.image)
        .unwrap_or_default()
}

/// Whether a workload has a proxy, or will get one.
pub(super) fn has_proxy<'a>(
    world: &World,
    namespace: &str,
    labels: &Labels,
    annotations: &Labels,
    containers: impl Iterator<Item = &'a Container>,
) -> bool {
    if !proxy_image(containers).is_empty() {
        return true;
    }
    let key = &*labels::SIDECAR_INJECT;
    if let Some(given) = labels.get(key).or_else(|| annotations.get(key)) {
        return given == "true";
    }
    let namespace = world.find(Kind::Namespace, "", namespace);
    namespace.is_some_and(|namespace| namespace.labels().get(INJECTION_LABEL) == Some("enabled"))
}

/// Whether a ztunnel handles the traffic of a pod.
pub(super) fn is_ambient_pod(pod: &Resource) -> bool {
    pod.annotation(&annotations::AMBIENT_REDIRECTION) == Some("enabled")
}

/// Whether pods of a namespace are handled by ztunnels.
pub(super) fn is_ambient_namespace(namespace: &Resource) -> bool {
    let labels = namespace.labels();
    labels.get(INJECTION_LABEL) != Some("enabled")
        && labels.get(&labels::REVISION).is_none_or(str::is_empty)
        && labels.get(&labels::DATAPLANE_MODE) == Some("ambient")
}

/// Whether an object is part of an installation of Istio.
pub(super) fn is_control_plane(resource: &Resource) -> bool {
    let labels = resource.labels();
    labels.contains_key("istio") || labels.get("release") == Some("istio")
}
