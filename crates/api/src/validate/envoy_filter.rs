//! Envoy filters: patches of what is generated.

mod patch;

use canopus_base::regex;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::envoy_config_object_match::ObjectTypes;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::listener_match::FilterMatch;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::{
    ApplyTo, EnvoyConfigObjectMatch, EnvoyConfigObjectPatch, PatchContext,
};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::selector;
use crate::istio::EnvoyFilter;
use crate::text::quoted;

pub(super) use patch::CODES as PATCH_CODES;

codes! {
    INTERNAL: warning "envoy-filter-used", "use another kind of object where one does the same";
    NO_APPLY_TO: error "envoy-filter-without-apply-to", "say what the patch applies to";
    NO_PATCH: error "envoy-filter-without-patch", "give a patch";
    NO_OPERATION: error "envoy-filter-without-operation", "give the operation of the patch";
    NO_VALUE: error "envoy-filter-without-value", "give the value of the patch; only REMOVE needs none";
    LONG_VERSION: warning "envoy-filter-version-too-long", "use an expression of at most 1024 characters";
    BAD_VERSION: error "envoy-filter-version-invalid", "give a regular expression in RE2's syntax";
    WRONG_MATCH: error "envoy-filter-match-of-other-class", "match on the class of object the patch applies to";
    UNUSED_FILTER_MATCH: warning "envoy-filter-match-unused", "remove the match on a filter";
    UNNAMED_FILTER: error "envoy-filter-match-without-name", "name the filter to match on";
    SUB_FILTER_CLASS: error "envoy-filter-sub-filter-class", "use applyTo: HTTP_FILTER, or remove subFilter";
    SUB_FILTER_PARENT: error "envoy-filter-sub-filter-parent",
        "match on the filter envoy.filters.network.http_connection_manager";
    OLD_NAME: warning "envoy-filter-name-deprecated", "use the filter's present name";
}

const MAX_VERSION: usize = 1024;
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
const OLD_CONNECTION_MANAGER: &str = "envoy.http_connection_manager";

/// Names that filters once had, and those they have now.
const RENAMED: [(&str, &str); 27] = [
    ("envoy.buffer", "envoy.filters.http.buffer"),
    ("envoy.client_ssl_auth", "envoy.filters.network.client_ssl_auth"),
    ("envoy.cors", "envoy.filters.http.cors"),
    ("envoy.csrf", "envoy.filters.http.csrf"),
    ("envoy.ext_authz", "envoy.filters.http.ext_authz"),
    ("envoy.fault", "envoy.filters.http.fault"),
    ("envoy.grpc_http1_bridge", "envoy.filters.http.grpc_http1_bridge"),
    ("envoy.grpc_json_transcoder", "envoy.filters.http.grpc_json_transcoder"),
    ("envoy.grpc_web", "envoy.filters.http.grpc_web"),
    ("envoy.gzip", "envoy.filters.http.gzip"),
    ("envoy.health_check", "envoy.filters.http.health_check"),
    (OLD_CONNECTION_MANAGER, CONNECTION_MANAGER),
    ("envoy.http_dynamo_filter", "envoy.filters.http.dynamo"),
    ("envoy.ip_tagging", "envoy.filters.http.ip_tagging"),
    ("envoy.listener.http_inspector", "envoy.filters.listener.http_inspector"),
    ("envoy.listener.original_dst", "envoy.filters.listener.original_dst"),
    ("envoy.listener.original_src", "envoy.filters.listener.original_src"),
    ("envoy.listener.proxy_protocol", "envoy.filters.listener.proxy_protocol"),
    ("envoy.listener.tls_inspector", "envoy.filters.listener.tls_inspector"),
    ("envoy.lua", "envoy.filters.http.lua"),
    ("envoy.mongo_proxy", "envoy.filters.network.mongo_proxy"),
    ("envoy.rate_limit", "envoy.filters.http.ratelimit"),
    ("envoy.ratelimit", "envoy.filters.network.ratelimit"),
    ("envoy.redis_proxy", "envoy.filters.network.redis_proxy"),
    ("envoy.router", "envoy.filters.http.router"),
    ("envoy.squash", "envoy.filters.http.squash"),
    ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy"),
];

