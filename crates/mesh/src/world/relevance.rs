//! Objects without the changes that mean nothing.
//!
//! Most writes to a cluster change nothing that a mesh is made of: managed fields, annotations of other tools, labels of
//! continuous delivery, statuses. Facts read objects through [`ObjectAt`], whose value stays what it was after such a write, so
//! that the change ends here however many facts rest on the object.

use std::sync::Arc;

use canopus_api::{Kind, Object, Relevance, annotations};
use canopus_engine::{EagerCtx, EagerQuery};

use super::{Objects, Origin, discovery};

/// An object, if it is there and in a namespace the mesh looks at, as it was when it last changed in a way that counts.
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
                Arc::ptr_eq(old, new) || old.same_where_it_counts(new, &relevance(new.kind()))
            }
            (old, new) => old.is_none() && new.is_none(),
        }
    }
}

/// What facts read of the objects of a kind besides their specs.
fn relevance(kind: Kind) -> Relevance {
    let all = Relevance { annotation: is_annotation_read, label: |_| true, version: false, status: true };
    match kind {
        // Proxies are told the version, so that they fetch a module again.
        Kind::WasmPlugin | Kind::TrafficExtension => Relevance { version: true, ..all },
        Kind::VirtualService
        | Kind::DestinationRule
        | Kind::EnvoyFilter
        | Kind::Sidecar
        | Kind::Telemetry
        | Kind::AuthorizationPolicy
        | Kind::PeerAuthentication
        | Kind::RequestAuthentication => Relevance { label: is_of_istio, status: false, ..all },
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

    /// The timeout and annotations of a VirtualService, as a fact sees them.
    struct Seen;

    impl Query for Seen {
        const NAME: &'static str = "seen";
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
    fn facts_are_not_computed_again_for_what_nobody_reads() {
        let engine = testing::world(MeshSettings::default(), "");
        let origin = Origin::new("Kubernetes", route("", 1).key());
        let set = |object: Object| {
            let mut batch = Batch::new();
            batch.set::<Objects>(origin.clone(), object);
            engine.apply(batch)
        };
        set(route("", 1));
        let watched = engine.watch::<Seen>(origin.clone());
        let runs = || engine.evaluations().get("seen").copied().unwrap_or_default();
        let before = runs();
        for metadata in
            [", resourceVersion: '2'", ", annotations: {argocd.argoproj.io/sync: x}", ", labels: {team: a}"]
        {
            assert!(set(route(metadata, 1)).changed.is_empty(), "{metadata}");
        }
        assert_eq!(runs(), before);
        assert_eq!(set(route("", 2)).changed, [watched.id()]);
        assert_eq!(set(route(", annotations: {networking.istio.io/x: set}", 2)).changed, [watched.id()]);
    }

    #[test]
    fn every_annotation_that_the_mesh_knows_counts() {
        for known in annotations::ALL {
            assert!(is_annotation_read(known.name) || !known.name.contains("istio"), "{}", known.name);
        }
    }
}
