//! Several clusters: networks of unknown registries, and services that differ between clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::kube::{Secret, Service, ServiceSpec};
use canopus_proto::istio::mesh::v1alpha1::network::network_endpoints::Ne;

use crate::catalogue;
use crate::findings::Findings;
use crate::world::{HOME_CLUSTER, Origin, Resource, World};

/// Registries that exist without a remote cluster.
const REGISTRIES: [&str; 3] = ["Mock", "Kubernetes", "External"];

const REMOTE_SECRET_LABEL: &str = "istio/multiCluster";

pub(crate) fn networks(world: &World, findings: &mut Findings) {
    let secrets =
        world.each::<Secret>().filter(|(secret, _)| secret.labels().get(REMOTE_SECRET_LABEL) == Some("true"));
    let remote = secrets.flat_map(|(_, secret)| secret.spec.data.keys().map(|key| &**key));
    let known: BTreeSet<&str> = REGISTRIES.into_iter().chain(remote).collect();
    for (name, network) in &world.mesh_networks.networks {
        for endpoints in &network.endpoints {
            if let Some(Ne::FromRegistry(registry)) = &endpoints.ne
                && !known.contains(registry.as_str())
            {
                let origin = settings_origin(world, "MeshNetworks", "meshnetworks");
                let parameters = [registry.into(), name.into()];
                findings.add_about(&catalogue::UNKNOWN_MESH_NETWORKS_SERVICE_REGISTRY, origin, &parameters);
            }
        }
    }
}

/// What messages about mesh-wide settings are about.
pub(super) fn settings_origin(world: &World, kind: &'static str, name: &str) -> Arc<Origin> {
    Arc::new(Origin {
        kind,
        namespace: world.system_namespace.clone(),
        name: name.into(),
        cluster: HOME_CLUSTER.into(),
        reference: None,
        suppressed_codes: Box::default(),
    })
}

pub(crate) fn services(world: &World, findings: &mut Findings) {
    let mut by_name: BTreeMap<(&str, &str), Vec<(&Resource, &ServiceSpec)>> = BTreeMap::new();
    for (resource, service) in world.each::<Service>() {
        by_name.entry((resource.namespace(), resource.name())).or_default().push((resource, &service.spec));
    }
    for ((namespace, name), services) in by_name {
        let [(first, spec), rest @ ..] = services.as_slice() else { continue };
        let mut clusters = BTreeSet::new();
        let mut reasons = BTreeSet::new();
        for (other, other_spec) in rest {
            if spec.is_headless() != other_spec.is_headless() {
                clusters.extend(services.iter().map(|(service, _)| service.origin.cluster.to_string()));
                reasons.insert("service has mixed mode like headless and clusterIP");
            }
            if spec.r#type != other_spec.r#type {
                clusters.insert(other.origin.cluster.to_string());
                reasons.insert("service type is inconsistent");
            }
            if !has_same_ports(spec, other_spec) {
                clusters.insert(other.origin.cluster.to_string());
                reasons.insert("service ports are inconsistent");
            }
        }
        if reasons.is_empty() {
            continue;
        }
        clusters.insert(first.origin.cluster.to_string());
        let reasons: Vec<&str> = reasons.into_iter().collect();
        let clusters: Vec<String> = clusters.into_iter().collect();
        let parameters = [name.into(), namespace.into(), clusters.into(), reasons.join("; ").into()];
        findings.add(&catalogue::MULTI_CLUSTER_INCONSISTENT_SERVICE, first, &parameters);
    }
}

fn has_same_ports(a: &ServiceSpec, b: &ServiceSpec) -> bool {
    let sorted = |spec: &ServiceSpec| {
        let mut ports = spec.ports.clone();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        ports
    };
    sorted(a) == sorted(b)
}
