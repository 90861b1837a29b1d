//! Patches of network filters, and of HTTP filters inside connection managers.

use canopus_proto::Any;
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter::ConfigType};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::listener_match::FilterMatch;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;

use super::compile::Patch;
use super::filter_chain::has_chain;
use super::listener::{Patching, is_meant};
use super::{list, merge};

const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Patches the filters of a chain.
pub(super) fn patch(patching: &mut Patching<'_>, listener: &Listener, chain: &mut FilterChain) {
    let mut filters = std::mem::take(&mut chain.filters);
    let patches = patching.patches;
    for patch in patches.network_filters.iter().filter(|patch| patch.operation != Operation::Merge) {
        let matches = is_meant(patch, patching.side, listener) && has_chain(patch, listener, chain);
        let wanted = filter_match(patch);
        let picks = |filter: &Filter| wanted.is_some_and(|wanted| wanted.name == filter.name);
        let picks = wanted.map(|_| &picks as &dyn Fn(&Filter) -> bool);
        let applied = matches && list::edit(&mut filters, patch.operation, patch.value.as_ref(), picks);
        patching.tally.note(&patch.id, applied);
    }
    for filter in &mut filters {
        merge_into(patching, listener, chain, filter);
        if filter.name == CONNECTION_MANAGER && !patches.http_filters.is_empty() {
            patch_http(patching, listener, chain, filter);
        }
    }
    chain.filters = filters;
}

fn merge_into(patching: &mut Patching<'_>, listener: &Listener, chain: &FilterChain, filter: &mut Filter) {
    for patch in &patching.patches.network_filters {
        if patch.operation != Operation::Merge {
            continue;
        }
        let matches = is_meant(patch, patching.side, listener)
            && has_chain(patch, listener, chain)
            && has_filter(patch, filter);
        let typed = matches!(filter.config_type, Some(ConfigType::TypedConfig(_)));
        let value = patch.value.as_ref().filter(|_| matches && typed);
        patching.tally.note(&patch.id, value.is_some());
        let Some(value) = value else { continue };
        if !value.name.is_empty() {
            filter.name.clone_from(&value.name);
        }
        if let (Some(ConfigType::TypedConfig(old)), Some(ConfigType::TypedConfig(new))) =
            (&mut filter.config_type, &value.config_type)
            && let Some(merged) = merge::packed(old, new)
        {
            *old = merged;
        }
    }
}

/// Patches the HTTP filters of a connection manager.
fn patch_http(patching: &mut Patching<'_>, listener: &Listener, chain: &FilterChain, filter: &mut Filter) {
    let Some(ConfigType::TypedConfig(config)) = &filter.config_type else { return };
    let Ok(mut manager) = config.unpack::<HttpConnectionManager>() else { return };
    let filters = &mut manager.http_filters;
    let meant: Vec<_> = patching
        .patches
        .http_filters
        .iter()
        .filter(|patch| {
            is_meant(patch, patching.side, listener)
                && has_chain(patch, listener, chain)
                && has_filter(patch, filter)
        })
        .collect();
    for patch in &patching.patches.http_filters {
        if !meant.iter().any(|meant| meant.id == patch.id) {
            patching.tally.note(&patch.id, false);
        }
    }
    for patch in meant.iter().filter(|patch| patch.operation != Operation::Merge) {
        let wanted = http_filter_name(patch);
        let picks = |filter: &HttpFilter| wanted == Some(filter.name.as_str());
        let picks = wanted.map(|_| &picks as &dyn Fn(&HttpFilter) -> bool);
        let applied = list::edit(filters, patch.operation, patch.value.as_ref(), picks);
        patching.tally.note(&patch.id, applied);
    }
    for http_filter in filters {
        for patch in meant.iter().filter(|patch| patch.operation == Operation::Merge) {
            let applied = merge_http(patch, http_filter);
            patching.tally.note(&patch.id, applied);
        }
    }
    filter.config_type = Some(ConfigType::TypedConfig(Any::pack(&manager)));
}

fn merge_http(patch: &Patch<HttpFilter>, filter: &mut HttpFilter) -> bool {
    let is_named = http_filter_name(patch).is_none_or(|name| name == filter.name);
    let (true, Some(value), Some(HttpConfigType::TypedConfig(config))) =
        (is_named, &patch.value, &mut filter.config_type)
    else {
        return false;
    };
    if let Some(HttpConfigType::TypedConfig(new)) = &value.config_type
        && let Some(merged) = merge::packed(config, new)
    {
        *config = merged;
    }
    if !value.name.is_empty() {
        filter.name.clone_from(&value.name);
    }
    true
}

fn filter_match<M>(patch: &Patch<M>) -> Option<&FilterMatch> {
    patch.listener()?.filter_chain.as_ref()?.filter.as_ref()
}

fn has_filter<M>(patch: &Patch<M>, filter: &Filter) -> bool {
    filter_match(patch).is_none_or(|wanted| wanted.name == filter.name)
}

fn http_filter_name(patch: &Patch<HttpFilter>) -> Option<&str> {
    Some(filter_match(patch)?.sub_filter.as_ref()?.name.as_str())
}
