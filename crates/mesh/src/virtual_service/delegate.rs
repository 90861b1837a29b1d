//! Merging a delegate's routes into the route that delegates to it.

use std::collections::BTreeMap;

use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute, StringMatch};

/// Merges the routes of a delegate into `root`. Routes that could match requests outside of `root` are dropped.
pub fn merge(root: &HttpRoute, delegate: Vec<HttpRoute>) -> Vec<HttpRoute> {
    delegate.into_iter().filter_map(|route| merge_route(root, route)).collect()
}

#[expect(deprecated, reason = "the old percentage is still inherited")]
fn merge_route(root: &HttpRoute, leaf: HttpRoute) -> Option<HttpRoute> {
    Some(HttpRoute {
        r#match: merge_matches(&root.r#match, &leaf.r#match)?,
        name: joined(&root.name, &leaf.name),
        rewrite: leaf.rewrite.or_else(|| root.rewrite.clone()),
        direct_response: leaf.direct_response.or_else(|| root.direct_response.clone()),
        timeout: leaf.timeout.or(root.timeout),
        retries: leaf.retries.or_else(|| root.retries.clone()),
        fault: leaf.fault.or_else(|| root.fault.clone()),
        mirror: leaf.mirror.or_else(|| root.mirror.clone()),
        mirror_percent: leaf.mirror_percent.or(root.mirror_percent),
        mirror_percentage: leaf.mirror_percentage.or(root.mirror_percentage),
        cors_policy: leaf.cors_policy.or_else(|| root.cors_policy.clone()),
        mirrors: if leaf.mirrors.is_empty() { root.mirrors.clone() } else { leaf.mirrors },
        headers: leaf.headers.or_else(|| root.headers.clone()),
        ..leaf
    })
}

/// Joins two route names with a dash; if only one is set, that one.
fn joined(root: &str, leaf: &str) -> String {
    match (root, leaf) {
        ("", name) | (name, "") => name.to_owned(),
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// Combines every match of the root with every match of the leaf. Returns `None` if a match of the leaf conflicts with all
/// of the root's.
fn merge_matches(root: &[HttpMatchRequest], leaf: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() || leaf.is_empty() {
        return Some(if root.is_empty() { leaf } else { root }.to_vec());
    }
    let mut merged = Vec::new();
    for leaf in leaf {
        let before = merged.len();
        let fitting = root.iter().filter(|root| !conflict(root, leaf));
        merged.extend(fitting.map(|root| merge_match(root, leaf)));
        if merged.len() == before {
            return None;
        }
    }
    Some(merged)
}

fn merge_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let either = |leaf: &String, root: &String| if leaf.is_empty() { root.clone() } else { leaf.clone() };
    HttpMatchRequest {
        name: joined(&root.name, &leaf.name),
        uri: leaf.uri.clone().or_else(|| root.uri.clone()),
        scheme: leaf.scheme.clone().or_else(|| root.scheme.clone()),
        method: leaf.method.clone().or_else(|| root.method.clone()),
        authority: leaf.authority.clone().or_else(|| root.authority.clone()),
        headers: overlaid(&root.headers, &leaf.headers),
        without_headers: overlaid(&root.without_headers, &leaf.without_headers),
        query_params: overlaid(&root.query_params, &leaf.query_params),
        port: if leaf.port == 0 { root.port } else { leaf.port },
        source_labels: overlaid(&root.source_labels, &leaf.source_labels),
        source_namespace: either(&leaf.source_namespace, &root.source_namespace),
        gateways: if leaf.gateways.is_empty() { root.gateways.clone() } else { leaf.gateways.clone() },
        stat_prefix: either(&leaf.stat_prefix, &root.stat_prefix),
        ignore_uri_case: leaf.ignore_uri_case,
    }
}

fn overlaid<T: Clone>(root: &BTreeMap<String, T>, leaf: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    root.iter().chain(leaf).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether the leaf could match requests that the root does not match.
fn conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let texts = [
        (&root.uri, &leaf.uri),
        (&root.scheme, &leaf.scheme),
        (&root.method, &leaf.method),
        (&root.authority, &leaf.authority),
    ];
    let in_map = |root: &BTreeMap<String, StringMatch>, leaf: &BTreeMap<String, StringMatch>| {
        leaf.iter().any(|(key, leaf)| text_conflict(root.get(key), Some(leaf)))
    };
    texts.into_iter().any(|(root, leaf)| text_conflict(root.as_ref(), leaf.as_ref()))
        || in_map(&root.headers, &leaf.headers)
        || in_map(&root.without_headers, &leaf.without_headers)
        || in_map(&root.query_params, &leaf.query_params)
        || root.ignore_uri_case != leaf.ignore_uri_case
        || (root.port > 0 && leaf.port > 0 && root.port != leaf.port)
        // Parity: a leaf that does not repeat the root's source namespace conflicts with it.
        || (!root.source_namespace.is_empty() && leaf.source_namespace != root.source_namespace)
        || leaf.source_labels.iter().any(|(key, leaf)| root.source_labels.get(key).is_some_and(|root| root != leaf))
        || gateway_conflict(&root.gateways, &leaf.gateways)
}

fn gateway_conflict(root: &[String], leaf: &[String]) -> bool {
    let both = !root.is_empty() && !leaf.is_empty();
    both && (root.len() < leaf.len() || leaf.iter().any(|gateway| !root.contains(gateway)))
}

fn text_conflict(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> bool {
    let (Some(root), Some(leaf)) = (root, leaf) else { return false };
    match (pattern(root), pattern(leaf)) {
        (Some(MatchType::Exact(root)), Some(MatchType::Exact(leaf))) => root != leaf,
        (Some(MatchType::Prefix(root)), Some(MatchType::Exact(leaf) | MatchType::Prefix(leaf))) => {
            !leaf.starts_with(root)
        }
        // Whether other patterns overlap cannot be decided.
        _ => true,
    }
}

/// The pattern, unless it is empty: an empty one matches nothing in particular.
fn pattern(text: &StringMatch) -> Option<&MatchType> {
    text.match_type.as_ref().filter(|pattern| match pattern {
        MatchType::Exact(text) | MatchType::Prefix(text) | MatchType::Regex(text) => !text.is_empty(),
    })
}
