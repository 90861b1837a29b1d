//! What a request has to look like.

use std::collections::BTreeMap;

use canopus_api::jwt::routing_claim;
use canopus_mesh::virtual_service::Semantics;
use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use canopus_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use canopus_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment::Segment};
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
    value_matcher,
};
use canopus_proto::fields::route_match;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};
use canopus_proto::wire::ProtoWriter;

use crate::acceptable;
use crate::audience::Build;

/// The filter that checks tokens, and the key under which it leaves their claims.
const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";
const JWT_PAYLOAD: &str = "payload";

/// What of a request's path has to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path<'a> {
    /// All of it.
    Exact(&'a str),
    /// Prefix of the path's characters.
    Prefix(&'a str),
    /// Prefix of whole path segments.
    Elements(&'a str),
    /// All of it, as a regular expression says.
    Regex(&'a str),
}

/// The match of a route.
pub(super) struct Match<'a> {
    /// What the path has to be.
    pub(super) path: Path<'a>,
    /// Whether its case matters; Envoy's default if `None`.
    case_sensitive: Option<bool>,
    /// Conditions on headers, parameters and claims; most routes have none.
    other: Option<Box<RouteMatch>>,
}

impl<'a> Match<'a> {
    /// Match for a condition; without a condition, a match of everything.
    pub(super) fn new(build: &Build, semantics: Semantics, condition: Option<&'a HttpMatchRequest>) -> Self {
        let Some(condition) = condition else {
            return Self { path: Path::Prefix("/"), case_sensitive: None, other: None };
        };
        let other = other_conditions(condition).map(|mut other| {
            acceptable::complete_match(build, &mut other);
            Box::new(other)
        });
        Self {
            path: path(semantics, condition.uri.as_ref()),
            case_sensitive: Some(!condition.ignore_uri_case),
            other,
        }
    }

    /// Whether every request is matched, so that later routes can never be reached.
    pub(super) fn is_catch_all(&self) -> bool {
        let every_path = match self.path {
            Path::Prefix(prefix) | Path::Elements(prefix) => prefix == "/",
            Path::Regex(regex) => regex == ".*",
            Path::Exact(_) => false,
        };
        every_path && self.other.is_none()
    }

    /// Writes the fields of the match.
    pub(super) fn write(&self, matched: &mut ProtoWriter<RouteMatch>) {
        match self.path {
            Path::Exact(path) => matched.string(route_match::PATH, path),
            Path::Prefix(prefix) => matched.string(route_match::PREFIX, prefix),
            Path::Elements(prefix) => matched.string(route_match::PATH_SEPARATED_PREFIX, prefix),
            Path::Regex(regex) => matched.message(route_match::SAFE_REGEX, &regex_matcher(regex)),
        }
        if let Some(case_sensitive) = self.case_sensitive {
            matched.message(route_match::CASE_SENSITIVE, &case_sensitive.into());
        }
        if let Some(other) = &self.other {
            matched.append_message(other);
        }
    }
}

/// The conditions on a request besides its path; `None` if there are none.
fn other_conditions(condition: &HttpMatchRequest) -> Option<RouteMatch> {
    let HttpMatchRequest { headers, without_headers, query_params, method, authority, scheme, .. } =
        condition;
    let pseudo = [(":method", method), (":authority", authority), (":scheme", scheme)];
    let has_headers = !headers.is_empty() || !without_headers.is_empty();
    if !has_headers && query_params.is_empty() && pseudo.iter().all(|(_, value)| value.is_none()) {
        return None;
    }
    let mut result = RouteMatch {
        query_parameters: query_params.iter().map(|(name, value)| parameter(name, value)).collect(),
        ..Default::default()
    };
    add_headers(&mut result, headers, false);
    add_headers(&mut result, without_headers, true);
    result.headers.sort_by(|a, b| a.name.cmp(&b.name));
    for (name, value) in pseudo {
        result.headers.extend(value.as_ref().map(|value| header(name, value)));
    }
    Some(result)
}

fn path(semantics: Semantics, uri: Option<&StringMatch>) -> Path<'_> {
    match uri.and_then(|uri| uri.match_type.as_ref()) {
        Some(MatchType::Exact(path)) => Path::Exact(path),
        // Kubernetes' prefixes match whole path elements.
        Some(MatchType::Prefix(prefix)) if semantics != Semantics::Istio && prefix != "/" => {
            Path::Elements(prefix.strip_suffix('/').unwrap_or(prefix))
        }
        Some(MatchType::Prefix(prefix)) => Path::Prefix(prefix),
        Some(MatchType::Regex(regex)) => Path::Regex(regex),
        None => Path::Prefix("/"),
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

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;

    use super::super::any_path;
    use super::*;

    fn text(pattern: MatchType) -> StringMatch {
        StringMatch { match_type: Some(pattern) }
    }

    fn matching(condition: Option<&HttpMatchRequest>) -> (RouteMatch, bool) {
        let matched = Match {
            path: path(Semantics::Istio, condition.and_then(|condition| condition.uri.as_ref())),
            case_sensitive: condition.map(|condition| !condition.ignore_uri_case),
            other: condition.and_then(other_conditions).map(Box::new),
        };
        let mut written = ProtoWriter::default();
        matched.write(&mut written);
        (RouteMatch::decode(written.as_slice()).unwrap(), matched.is_catch_all())
    }

    #[test]
    fn prefixes_of_kubernetes_match_whole_path_elements() {
        let of = |semantics, prefix: &str, expected| {
            assert_eq!(path(semantics, Some(&text(MatchType::Prefix(prefix.into())))), expected);
        };
        of(Semantics::Istio, "/a/", Path::Prefix("/a/"));
        of(Semantics::Ingress, "/a/", Path::Elements("/a"));
        of(Semantics::GatewayApi, "/a", Path::Elements("/a"));
        of(Semantics::GatewayApi, "/", Path::Prefix("/"));
    }

    #[test]
    fn match_is_written_as_the_message_it_stands_for() {
        let regex = text(MatchType::Regex("/a.*".into()));
        let condition = HttpMatchRequest {
            uri: Some(regex),
            ignore_uri_case: true,
            headers: [("b".to_owned(), StringMatch::default())].into(),
            method: Some(text(MatchType::Exact("GET".into()))),
            query_params: [("q".to_owned(), StringMatch::default())].into(),
            ..Default::default()
        };
        let expected = RouteMatch {
            path_specifier: Some(PathSpecifier::SafeRegex(regex_matcher("/a.*"))),
            case_sensitive: Some(false.into()),
            headers: vec![
                header("b", &StringMatch::default()),
                header(":method", &text(MatchType::Exact("GET".into()))),
            ],
            query_parameters: vec![parameter("q", &StringMatch::default())],
            ..Default::default()
        };
        assert_eq!(matching(Some(&condition)), (expected, false));
        assert_eq!(matching(None), (any_path(), true));
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
        let catches_all = |uri: MatchType, headers: &[&str]| {
            let header = |name: &&str| ((*name).to_owned(), StringMatch::default());
            let headers = headers.iter().map(header).collect();
            matching(Some(&HttpMatchRequest { uri: Some(text(uri)), headers, ..Default::default() })).1
        };
        assert!(catches_all(MatchType::Prefix("/".into()), &[]));
        assert!(catches_all(MatchType::Regex(".*".into()), &[]));
        assert!(!catches_all(MatchType::Exact("/".into()), &[]));
        assert!(!catches_all(MatchType::Prefix("/".into()), &["a"]));
    }
}
