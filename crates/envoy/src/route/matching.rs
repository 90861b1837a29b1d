//! What a request has to look like.

use std::collections::BTreeMap;

use canopus_api::jwt::routing_claim;
use canopus_mesh::virtual_service::Semantics;
use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use canopus_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment::Segment};
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
    value_matcher,
};
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};

use super::any_path;

/// The filter that checks tokens, and the key under which it leaves their claims.
const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";
const JWT_PAYLOAD: &str = "payload";

/// The match of a route; no condition matches everything.
pub(super) fn route_match(semantics: Semantics, condition: Option<&HttpMatchRequest>) -> RouteMatch {
    let Some(condition) = condition else { return any_path() };
    let mut result = RouteMatch {
        path_specifier: Some(path(semantics, condition.uri.as_ref())),
        case_sensitive: Some((!condition.ignore_uri_case).into()),
        query_parameters: condition.query_params.iter().map(|(name, value)| parameter(name, value)).collect(),
        ..Default::default()
    };
    add_headers(&mut result, &condition.headers, false);
    add_headers(&mut result, &condition.without_headers, true);
    result.headers.sort_by(|a, b| a.name.cmp(&b.name));
    let pseudo = [
        (":method", &condition.method),
        (":authority", &condition.authority),
        (":scheme", &condition.scheme),
    ];
    for (name, value) in pseudo {
        result.headers.extend(value.as_ref().map(|value| header(name, value)));
    }
    result
}

fn path(semantics: Semantics, uri: Option<&StringMatch>) -> PathSpecifier {
    match uri.and_then(|uri| uri.match_type.as_ref()) {
        Some(MatchType::Exact(path)) => PathSpecifier::Path(path.clone()),
        // Kubernetes' prefixes match whole path elements.
        Some(MatchType::Prefix(prefix)) if semantics != Semantics::Istio && prefix != "/" => {
            PathSpecifier::PathSeparatedPrefix(prefix.strip_suffix('/').unwrap_or(prefix).to_owned())
        }
        Some(MatchType::Prefix(prefix)) => PathSpecifier::Prefix(prefix.clone()),
        Some(MatchType::Regex(regex)) => PathSpecifier::SafeRegex(regex_matcher(regex)),
        None => PathSpecifier::Prefix("/".into()),
    }
}

/// Conditions on headers, some of which stand for claims of the request's token.
fn add_headers(result: &mut RouteMatch, headers: &BTreeMap<String, StringMatch>, absent: bool) {
    for (name, value) in headers {
        if let Some(claim) = routing_claim(name) {
            result
                .dynamic_metadata
                .push(MetadataMatcher { invert: absent, ..claim_matcher(claim.path, value) });
        } else {
            result.headers.push(HeaderMatcher {
                invert_match: absent,
                // A request without the header is one without that value; it cannot be told to a test of presence.
                treat_missing_header_as_empty: absent && !asks_for_presence(value),
                ..header(name, value)
            });
        }
    }
}

fn header(name: &str, value: &StringMatch) -> HeaderMatcher {
    let specifier = if asks_for_presence(value) {
        Some(HeaderMatchSpecifier::PresentMatch(true))
    } else {
        string_matcher(value).map(HeaderMatchSpecifier::StringMatch)
    };
    HeaderMatcher { name: name.into(), header_match_specifier: specifier, ..Default::default() }
}

fn parameter(name: &str, value: &StringMatch) -> QueryParameterMatcher {
    let specifier = if asks_for_presence(value) {
        Some(QueryParameterMatchSpecifier::PresentMatch(true))
    } else {
        string_matcher(value).map(QueryParameterMatchSpecifier::StringMatch)
    };
    QueryParameterMatcher { name: name.into(), query_parameter_match_specifier: specifier }
}

/// No text, or the regular expression `*`, which is none, ask only whether there is a value.
fn asks_for_presence(value: &StringMatch) -> bool {
    match &value.match_type {
        None => true,
        Some(MatchType::Regex(regex)) => regex == "*",
        Some(_) => false,
    }
}