/// Checks an EnvoyFilter.
pub fn check(filter: &EnvoyFilter, scope: Scope<'_>) {
    spec(filter, Some(Notice), scope);
}

/// Like [`check`], without the notice that every EnvoyFilter gets.
pub fn without_notice(filter: &EnvoyFilter, scope: Scope<'_>) {
    spec(filter, None, scope);
}

/// The notice that EnvoyFilters are to be used with care.
struct Notice;

fn spec(filter: &EnvoyFilter, notice: Option<Notice>, mut scope: Scope<'_>) {
    let spec = &filter.spec;
    let mut scope = scope.field("spec");
    let workloads = spec.workload_selector.as_ref();
    let check_selector = |scope: Scope<'_>| {
        let mut scope = scope;
        scope.optional("workloadSelector", workloads, |selector, scope| {
            selector::networking(selector, "Envoy filter", scope);
        });
    };
    // Parity: Istio says nothing else of an object whose selector it refuses, not even the notice.
    let has_labels = workloads.is_some_and(|selector| !selector.labels.is_empty());
    let refused = has_labels && scope.fails(check_selector);
    let mut scope = if refused { scope.ours() } else { scope };
    if notice.is_some() {
        scope.add(INTERNAL.says(
            "EnvoyFilter exposes internal implementation details that may change at any time. Prefer other APIs if \
             possible, and exercise extreme caution, especially around upgrades.",
        ));
    }
    if !has_labels {
        check_selector(scope.again());
    }
    scope.each("configPatches", &spec.config_patches, config_patch);
}

/// Checks a patch; as Istio does, only as far as the first thing that makes no sense of the rest.
fn config_patch(config: &EnvoyConfigObjectPatch, mut scope: Scope<'_>) {
    let matching = config.r#match.as_ref();
    // Parity: patches of waypoints are not looked at.
    if matching.is_some_and(|matching| matching.context == PatchContext::Waypoint as i32) {
        return;
    }
    if config.apply_to == ApplyTo::Invalid as i32 {
        return scope.field("applyTo").add(NO_APPLY_TO.says("Envoy filter: missing applyTo"));
    }
    let Some(patch) = &config.patch else {
        return scope.field("patch").add(NO_PATCH.says("Envoy filter: missing patch"));
    };
    if patch.operation == Operation::Invalid as i32 {
        let fault = NO_OPERATION.says("Envoy filter: missing patch operation");
        return scope.field("patch").field("operation").add(fault);
    }
    if patch.operation != Operation::Remove as i32 && patch.value.is_none() {
        let fault = NO_VALUE.says("Envoy filter: missing patch value for non-remove operation");
        return scope.field("patch").field("value").add(fault);
    }
    if let Some(matching) = matching {
        let mut scope = scope.field("match");
        if scope.fails(|scope| proxy_version(matching, scope)) {
            return;
        }
        let wrong_object = scope.fails(|scope| object(config, matching, scope));
        // Parity: the value is looked at all the same, except where it would go into a listener.
        if wrong_object && is_listener_class(config.apply_to) {
            return;
        }
    }
    if let Some(value) = &patch.value {
        patch::check(config.apply_to, value, scope.field("patch").field("value"));
    }
}

fn proxy_version(matching: &EnvoyConfigObjectMatch, mut scope: Scope<'_>) {
    let Some(proxy) = &matching.proxy else { return };
    let mut scope = scope.field("proxy");
    let mut scope = scope.field("proxyVersion");
    let version = &proxy.proxy_version;
    if version.len() > MAX_VERSION {
        let message = "Envoy filter: proxyVersion match exceeds 1024 characters and will be ignored";
        scope.add(LONG_VERSION.says(message));
    } else if let Err(error) = regex::check(version) {
        let message = format!("Envoy filter: invalid regex for proxy version, [{error}]");
        scope.add(BAD_VERSION.says(message).with_value(version));
    }
}

