//! The watched resources of an API server: which kinds, under which path, in which encoding.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use canopus_api::Kind;
use canopus_api::registry::Category;

/// Objects as they are.
const JSON: &str = "application/json";

/// Metadata alone. The schemas in definitions weigh a hundred times what is needed of them.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The kinds that are part of Kubernetes and that a control plane follows. Other kinds that it knows are followed as soon
/// as the cluster has their definition.
const BUILT_IN: [Kind; 15] = [
    Kind::Namespace,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Pod,
    Kind::Node,
    Kind::Secret,
    Kind::ConfigMap,
    Kind::Ingress,
    Kind::IngressClass,
    Kind::MutatingWebhookConfiguration,
    Kind::ValidatingWebhookConfiguration,
    Kind::ServiceAccount,
    Kind::Deployment,
    Kind::HorizontalPodAutoscaler,
    Kind::PodDisruptionBudget,
];

/// Every kind a control plane follows in the cluster its configuration is in.
pub fn all_kinds() -> BTreeSet<Kind> {
    let defined = Kind::ALL.iter().copied().filter(|kind| is_defined(*kind));
    defined.chain(BUILT_IN).collect()
}

/// The kinds a control plane follows for services alone, where configuration comes from elsewhere.
pub fn registry_kinds() -> BTreeSet<Kind> {
    let multi_cluster = |kind: &Kind| kind.info().category == Category::MultiCluster;
    let services = Kind::ALL.iter().copied().filter(multi_cluster);
    services.chain(BUILT_IN).collect()
}

/// Whether a kind exists only where the cluster has a definition of it.
pub(super) fn is_defined(kind: Kind) -> bool {
    kind.info().category != Category::Kubernetes
}

/// Whether the mesh can do without a kind, if it may not be read or does not exist.
pub(super) fn is_optional(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Ingress
            | Kind::IngressClass
            | Kind::MutatingWebhookConfiguration
            | Kind::ValidatingWebhookConfiguration
            | Kind::ServiceAccount
            | Kind::Deployment
            | Kind::HorizontalPodAutoscaler
            | Kind::PodDisruptionBudget
            | Kind::ClusterTrustBundle
    )
}

/// What is watched: some objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    group: &'static str,
    versions: &'static [&'static str],
    /// Which of the versions is asked for.
    version: usize,
    plural: &'static str,
    namespace: Option<Box<str>>,
    /// Parameters that narrow down which objects.
    selectors: String,
    metadata_only: bool,
    /// The name of the definition of the kind, if the cluster has to be taught it.
    definition: Option<String>,
}

impl Resource {
    /// The objects of a kind, all or those of one namespace.
    pub(super) fn for_kind(kind: Kind, namespace: Option<&str>) -> Self {
        let info = kind.info();
        Self {
            group: info.group,
            versions: info.versions,
            version: 0,
            plural: info.plural,
            namespace: namespace.filter(|_| info.is_namespaced()).map(Box::from),
            selectors: selectors(kind),
            metadata_only: false,
            definition: is_defined(kind).then(|| info.resource()),
        }
    }

    /// The names and annotations of the definitions of kinds.
    pub(super) fn definitions() -> Self {
        Self { metadata_only: true, ..Self::for_kind(Kind::CustomResourceDefinition, None) }
    }

    /// Narrows the resource to objects with a label.
    pub(super) fn labelled(mut self, label: &str) -> Self {
        parameter("labelSelector", label, &mut self.selectors);
        self
    }

    /// Turns to the next version; false if there is none, and the first is next again.
    pub(super) fn next_version(&mut self) -> bool {
        self.version = (self.version + 1) % self.versions.len();
        self.version != 0
    }

    /// Lists of metadata alone.
    pub(super) const METADATA_LIST: &str = METADATA_LIST;