/// A claim is a text, or a list with that text among others.
fn claim_matcher(claims: Vec<String>, value: &StringMatch) -> MetadataMatcher {
    let segment = |key: String| PathSegment { segment: Some(Segment::Key(key)) };
    let text = ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(
            string_matcher(value).unwrap_or_default(),
        )),
    };
    let one_of =
        ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(text.clone()))) };
    let list = ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(one_of))) };
    let either = OrMatcher { value_matchers: vec![list, text] };
    MetadataMatcher {
        filter: JWT_FILTER.into(),
        path: std::iter::once(JWT_PAYLOAD.to_owned()).chain(claims).map(segment).collect(),
        value: Some(ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(either)) }),
        ..Default::default()
    }
}

/// The same condition in Envoy's words; `None` if there is none.
pub(super) fn string_matcher(value: &StringMatch) -> Option<StringMatcher> {
    let pattern = match value.match_type.as_ref()? {
        MatchType::Exact(text) => MatchPattern::Exact(text.clone()),
        MatchType::Prefix(text) => MatchPattern::Prefix(text.clone()),
        MatchType::Regex(text) => MatchPattern::SafeRegex(regex_matcher(text)),
    };
    Some(StringMatcher { match_pattern: Some(pattern), ..Default::default() })
}

pub(super) fn regex_matcher(regex: &str) -> RegexMatcher {
    RegexMatcher { regex: regex.into(), ..Default::default() }
}

/// Whether every request is matched, so that later routes can never be reached.
pub(super) fn is_catch_all(condition: &RouteMatch) -> bool {
    let every_path = match &condition.path_specifier {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => prefix == "/",
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex == ".*",
        _ => false,
    };
    every_path
        && condition.headers.is_empty()
        && condition.query_parameters.is_empty()
        && condition.dynamic_metadata.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pattern: MatchType) -> StringMatch {
        StringMatch { match_type: Some(pattern) }
    }

    #[test]
    fn prefixes_of_kubernetes_match_whole_path_elements() {
        let specifier =
            |semantics, prefix: &str| path(semantics, Some(&text(MatchType::Prefix(prefix.into()))));
        assert_eq!(specifier(Semantics::Istio, "/a/"), PathSpecifier::Prefix("/a/".into()));
        assert_eq!(specifier(Semantics::Ingress, "/a/"), PathSpecifier::PathSeparatedPrefix("/a".into()));
        assert_eq!(specifier(Semantics::GatewayApi, "/a"), PathSpecifier::PathSeparatedPrefix("/a".into()));
        assert_eq!(specifier(Semantics::GatewayApi, "/"), PathSpecifier::Prefix("/".into()));
    }

    #[test]
    fn absent_headers_may_be_missing_and_claims_are_metadata() {
        let mut result = RouteMatch::default();
        let headers = BTreeMap::from([
            ("@request.auth.claims.group".to_owned(), text(MatchType::Exact("admin".into()))),
            ("present".to_owned(), text(MatchType::Regex("*".into()))),
            ("valued".to_owned(), text(MatchType::Exact("x".into()))),
        ]);
        add_headers(&mut result, &headers, true);
        assert_eq!(result.dynamic_metadata.len(), 1);
        assert!(result.dynamic_metadata[0].invert && result.dynamic_metadata[0].path.len() == 2);
        let shown: Vec<_> = result
            .headers
            .iter()
            .map(|h| (h.name.as_str(), h.invert_match, h.treat_missing_header_as_empty))
            .collect();
        assert_eq!(shown, [("present", true, false), ("valued", true, true)]);
    }

    #[test]
    fn route_catches_all_only_without_any_condition() {
        let route = |specifier| RouteMatch { path_specifier: Some(specifier), ..Default::default() };
        assert!(is_catch_all(&route(PathSpecifier::Prefix("/".into()))));
        assert!(is_catch_all(&route(PathSpecifier::SafeRegex(regex_matcher(".*")))));
        assert!(!is_catch_all(&route(PathSpecifier::Path("/".into()))));
        let mut narrowed = route(PathSpecifier::Prefix("/".into()));
        narrowed.headers.push(header("a", &StringMatch::default()));
        assert!(!is_catch_all(&narrowed));
    }
}
