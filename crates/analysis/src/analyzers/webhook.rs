//! Injection webhooks: overlapping ones, services that do not exist, control planes outside the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::kube::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, Webhook};
use canopus_api::value::LabelSelector;
use canopus_api::{Kind, labels};
use canopus_base::labels::Labels;

use super::host::full_name;
use super::injection::selector_matches;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

/// Webhooks of one configuration.
type Configured<'a> = (&'a Arc<Resource>, &'a [Webhook]);

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    let mut configured: Vec<Configured<'_>> = Vec::new();
    let mut revisions: BTreeSet<&str> = BTreeSet::new();
    for (resource, config) in world.each::<MutatingWebhookConfiguration>() {
        let own = revisions_of(resource, &config.spec.webhooks);
        let is_istio = config.spec.webhooks.iter().any(|webhook| webhook.name.ends_with("istio.io"));
        if !own.is_empty() || is_istio {
            configured.push((resource, &config.spec.webhooks));
            revisions.extend(own);
        }
    }
    overlaps(&configured, &revisions, findings);
    missing_services(world, &configured, findings);
}

/// All revisions that a configuration names.
fn revisions_of<'a>(resource: &'a Resource, webhooks: &'a [Webhook]) -> BTreeSet<&'a str> {
    let key = &*labels::REVISION;
    let selectors =
        webhooks.iter().flat_map(|webhook| [&webhook.namespace_selector, &webhook.object_selector]);
    let selectors: Vec<&LabelSelector> = selectors.flatten().collect();
    let equal = selectors.iter().filter_map(|selector| selector.match_labels.get(key));
    let expressions = selectors.iter().flat_map(|selector| &selector.match_expressions);
    let listed = expressions.filter(|expression| &*expression.key == key);
    let listed = listed.flat_map(|expression| expression.values.iter().map(|value| &**value));
    resource.labels().get(key).into_iter().chain(equal).chain(listed).collect()
}

/// Combinations of labels to try: each base alone and with each revision.
fn combinations(bases: [&[(&str, &str)]; 3], revisions: &BTreeSet<&str>) -> Vec<Labels> {
    let base = |base: &[(&str, &str)]| base.iter().copied().collect::<Labels>();
    let mut all: Vec<Labels> = bases.iter().map(|labels| base(labels)).collect();
    for revision in revisions {
        for labels in bases {
            let mut labels = base(labels);
            labels.insert(labels::REVISION.name, *revision);
            all.push(labels);
        }
    }
    all
}

/// Webhooks that would inject the same pod.
fn overlaps(configured: &[Configured<'_>], revisions: &BTreeSet<&str>, findings: &mut Findings) {
    let namespaces =
        combinations([&[], &[("istio-injection", "enabled")], &[("istio-injection", "disabled")]], revisions);
    let inject = labels::SIDECAR_INJECT.name;
    let pods = combinations([&[], &[(inject, "true")], &[(inject, "false")]], revisions);
    for namespace in &namespaces {
        for pod in &pods {
            let mut matching: BTreeMap<String, &Arc<Resource>> = BTreeMap::new();
            for (resource, webhooks) in configured {
                let selected = webhooks.iter().filter(|webhook| {
                    selector_matches(webhook.namespace_selector.as_ref(), namespace)
                        && selector_matches(webhook.object_selector.as_ref(), pod)
                });
                matching.extend(
                    selected.map(|webhook| (format!("{}/{}", resource.full_name(), webhook.name), *resource)),
                );
            }
            if matching.len() < 2 {
                continue;
            }
            for (name, resource) in &matching {
                let others: Vec<&str> =
                    matching.keys().filter(|other| *other != name).map(String::as_str).collect();
                let error = format!(
                    "Webhook overlaps with others: [{}]. This may cause injection to occur twice.",
                    others.join(" ")
                );
                findings.add(&catalogue::INVALID_WEBHOOK, resource, &[error.into()]);
            }
        }
    }
}

fn missing_services(world: &World, configured: &[Configured<'_>], findings: &mut Findings) {
    for (resource, webhooks) in configured {
        for service in webhooks.iter().filter_map(|webhook| webhook.client_config.service.as_ref()) {
            if world.find(Kind::Service, &service.namespace, &service.name).is_none() {
                let error = format!(
                    "Injector refers to a control plane service that does not exist: {}.",
                    full_name(&service.namespace, &service.name)
                );
                findings.add(&catalogue::INVALID_WEBHOOK, resource, &[error.into()]);
            }
        }
    }
}

/// Webhooks at addresses outside the cluster that cannot be right, or should be names.
pub(crate) fn external_control_plane(world: &World, findings: &mut Findings) {
    for (resource, config) in world.each::<ValidatingWebhookConfiguration>() {
        if resource.name() == "istiod-default-validator" || resource.name().starts_with("istio-validator") {
            config.spec.webhooks.iter().for_each(|webhook| check_address(resource, webhook, findings));
        }
    }
    for (resource, config) in world.each::<MutatingWebhookConfiguration>() {
        if resource.name().starts_with("istio-sidecar-injector") {
            config.spec.webhooks.iter().for_each(|webhook| check_address(resource, webhook, findings));
        }
    }
}

fn check_address(resource: &Resource, webhook: &Webhook, findings: &mut Findings) {
    let name = &webhook.name;
    match &webhook.client_config.url {
        Some(url) => match host_of(url) {
            None => {
                let parameters = [url.into(), name.into(), "was provided in an invalid format".into()];
                findings.add(&catalogue::INVALID_EXTERNAL_CONTROL_PLANE_CONFIG, resource, &parameters);
            }
            Some(host) if host.parse::<IpAddr>().is_ok() => {
                let kind = &catalogue::EXTERNAL_CONTROL_PLANE_ADDRESS_IS_NOT_A_HOSTNAME;
                findings.add(kind, resource, &[url.into(), name.into()]);
            }
            Some(_) => {}
        },
        None if webhook.client_config.service.is_none() => {
            let parameters = ["".into(), name.into(), "is blank".into()];
            findings.add(&catalogue::INVALID_EXTERNAL_CONTROL_PLANE_CONFIG, resource, &parameters);
        }
        None => {}
    }
}

/// The host of a URL; `None` if it is none.
fn host_of(url: &str) -> Option<&str> {
    if url.chars().any(|c| c.is_control() || c == ' ') {
        return None;
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some(bracketed) = authority.strip_prefix('[') {
        return bracketed.split(']').next();
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(host)
}