fn is_listener_class(apply_to: i32) -> bool {
    matches!(
        ApplyTo::try_from(apply_to),
        Ok(ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter)
    )
}

/// A match is on objects of the class the patch applies to.
fn object(config: &EnvoyConfigObjectPatch, matching: &EnvoyConfigObjectMatch, mut scope: Scope<'_>) {
    let Some(object) = &matching.object_types else { return };
    let wrong = |class: &str, wanted: &str| {
        let message =
            format!("Envoy filter: applyTo for {class} class objects cannot have non {wanted} match");
        Err(WRONG_MATCH.says(message))
    };
    let checked = match (ApplyTo::try_from(config.apply_to), object) {
        (Ok(ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute), object)
            if !matches!(object, ObjectTypes::RouteConfiguration(_)) =>
        {
            wrong("http route", "route configuration")
        }
        (Ok(ApplyTo::Cluster), object) if !matches!(object, ObjectTypes::Cluster(_)) => {
            wrong("cluster", "cluster")
        }
        (_, ObjectTypes::Listener(listener)) if is_listener_class(config.apply_to) => {
            let filter = listener.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref());
            if let Some(filter) = filter {
                let mut scope = scope.field("listener");
                let mut scope = scope.field("filterChain");
                filter_match(config.apply_to, filter, scope.field("filter"));
            }
            Ok(())
        }
        _ if is_listener_class(config.apply_to) => wrong("listener", "listener"),
        _ => Ok(()),
    };
    scope.require(checked);
}

fn filter_match(apply_to: i32, filter: &FilterMatch, mut scope: Scope<'_>) {
    if let Ok(class @ (ApplyTo::Listener | ApplyTo::FilterChain)) = ApplyTo::try_from(apply_to) {
        let class = class.as_str_name();
        let message = format!("Envoy filter: filter match has no effect when used with {class}");
        scope.add(UNUSED_FILTER_MATCH.says(message));
    }
    if filter.name.is_empty() {
        let fault = UNNAMED_FILTER.says("Envoy filter: filter match has no name to match on");
        return scope.field("name").add(fault);
    }
    if let Some(sub_filter) = &filter.sub_filter
        && let Err(fault) = sub_filter_match(apply_to, &filter.name, &sub_filter.name)
    {
        return scope.field("subFilter").add(fault);
    }
    scope.field("name").advise(present_name(&filter.name));
    if let Some(sub_filter) = &filter.sub_filter {
        scope.field("subFilter").field("name").advise(present_name(&sub_filter.name));
    }
}

fn sub_filter_match(apply_to: i32, parent: &str, name: &str) -> Result<(), Fault> {
    if apply_to != ApplyTo::HttpFilter as i32 {
        let message = "Envoy filter: subfilter match can be used with applyTo HTTP_FILTER only";
        return Err(SUB_FILTER_CLASS.says(message));
    }
    if !matches!(parent, CONNECTION_MANAGER | OLD_CONNECTION_MANAGER) {
        let message =
            format!("Envoy filter: subfilter match requires filter match with {CONNECTION_MANAGER}");
        return Err(SUB_FILTER_PARENT.says(message).with_value(parent));
    }
    if name.is_empty() {
        return Err(UNNAMED_FILTER.says("Envoy filter: subfilter match has no name to match on"));
    }
    Ok(())
}

fn present_name(name: &str) -> Result<(), Fault> {
    match RENAMED.iter().find(|(old, _)| *old == name) {
        None => Ok(()),
        Some((old, new)) => {
            let message =
                format!("using deprecated filter name {}; use {} instead", quoted(old), quoted(new));
            Err(OLD_NAME.says(message).with_value(old))
        }
    }
}

#[cfg(test)]
mod tests;
