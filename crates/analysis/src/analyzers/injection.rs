//! Injection: namespaces and pods without proxies, proxies of another version, templates that are never filled.

use std::collections::BTreeMap;

use canopus_api::istio::ProxyConfig;
use canopus_api::kube::{ConfigMap, Deployment, MutatingWebhookConfiguration, Pod, PodSpec};
use canopus_api::value::LabelSelector;
use canopus_api::{Kind, annotations, labels, mesh_config};
use canopus_base::labels::Labels;
use serde_json::Value;

use super::in_mesh::{self, INJECTION_LABEL, PROXY};
use super::selector;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const INJECTOR: &str = "istio-sidecar-injector";
const SYSTEM_NAMESPACE: &str = "istio-system";

/// The name of the ConfigMap with a revision's templates.
fn injector_name(revision: &str) -> String {
    match revision {
        "" | "default" => INJECTOR.to_owned(),
        revision => format!("{INJECTOR}-{revision}"),
    }
}

/// The values of a ConfigMap with templates.
fn injector_values(config: &ConfigMap) -> Option<Value> {
    serde_json::from_str(config.spec.get("values")?).ok()
}

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    let mut injected = Vec::new();
    let namespaces = world.objects_of_kind(Kind::Namespace).iter();
    for namespace in namespaces.filter(|namespace| namespace.name() != SYSTEM_NAMESPACE) {
        if is_injected(world, namespace, findings) {
            injected.push(namespace.name());
        }
    }
    for (resource, pod) in world.each::<Pod>() {
        let is_wanted = injected.contains(&resource.namespace()) && !refuses_injection(resource);
        let has_proxy = !in_mesh::proxy_image(in_mesh::containers(&pod.spec)).is_empty();
        if is_wanted && !pod.spec.host_network && !has_proxy {
            findings.add(&catalogue::POD_MISSING_PROXY, resource, &[(&resource.full_name()).into()]);
        }
    }
}

/// Whether pods of a namespace get proxies by its label; reports what is wrong with its labels.
fn is_injected(world: &World, namespace: &Resource, findings: &mut Findings) -> bool {
    let labels = namespace.labels();
    let injection = labels.get(INJECTION_LABEL);
    let revision = labels.get(&labels::REVISION);
    let mut given: Vec<String> = injection.iter().map(|value| format!("{INJECTION_LABEL}={value}")).collect();
    if injection.is_none_or(|value| value == "enabled") {
        for key in [labels::REVISION.name, labels::DATAPLANE_MODE.name] {
            given.extend(labels.get(key).map(|value| format!("{key}={value}")));
        }
    }
    if given.len() > 1 {
        findings.add(&catalogue::NAMESPACE_MULTIPLE_INJECTION_LABELS, namespace, &[given.into()]);
    }
    if labels.get(&labels::DATAPLANE_MODE) == Some("ambient") {
        return false;
    }
    if injection.is_none_or(str::is_empty) && revision.is_none() {
        if injects_by_default(world) {
            findings.add(&catalogue::NAMESPACE_INJECTION_ENABLED_BY_DEFAULT, namespace, &[]);
        } else {
            let name = namespace.name();
            let kind = &catalogue::NAMESPACE_NOT_INJECTED;
            findings.add_at(kind, namespace, &["metadata", "name"], &[name.into(), name.into()]);
        }
        return false;
    }
    injection == Some("enabled")
}

/// Whether namespaces that say nothing are injected.
fn injects_by_default(world: &World) -> bool {
    let config = world.each::<ConfigMap>().find(|(resource, _)| resource.name() == injector_name(""));
    let values = config.and_then(|(_, config)| injector_values(config)).unwrap_or_default();
    values["sidecarInjectorWebhook"]["enableNamespacesByDefault"] == Value::Bool(true)
}

fn refuses_injection(pod: &Resource) -> bool {
    let key = &*labels::SIDECAR_INJECT;
    let given = pod.labels().get(key).or_else(|| pod.annotation(key));
    given.is_some_and(|given| given.eq_ignore_ascii_case("false"))
}

/// Pods whose proxies are of another image than injection would give them now.
pub(crate) fn images(world: &World, findings: &mut Findings) {
    let mut configured: BTreeMap<&str, String> = BTreeMap::new();
    for (resource, config) in world.each::<ConfigMap>() {
        if resource.name().starts_with(INJECTOR) {
            configured.insert(resource.name(), configured_image(config));
        }
    }
    let proxies = ImageTypes::collect(world);
    for namespace in world.objects_of_kind(Kind::Namespace) {
        let labels = namespace.labels();
        let revision = match labels.get(&labels::REVISION) {
            Some(revision) => revision,
            None if labels.get(INJECTION_LABEL) == Some("enabled") => "default",
            None => continue,
        };
        let Some(image) = configured.get(injector_name(revision).as_str()) else { continue };
        let mut outdated = Vec::new();
        let pods = world.each::<Pod>().filter(|(pod, _)| pod.namespace() == namespace.name());
        for (resource, pod) in pods {
            if resource.annotation(&annotations::PROXY_IMAGE).is_some_and(|image| !image.is_empty()) {
                continue;
            }
            let variant = format!("{image}-{}", proxies.image_type(world, resource));
            let proxies = in_mesh::containers(&pod.spec).filter(|container| &*container.name == PROXY);
            for _ in proxies.filter(|proxy| *proxy.image != **image && *proxy.image != *variant) {
                outdated.push(resource.name().to_owned());
            }
        }
        if !outdated.is_empty() {
            outdated.sort();
            let kind = &catalogue::PODS_ISTIO_PROXY_IMAGE_MISMATCH_IN_NAMESPACE;
            findings.add(kind, namespace, &[outdated.into()]);
        }
    }
}

