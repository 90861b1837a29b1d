//! The order of containers, which is the order they start in.

use canopus_api::mesh_config;
use serde_json::Value as Json;

use super::pod::{self, CONTAINERS, CORE_DUMP, INIT, INIT_CONTAINERS, PROXY, VALIDATION};
use super::{InjectionError, Injector};

enum Position {
    First,
    Last,
}

/// Sorts the containers of a pod.
///
/// The proxy is the last container, so that `kubectl exec` finds the application first, unless the application waits for the
/// proxy. As a native sidecar it comes before all other init containers but the one that redirects traffic, so that those
/// are in the mesh. Otherwise traffic is redirected last, so that other init containers reach the network.
pub(super) fn sort_containers(
    pod: &mut Json,
    original: &Json,
    injector: &Injector,
) -> Result<(), InjectionError> {
    let position = if is_proxy_first(original, injector)? { Position::First } else { Position::Last };
    move_to(pod, CONTAINERS, PROXY, position);
    if pod::find(pod::containers(pod, INIT_CONTAINERS), PROXY).is_some() {
        for name in [CORE_DUMP, PROXY, VALIDATION, INIT] {
            move_to(pod, INIT_CONTAINERS, name, Position::First);
        }
    } else {
        move_to(pod, INIT_CONTAINERS, VALIDATION, Position::First);
        move_to(pod, INIT_CONTAINERS, INIT, Position::Last);
        move_to(pod, INIT_CONTAINERS, CORE_DUMP, Position::Last);
    }
    Ok(())
}

/// Whether the application waits for the proxy, as its annotation, the mesh or the values say.
fn is_proxy_first(pod: &Json, injector: &Injector) -> Result<bool, InjectionError> {
    if injector.values.hold_application {
        return Ok(true);
    }
    let holds = |config: Option<&canopus_proto::istio::mesh::v1alpha1::ProxyConfig>| {
        config.and_then(|config| config.hold_application_until_proxy_starts).is_some_and(|holds| holds.value)
    };
    let Some(annotation) = pod::annotation(pod, "proxy.istio.io/config") else {
        return Ok(holds(injector.mesh.default_config.as_ref()));
    };
    let mesh = mesh_config::apply_proxy_config(annotation, &injector.mesh)
        .map_err(|error| InjectionError::Process(format!("annotation proxy.istio.io/config: {error}")))?;
    Ok(holds(mesh.default_config.as_ref()))
}

fn move_to(pod: &mut Json, list: &str, name: &str, position: Position) {
    let Some(containers) = pod::containers_mut(pod, list) else { return };
    let Some(at) = containers.iter().position(|container| pod::name(container) == name) else { return };
    let container = containers.remove(at);
    match position {
        Position::First => containers.insert(0, container),
        Position::Last => containers.push(container),
    }
}
