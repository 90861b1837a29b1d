//! What users set of injected containers themselves, kept across injections.

use std::borrow::Cow;

use canopus_api::builtin;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::InboundInterceptionMode;
use serde_json::{Map, Value as Json, json};

use super::pod::{self, CONTAINERS, INIT, INIT_CONTAINERS, PROXY, VALIDATION};
use super::{InjectionError, prometheus, status};

const OVERRIDES: &str = "proxy.istio.io/overrides";

/// The image of a container that takes its image from the template.
const AUTO_IMAGE: &str = "auto";

const LISTS: [&str; 2] = [CONTAINERS, INIT_CONTAINERS];

/// The pod without what an earlier injection added, and with what the user had set of that.
pub(super) fn strip<'a>(pod: &'a Json, status_port: i32) -> Result<Cow<'a, Json>, InjectionError> {
    let saved = saved(pod)?;
    let is_injected = pod::annotation(pod, status::STATUS)
        .is_some_and(|text| serde_json::from_str::<Map<String, Json>>(text).is_ok());
    if !is_injected && saved.is_none() {
        return Ok(Cow::Borrowed(pod));
    }
    let mut stripped = pod.clone();
    if is_injected {
        for list in LISTS {
            let names = status::injected_names(pod, list);
            if let Some(containers) = pod::containers_mut(&mut stripped, list) {
                containers.retain(|container| !names.iter().any(|name| name == pod::name(container)));
            }
        }
        if prometheus::port(&stripped).is_some_and(|port| port == status_port.to_string()) {
            prometheus::clear(&mut stripped);
        }
        pod::metadata_mut(&mut stripped, "annotations").remove(status::STATUS);
    }
    for list in LISTS {
        for container in saved.iter().flat_map(|saved| overrides(saved, list)) {
            if pod::find(pod::containers(&stripped, list), pod::name(container)).is_none() {
                let spec = pod::object_mut(&mut stripped, "spec");
                match spec.entry(list).or_insert_with(|| json!([])) {
                    Json::Array(containers) => containers.push(container.clone()),
                    other => *other = json!([container]),
                }
            }
        }
    }
    Ok(Cow::Owned(stripped))
}

/// The containers that the user set, as an earlier injection saved them.
fn saved(pod: &Json) -> Result<Option<Json>, InjectionError> {
    let Some(text) = pod::annotation(pod, OVERRIDES) else { return Ok(None) };
    let refused = |reason: String| InjectionError::Overrides { annotation: OVERRIDES, reason };
    let mut saved: Json = serde_json::from_str(text).map_err(|error| refused(error.to_string()))?;
    for list in LISTS {
        for container in saved.get_mut(list).and_then(Json::as_array_mut).into_iter().flatten() {
            builtin::container().normalize(container).map_err(|error| refused(format!("{list}: {error}")))?;
        }
    }
    Ok(Some(saved))
}

fn overrides<'a>(saved: &'a Json, list: &str) -> &'a [Json] {
    saved.get(list).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// Merges what the user set of injected containers over what templates made of them, and saves it.
///
/// A container that an earlier injection added is nobody's setting: the template counts, and what was saved then.
pub(super) fn reapply(
    merged: &mut Json,
    original: &Json,
    template: &Json,
    proxy_config: &ProxyConfig,
) -> Result<(), InjectionError> {
    let saved = saved(original)?;
    let is_injected = pod::annotation(original, status::STATUS).is_some();
    let mut applied: [Vec<Json>; 2] = Default::default();
    for (list, applied) in LISTS.into_iter().zip(&mut applied) {
        let injected = status::injected_names(original, list);
        for container in pod::containers(template, list) {
            let name = pod::name(container);
            let known = saved.as_ref().and_then(|saved| pod::find(overrides(saved, list), name));
            let is_own = !injected.iter().any(|known| known == name);
            let set = known.or_else(|| match list {
                _ if !is_own => None,
                CONTAINERS => pod::find(pod::containers(original, CONTAINERS), name),
                // A native sidecar is an init container that users write among the containers.
                _ => pod::find_in_pod(original, name),
            });
            let Some(mut overlay) = set.cloned() else { continue };
            if let Json::Object(overlay) = &mut overlay
                && overlay.get("image").and_then(Json::as_str) == Some(AUTO_IMAGE)
            {
                overlay.remove("image");
            }
            builtin::pod()
                .merge(merged, json!({"spec": {list: [overlay]}}))
                .map_err(|error| InjectionError::Container(error.to_string()))?;
            applied.push(overlay);
        }
    }
    if !is_injected && applied.iter().any(|containers| !containers.is_empty()) {
        pod::set_annotation(merged, OVERRIDES, write(&applied));
    }
    adopt_user(merged, original, proxy_config);
    Ok(())
}

fn write(applied: &[Vec<Json>; 2]) -> String {
    let mut lists = Vec::new();
    for (list, containers) in LISTS.into_iter().zip(applied).filter(|(_, containers)| !containers.is_empty())
    {
        let texts = containers.iter().map(|container| {
            let mut text = String::new();
            builtin::container().write_json(container, &mut text);
            text
        });
        lists.push(format!("\"{list}\":[{}]", texts.collect::<Vec<_>>().join(",")));
    }
    format!("{{{}}}", lists.join(","))
}

/// Exempts the user that the proxy runs as from capture, where the pod sets it.
fn adopt_user(merged: &mut Json, original: &Json, proxy_config: &ProxyConfig) {
    let Some(context) = pod::find_in_pod(original, PROXY).and_then(|proxy| proxy.get("securityContext"))
    else {
        return;
    };
    let (user, group) = (context.get("runAsUser").cloned(), context.get("runAsGroup").cloned());
    if user.is_none() && group.is_none() {
        return;
    }
    let Some(init) = [INIT, VALIDATION]
        .into_iter()
        .find(|name| pod::find(pod::containers(merged, INIT_CONTAINERS), name).is_some())
    else {
        return;
    };
    let is_transparent = proxy_config.interception_mode() == InboundInterceptionMode::Tproxy
        || pod::annotation(merged, "sidecar.istio.io/interceptionMode") == Some("TPROXY");
    if is_transparent
        && user.is_some()
        && let Some(proxy) = pod::find_in_pod_mut(merged, PROXY)
    {
        // Only root may keep the source address.
        pod::object_mut(proxy, "securityContext").insert("runAsUser".to_owned(), json!(0));
    }
    let containers = pod::containers_mut(merged, INIT_CONTAINERS).into_iter().flatten();
    let Some(container) = containers.into_iter().find(|container| pod::name(container) == init) else {
        return;
    };
    if !is_transparent && init == VALIDATION {
        let context = pod::object_mut(container, "securityContext");
        for (field, value) in [("runAsUser", &user), ("runAsGroup", &group)] {
            if let Some(value) = value {
                context.insert(field.to_owned(), value.clone());
            }
        }
    }
    let Some(user) = user.as_ref().and_then(Json::as_i64).filter(|user| *user != 0) else { return };
    let Some(arguments) = container.get_mut("args").and_then(Json::as_array_mut) else { return };
    if let Some(at) = arguments.iter().position(|argument| argument == "-u")
        && let Some(value) = arguments.get_mut(at + 1)
    {
        *value = Json::String(user.to_string());
    }
}