    /// The path of the definition of the kind, if the cluster has to be taught it.
    pub(super) fn definition_path(&self) -> Option<String> {
        self.definition.as_ref().map(|name| Self::definitions().path(&[]) + "/" + name)
    }

    /// The versions of the kind that can be read.
    pub(super) fn versions(&self) -> &'static [&'static str] {
        self.versions
    }

    /// What lists are asked for as.
    pub(super) fn list_type(&self) -> &'static str {
        if self.metadata_only { METADATA_LIST } else { JSON }
    }

    /// What single objects are asked for as.
    pub(super) fn object_type(&self) -> &'static str {
        if self.metadata_only { METADATA } else { JSON }
    }

    /// The path with these parameters, values as they are.
    pub(super) fn path(&self, parameters: &[(&str, &str)]) -> String {
        let version = self.versions[self.version];
        let mut path = match self.group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if let Some(namespace) = &self.namespace {
            path.push_str("/namespaces/");
            encode(namespace, &mut path);
        }
        path.push('/');
        path.push_str(self.plural);
        path.push('?');
        path.push_str(&self.selectors);
        for (name, value) in parameters {
            parameter(name, value, &mut path);
        }
        path.pop();
        path
    }
}

fn selectors(kind: Kind) -> String {
    let mut query = String::new();
    match kind {
        // Parity: pods that failed have nothing to say to a mesh.
        Kind::Pod => parameter("fieldSelector", "status.phase!=Failed", &mut query),
        // Parity: the first two are the largest secrets of most clusters, and never a certificate. The third is the mesh's own
        // authority, which has no place among what proxies may ask for.
        Kind::Secret => parameter(
            "fieldSelector",
            "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,type!=istio.io/ca-root",
            &mut query,
        ),
        // Only what was made for a gateway is ever looked at.
        Kind::Deployment
        | Kind::ServiceAccount
        | Kind::HorizontalPodAutoscaler
        | Kind::PodDisruptionBudget => parameter("labelSelector", "gateway.istio.io/managed", &mut query),
        _ => {}
    }
    query
}

/// Adds a parameter, with the separator after it.
fn parameter(name: &str, value: &str, query: &mut String) {
    query.push_str(name);
    query.push('=');
    encode(value, query);
    query.push('&');
}

/// Adds a text as an element of a path or a value of a parameter.
pub(super) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_group_version_namespace_and_selectors() {
        let path = |kind, namespace| Resource::for_kind(kind, namespace).path(&[("limit", "500")]);
        assert_eq!(path(Kind::Service, None), "/api/v1/services?limit=500");
        assert_eq!(
            path(Kind::Pod, Some("shop")),
            "/api/v1/namespaces/shop/pods?fieldSelector=status.phase%21%3DFailed&limit=500"
        );
        assert_eq!(
            path(Kind::VirtualService, None),
            "/apis/networking.istio.io/v1/virtualservices?limit=500"
        );
        assert_eq!(path(Kind::Node, Some("shop")), "/api/v1/nodes?limit=500");
        assert_eq!(Resource::for_kind(Kind::Node, None).path(&[]), "/api/v1/nodes");
    }

    #[test]
    fn versions_come_in_turn() {
        let mut resource = Resource::for_kind(Kind::AuthorizationPolicy, None);
        assert!(resource.next_version());
        assert_eq!(resource.path(&[]), "/apis/security.istio.io/v1beta1/authorizationpolicies");
        assert!(!resource.next_version());
        assert_eq!(resource.path(&[]), "/apis/security.istio.io/v1/authorizationpolicies");
    }

    #[test]
    fn services_need_fewer_kinds_than_a_mesh() {
        let (all, registry) = (all_kinds(), registry_kinds());
        assert!(all.is_superset(&registry));
        assert!(all.contains(&Kind::VirtualService) && !registry.contains(&Kind::VirtualService));
        assert!(!all.contains(&Kind::CustomResourceDefinition) && !all.contains(&Kind::Lease));
    }
}
