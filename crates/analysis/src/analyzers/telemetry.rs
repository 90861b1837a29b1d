//! Telemetry: several for the same workloads, missing and deprecated providers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Telemetry;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;

use super::selector;
use super::sidecar::names;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// Access logging that names no provider where the mesh has no default one.
pub(crate) fn providers(world: &World, findings: &mut Findings) {
    let defaults = world.mesh_config.default_providers.as_ref();
    if defaults.is_some_and(|defaults| !defaults.access_logging.is_empty()) {
        return;
    }
    for (resource, telemetry) in world.each::<Telemetry>() {
        let enabled = telemetry
            .spec
            .access_logging
            .iter()
            .filter(|logging| !logging.disabled.is_some_and(|disabled| disabled.value));
        for _ in enabled.filter(|logging| logging.providers.is_empty()) {
            let parameters = [resource.name().into(), resource.namespace().into()];
            findings.add(&catalogue::INVALID_TELEMETRY_PROVIDER, resource, &parameters);
        }
    }
}

pub(crate) fn selectors(world: &World, findings: &mut Findings) {
    let mut by_pod: BTreeMap<(&str, &str), Vec<&Arc<Resource>>> = BTreeMap::new();
    for (resource, telemetry) in world.each::<Telemetry>() {
        let labels = telemetry.spec.selector.as_ref().map(|selector| &selector.match_labels);
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { continue };
        let pods = world
            .objects_of_kind(Kind::Pod)
            .iter()
            .filter(|pod| pod.namespace() == resource.namespace() && selector::selects(labels, pod.labels()));
        let mut found = false;
        for pod in pods {
            found = true;
            by_pod.entry((pod.namespace(), pod.name())).or_default().push(resource);
        }
        if !found {
            let path = ["spec", "selector", "matchLabels", selector::first_key(labels)];
            let parameters = ["selector".into(), selector::text(labels).into()];
            findings.add_at(&catalogue::REFERENCED_RESOURCE_NOT_FOUND, resource, &path, &parameters);
        }
    }
    for ((namespace, name), telemetries) in
        by_pod.into_iter().filter(|(_, telemetries)| telemetries.len() > 1)
    {
        let names = names(&telemetries);
        for telemetry in telemetries {
            let parameters = [names.clone().into(), namespace.into(), name.into()];
            let kind = &catalogue::CONFLICTING_TELEMETRY_WORKLOAD_SELECTORS;
            findings.add_at(kind, telemetry, &["metadata", "name"], &parameters);
        }
    }
}

pub(crate) fn default_selectors(world: &World, findings: &mut Findings) {
    let mut by_namespace: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    for (resource, _) in world.each::<Telemetry>().filter(|(_, telemetry)| telemetry.spec.selector.is_none())
    {
        by_namespace.entry(resource.namespace()).or_default().push(resource);
    }
    for (namespace, telemetries) in by_namespace.into_iter().filter(|(_, telemetries)| telemetries.len() > 1)
    {
        let names = names(&telemetries);
        for telemetry in telemetries {
            let parameters = [names.clone().into(), namespace.into()];
            findings.add(&catalogue::MULTIPLE_TELEMETRIES_WITHOUT_WORKLOAD_SELECTORS, telemetry, &parameters);
        }
    }
}

pub(crate) fn lightstep(world: &World, findings: &mut Findings) {
    #[expect(deprecated, reason = "this looks for users of the deprecated provider")]
    let is_lightstep = |provider: &Option<Provider>| matches!(provider, Some(Provider::Lightstep(_)));
    let providers = world.mesh_config.extension_providers.iter();
    let deprecated: BTreeSet<&str> = providers
        .filter(|provider| is_lightstep(&provider.provider))
        .map(|provider| provider.name.as_str())
        .collect();
    for (resource, telemetry) in world.each::<Telemetry>() {
        let used = telemetry.spec.tracing.iter().flat_map(|tracing| &tracing.providers);
        for provider in used.filter(|provider| deprecated.contains(provider.name.as_str())) {
            let detail = format!(
                "The Lightstep provider {} is deprecated, please migrate to OpenTelemetry provider.",
                provider.name
            );
            findings.add(&catalogue::DEPRECATED, resource, &[detail.into()]);
        }
    }
}
