//! References between Gateway API objects: parents, backends and policy targets.

use canopus_api::gateway_api::{Backend, EXPERIMENTAL_GROUP, GROUP, ParentReference};
use canopus_api::{Kind, Object, ObjectKey};

/// The group of Istio's networking kinds.
const ISTIO_NETWORKING: &str = "networking.istio.io";
/// The group of inference pools.
const INFERENCE: &str = "inference.networking.k8s.io";

/// Resolves the group and kind of a reference. Returns `None` for kinds that no supported reference may name.
pub(crate) fn referenced_kind(group: &str, kind: &str) -> Option<Kind> {
    match (group, kind) {
        (GROUP, "Gateway") => Some(Kind::KubernetesGateway),
        (GROUP, "ListenerSet") => Some(Kind::ListenerSet),
        (GROUP, "HTTPRoute") => Some(Kind::HttpRoute),
        (GROUP, "GRPCRoute") => Some(Kind::GrpcRoute),
        (GROUP, "TCPRoute") => Some(Kind::TcpRoute),
        (GROUP, "TLSRoute") => Some(Kind::TlsRoute),
        (EXPERIMENTAL_GROUP, "XBackend") => Some(Kind::ExternalBackend),
        (INFERENCE, "InferencePool") => Some(Kind::InferencePool),
        (ISTIO_NETWORKING, "ServiceEntry") => Some(Kind::ServiceEntry),
        ("", "Service") => Some(Kind::Service),
        ("", "Secret") => Some(Kind::Secret),
        ("", "ConfigMap") => Some(Kind::ConfigMap),
        _ => None,
    }
}

/// Lists the objects that a Gateway API object refers to: its parents, its backends, or the targets of a policy.
pub(crate) fn references(object: &Object) -> Vec<ObjectKey> {
    let namespace = &*object.meta().namespace;
    let mut found = match object {
        Object::HttpRoute(route) => {
            let rules = route.spec.rules.iter();
            let backends = rules.flat_map(|rule| rule.backend_refs.iter().map(|backend| backend.backend()));
            route_references(namespace, &route.spec.parent_refs, backends)
        }
        Object::GrpcRoute(route) => {
            let rules = route.spec.rules.iter();
            let backends = rules.flat_map(|rule| rule.backend_refs.iter().map(|backend| backend.backend()));
            route_references(namespace, &route.spec.parent_refs, backends)
        }
        Object::TcpRoute(route) => {
            let rules = route.spec.rules.iter();
            let backends = rules.flat_map(|rule| rule.backend_refs.iter().map(|backend| backend.backend()));
            route_references(namespace, &route.spec.parent_refs, backends)
        }
        Object::TlsRoute(route) => {
            let rules = route.spec.rules.iter();
            let backends = rules.flat_map(|rule| rule.backend_refs.iter().map(|backend| backend.backend()));
            route_references(namespace, &route.spec.parent_refs, backends)
        }
        Object::ListenerSet(set) => {
            let parent = &set.spec.parent_ref;
            let owner = parent.namespace.as_deref().unwrap_or(namespace);
            key(&parent.group, &parent.kind, owner, &parent.name).into_iter().collect()
        }
        Object::BackendTlsPolicy(policy) => {
            let targets = policy.spec.target_refs.iter();
            targets.filter_map(|to| key(&to.group, &to.kind, namespace, &to.name)).collect()
        }
        Object::BackendTrafficPolicy(policy) => {
            let targets = policy.spec.target_refs.iter();
            targets.filter_map(|to| key(&to.group, &to.kind, namespace, &to.name)).collect()
        }
        _ => Vec::new(),
    };
    found.sort();
    found.dedup();
    found
}

fn route_references<'a>(
    namespace: &str,
    parents: &[ParentReference],
    backends: impl Iterator<Item = Backend<'a>>,
) -> Vec<ObjectKey> {
    let parents = parents.iter().filter_map(|parent| parent_key(parent, namespace));
    let backends = backends.filter_map(|backend| backend_key(&backend, namespace));
    parents.chain(backends).collect()
}

/// The object that a route of `namespace` names as its parent.
pub(crate) fn parent_key(parent: &ParentReference, namespace: &str) -> Option<ObjectKey> {
    let owner = parent.namespace.as_deref().unwrap_or(namespace);
    key(&parent.group, &parent.kind, owner, &parent.name)
}

/// The object that a route of `namespace` names as its backend.
pub(crate) fn backend_key(backend: &Backend<'_>, namespace: &str) -> Option<ObjectKey> {
    key(backend.group, backend.kind, backend.namespace.unwrap_or(namespace), backend.name)
}

fn key(group: &str, kind: &str, namespace: &str, name: &str) -> Option<ObjectKey> {
    Some(ObjectKey::new(referenced_kind(group, kind)?, namespace, name))
}
