//! Objects as queries see them: a write that changes nothing of interest does not change their value.
//!
//! Most writes to a cluster change nothing that configuration is made of: managed fields, annotations of other tools, labels of
//! continuous delivery, statuses. Queries read objects through [`ObjectAt`]. After such a write it keeps the object it had, and
//! because it is an eager query, nothing above it is marked, however many proxies depend on the object.
//!
//! A change must keep the invariant: whatever some query reads of an object is compared here. A field that is read and not
//! compared would leave stale configuration behind.

use std::sync::Arc;

use canopus_api::kube::PodStatus;
use canopus_api::value::{Condition, ConditionStatus};
use canopus_api::{Kind, Object, Relevance, annotations};
use canopus_engine::{EagerCtx, EagerQuery};

use super::{Objects, Origin, discovery};

/// An object, if it exists in a namespace that discovery selectors pick, as of its last relevant change.
pub(super) struct ObjectAt;

impl EagerQuery for ObjectAt {
    const NAME: &'static str = "object";
    type Key = Origin;
    type Value = Option<Arc<Object>>;

    fn run(ctx: &EagerCtx<'_>, origin: &Origin) -> Self::Value {
        ctx.read::<Objects>(origin).filter(|_| discovery::is_discovered(ctx, origin))
    }

    fn unchanged(old: &Self::Value, new: &Self::Value) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => {
                Arc::ptr_eq(old, new) || (is_same_status(old, new) && is_same_otherwise(old, new))
            }
            (old, new) => old.is_none() && new.is_none(),
        }
    }
}

fn is_same_otherwise(old: &Object, new: &Object) -> bool {
    old.same_where_it_counts(new, &relevance(new.kind()))
}

/// Whether the status of a kind is the same of which only some fields are read; `true` for other kinds.
fn is_same_status(old: &Object, new: &Object) -> bool {
    let (Object::Pod(old), Object::Pod(new)) = (old, new) else { return true };
    // All fields are named, so that a new one does not compile until it is decided whether it is read.
    let PodStatus {
        phase,
        reason: _,
        pod_ip,
        pod_ips,
        host_ip: _,
        conditions,
        container_statuses: _,
        init_container_statuses: _,
    } = &old.status;
    *phase == new.status.phase
        && *pod_ip == new.status.pod_ip
        && *pod_ips == new.status.pod_ips
        && is_ready(conditions) == is_ready(&new.status.conditions)
}

/// Of the conditions of a pod, only readiness is read.
fn is_ready(conditions: &[Condition]) -> bool {
    conditions.iter().any(|one| &*one.r#type == "Ready" && one.status == ConditionStatus::True)
}

/// What queries read of the objects of a kind besides their specs.
fn relevance(kind: Kind) -> Relevance {
    let all = Relevance { annotation: is_annotation_read, label: |_| true, version: false, status: true };
    match kind {
        // The version is part of what proxies are sent, so that they fetch a module again.
        Kind::WasmPlugin | Kind::TrafficExtension => Relevance { version: true, ..all },
        Kind::VirtualService
        | Kind::DestinationRule
        | Kind::EnvoyFilter
        | Kind::Sidecar
        | Kind::Telemetry
        | Kind::AuthorizationPolicy
        | Kind::PeerAuthentication
        | Kind::RequestAuthentication => Relevance { label: is_of_istio, status: false, ..all },
        // Compared by `is_same_status`.
        Kind::Pod => Relevance { status: false, ..all },
        _ => all,
    }
}

fn is_annotation_read(key: &str) -> bool {
    is_of_istio(key) || key == annotations::INGRESS_CLASS.name
}

fn is_of_istio(key: &str) -> bool {
    key.contains("istio.io/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::world::{MeshSettings, object};
    use canopus_api::istio::VirtualService;
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::{Batch, Ctx, Query};

    /// The timeout and the number of annotations of a VirtualService.
    struct TimeoutAndAnnotations;

    impl Query for TimeoutAndAnnotations {
        const NAME: &'static str = "timeout_and_annotations";
        type Key = Origin;
        type Value = Option<(String, usize)>;

        fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
            let object = object::<VirtualService>(ctx, origin)?;
            Some((format!("{:?}", object.spec.http[0].timeout), object.meta.annotations.len()))
        }
    }

    fn route(metadata: &str, timeout: u8) -> Object {
        let text = format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{namespace: ns, name: r{metadata}}}, \
             spec: {{hosts: [a], http: [{{timeout: {timeout}s, route: [{{destination: {{host: a}}}}]}}]}}}}"
        );
        decode_documents(&text, &Limits::default(), Options::watch()).remove(0).unwrap().value
    }

    #[test]
    fn nothing_is_marked_above_an_object_when_nobody_reads_the_change() {
        let engine = testing::world(MeshSettings::default(), "");
        let origin = Origin::new("Kubernetes", route("", 1).key());
        let set = |object: Object| {
            let mut batch = Batch::new();
            batch.set::<Objects>(origin.clone(), object);
            engine.apply(batch)
        };
        set(route("", 1));
        let watched = engine.watch::<TimeoutAndAnnotations>(origin.clone());
        let marks = || engine.stats().marks;
        for metadata in
            [", resourceVersion: '2'", ", annotations: {argocd.argoproj.io/sync: x}", ", labels: {team: a}"]
        {
            let before = marks();
            assert!(set(route(metadata, 1)).changed.is_empty(), "{metadata}");
            assert_eq!(marks() - before, 1, "{metadata}: the object alone");
        }
        assert_eq!(set(route("", 2)).changed, [watched.id()]);
        assert_eq!(set(route(", annotations: {networking.istio.io/x: set}", 2)).changed, [watched.id()]);
    }

    #[test]
    fn every_known_annotation_is_compared() {
        for known in annotations::ALL {
            assert!(is_annotation_read(known.name) || !known.name.contains("istio"), "{}", known.name);
        }
    }

    #[test]
    fn status_of_a_pod_counts_where_it_is_read() {
        let pod = |status: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{namespace: ns, name: p}}, spec: {{}}, status: {{{status}}}}}"
            );
            let decoded =
                decode_documents(&text, &Limits::default(), Options::watch()).remove(0).unwrap().value;
            Some(Arc::new(decoded))
        };
        let first = pod("podIP: 10.0.0.1");
        for (status, is_same) in [
            (
                "podIP: 10.0.0.1, conditions: [{type: Initialized, status: 'True'}, {type: Ready, status: 'False'}]",
                true,
            ),
            ("podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True'}]", false),
            ("podIP: 10.0.0.1, containerStatuses: [{name: app, ready: true}]", true),
            ("podIP: 10.0.0.1, hostIP: 10.1.0.1", true),
            ("podIP: 10.0.0.2", false),
            ("podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]", false),
            ("podIP: 10.0.0.1, phase: Failed", false),
        ] {
            assert_eq!(<ObjectAt as EagerQuery>::unchanged(&first, &pod(status)), is_same, "{status}");
        }
    }
}