fn configured_image(config: &ConfigMap) -> String {
    let Some(values) = injector_values(config) else { return String::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let global = &values["global"];
    let image = text(&global["proxy"]["image"]);
    if image.contains('/') {
        return image;
    }
    format!("{}/{image}:{}", text(&global["hub"]), text(&global["tag"]))
}

/// Which variant of the proxy's image a pod gets.
struct ImageTypes<'a> {
    root: Option<&'a str>,
    by_namespace: BTreeMap<&'a str, &'a str>,
    by_workload: Vec<(&'a Resource, &'a BTreeMap<String, String>, &'a str)>,
}

impl<'a> ImageTypes<'a> {
    fn collect(world: &'a World) -> Self {
        let mut types = Self { root: None, by_namespace: BTreeMap::new(), by_workload: Vec::new() };
        let root = match world.mesh_config.root_namespace.as_str() {
            "" => SYSTEM_NAMESPACE,
            root => root,
        };
        for (resource, config) in world.each::<ProxyConfig>() {
            let image = config.spec.image.as_ref().map(|image| image.image_type.as_str()).unwrap_or_default();
            match &config.spec.selector {
                _ if resource.namespace() == root => types.root = Some(image),
                None => {
                    types.by_namespace.insert(resource.namespace(), image);
                }
                Some(selector) => types.by_workload.push((resource, &selector.match_labels, image)),
            }
        }
        types
    }

    fn image_type(&self, world: &World, pod: &Resource) -> String {
        let image_type = |config: &canopus_proto::istio::mesh::v1alpha1::ProxyConfig| {
            config.image.as_ref().map(|image| image.image_type.clone()).unwrap_or_default()
        };
        let mesh = world.mesh_config.default_config.as_ref().map(image_type).unwrap_or_default();
        let of_workload = self.by_workload.iter().filter(|(config, labels, _)| {
            config.namespace() == pod.namespace() && selector::selects(labels, pod.labels())
        });
        let own = pod.annotation(&annotations::PROXY_CONFIG).and_then(|text| {
            let merged = mesh_config::merge_proxy_config(text, &Default::default()).ok()?;
            Some(image_type(&merged.value))
        });
        // The most specific that says something counts.
        let mut named = std::iter::once(mesh.as_str())
            .chain(self.root)
            .chain(self.by_namespace.get(pod.namespace()).copied())
            .chain(of_workload.map(|(_, _, image)| *image))
            .chain(own.as_deref());
        match named.rfind(|image| !image.is_empty()) {
            None | Some("default") => String::new(),
            Some(image) => image.to_owned(),
        }
    }
}

/// Pods and Deployments that leave the proxy's image to injection and are not injected.
pub(crate) fn automatic_images(world: &World, findings: &mut Findings) {
    for (resource, _) in world.each::<Pod>().filter(|(_, pod)| has_automatic_image(&pod.spec)) {
        let parameters = ["Pod".into(), resource.name().into()];
        findings.add(&catalogue::IMAGE_AUTO_WITHOUT_INJECTION_ERROR, resource, &parameters);
    }
    let none = Labels::new();
    for (resource, deployment) in world.each::<Deployment>() {
        let template = &deployment.spec.template;
        if !has_automatic_image(&template.spec) {
            continue;
        }
        let namespace = if resource.namespace().is_empty() { "default" } else { resource.namespace() };
        let namespace = world.find(Kind::Namespace, "", namespace);
        let namespace = namespace.map_or(&none, |namespace| namespace.labels());
        if !is_sent_to_webhook(world, namespace, &template.metadata.labels) {
            let parameters = ["Deployment".into(), resource.name().into()];
            findings.add(&catalogue::IMAGE_AUTO_WITHOUT_INJECTION_WARNING, resource, &parameters);
        }
    }
}

fn has_automatic_image(pod: &PodSpec) -> bool {
    pod.containers.iter().any(|container| &*container.name == PROXY && &*container.image == "auto")
}

fn is_sent_to_webhook(world: &World, namespace: &Labels, pod: &Labels) -> bool {
    let webhooks = world.each::<MutatingWebhookConfiguration>().flat_map(|(_, config)| &config.spec.webhooks);
    webhooks.filter(|webhook| webhook.name.ends_with("istio.io")).any(|webhook| {
        selector_matches(webhook.namespace_selector.as_ref(), namespace)
            && selector_matches(webhook.object_selector.as_ref(), pod)
    })
}

/// Whether a selector, if there is one, selects the labels. One that makes no sense selects nothing.
pub(super) fn selector_matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_none_or(|selector| selector.compile().is_ok_and(|selector| selector.matches(labels)))
}
