//! EnvoyFilters: operations that depend on other filters, and operations that have no effect.

use std::collections::BTreeSet;

use canopus_api::istio::EnvoyFilter;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::envoy_config_object_match::ObjectTypes;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::{ApplyTo, EnvoyConfigObjectPatch};

use crate::catalogue;
use crate::findings::Findings;
use crate::message::MessageType;
use crate::world::World;

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    // Names that an earlier patch changes for some versions of proxies only.
    let mut versioned = BTreeSet::new();
    for (resource, filter) in world.each::<EnvoyFilter>() {
        for (index, patch) in filter.spec.config_patches.iter().enumerate() {
            // Parity: nothing behind a patch without content is looked at.
            if patch.patch.is_none() {
                break;
            }
            let name = patched_name(patch);
            let is_relative = || {
                (filter.spec.priority == 0).then_some(if versioned.contains(&name) {
                    &catalogue::ENVOY_FILTER_USES_RELATIVE_OPERATION_WITH_PROXY_VERSION
                } else {
                    &catalogue::ENVOY_FILTER_USES_RELATIVE_OPERATION
                })
            };
            if let Some(kind) = problem(patch, is_relative) {
                let index = index.to_string();
                let path = ["spec", "configPatches", &index, "patch", "value"];
                findings.add_at(kind, resource, &path, &[]);
            }
            let proxy = patch.r#match.as_ref().and_then(|matching| matching.proxy.as_ref());
            if proxy.is_some_and(|proxy| !proxy.proxy_version.is_empty()) {
                versioned.insert(name);
            }
        }
    }
}

/// What is wrong with a patch; `relative` is the message for an operation that depends on another filter.
fn problem(
    patch: &EnvoyConfigObjectPatch,
    relative: impl Fn() -> Option<&'static MessageType>,
) -> Option<&'static MessageType> {
    let apply_to = patch.apply_to();
    let is_route = matches!(apply_to, ApplyTo::RouteConfiguration | ApplyTo::HttpRoute);
    let is_replaceable =
        matches!(apply_to, ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::VirtualHost);
    match patch.patch.as_ref()?.operation() {
        Operation::Add if is_route => Some(&catalogue::ENVOY_FILTER_USES_ADD_OPERATION_INCORRECTLY),
        Operation::Remove if is_route => Some(&catalogue::ENVOY_FILTER_USES_REMOVE_OPERATION_INCORRECTLY),
        Operation::Replace if !is_replaceable => {
            Some(&catalogue::ENVOY_FILTER_USES_REPLACE_OPERATION_INCORRECTLY)
        }
        Operation::Remove | Operation::Replace | Operation::InsertBefore | Operation::InsertAfter => {
            relative()
        }
        _ => None,
    }
}

/// The name of what a patch changes: that of its value, else of the filter it looks for.
fn patched_name(patch: &EnvoyConfigObjectPatch) -> String {
    let Some(value) = patch.patch.as_ref().and_then(|patch| patch.value.as_ref()) else {
        return String::new();
    };
    if value.fields.is_empty() {
        return String::new();
    }
    if let Some(name) = value.fields.get("name") {
        return format!("{name:?}");
    }
    match patch.r#match.as_ref().and_then(|matching| matching.object_types.as_ref()) {
        Some(ObjectTypes::Listener(listener)) => {
            let filter = listener.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref());
            filter.map(|filter| filter.name.clone()).unwrap_or_default()
        }
        _ => String::new(),
    }
}
