//! ReferenceGrants: which objects may refer to objects of other namespaces.

use canopus_api::credential::{Credential, Source};
use canopus_api::gateway_api::ReferenceGrant;
use canopus_api::{Kind, ObjectKey};
use canopus_engine::Ctx;

use super::cluster_objects::ClusterObjects;
use crate::reference::gateway_api::referenced_kind;

/// Whether a ReferenceGrant lets a Gateway or ListenerSet of a namespace use an SDS resource.
pub(crate) fn is_credential_granted(ctx: &Ctx<'_>, from: Kind, from_namespace: &str, resource: &str) -> bool {
    let Ok(Credential::Object { source, namespace, name }) = Credential::parse(resource, from_namespace)
    else {
        return false;
    };
    let kind = match source {
        Source::ConfigMap => Kind::ConfigMap,
        Source::Secret | Source::GatewaySecret => Kind::Secret,
    };
    is_granted(&ClusterObjects::new(ctx), from, from_namespace, &ObjectKey { kind, namespace, name })
}

/// Whether a ReferenceGrant lets objects of a kind and namespace refer to an object.
pub(super) fn is_granted(
    cluster: &ClusterObjects<'_>,
    from: Kind,
    from_namespace: &str,
    to: &ObjectKey,
) -> bool {
    let referable =
        [Kind::ConfigMap, Kind::Secret, Kind::Service, Kind::ExternalBackend, Kind::InferencePool];
    if !referable.contains(&to.kind) {
        return false;
    }
    let grants = cluster.objects_in::<ReferenceGrant>(&to.namespace);
    grants.iter().any(|(_, grant)| {
        let from_matches = grant.spec.from.iter().any(|entry| {
            *entry.namespace == *from_namespace && referenced_kind(&entry.group, &entry.kind) == Some(from)
        });
        let to_matches = || {
            grant.spec.to.iter().any(|entry| {
                referenced_kind(&entry.group, &entry.kind) == Some(to.kind)
                    && entry.name.as_ref().is_none_or(|name| *name == to.name)
            })
        };
        from_matches && to_matches()
    })
}
