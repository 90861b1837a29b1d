//! Whether a route is for a request.

use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, Route, RouteMatch};

use super::{Call, text};

/// Whether path, headers, query and metadata of a request are what a route asks for.
pub(super) fn matches(route: &Route, call: &Call) -> bool {
    let Some(wanted) = &route.r#match else { return false };
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    path_matches(wanted, path, call)
        && wanted.headers.iter().all(|header| header_matches(header, call))
        && wanted.query_parameters.iter().all(|parameter| parameter_matches(parameter, query))
        && wanted
            .dynamic_metadata
            .iter()
            .all(|matcher| text::metadata_matches(matcher, call.metadata.get(&matcher.filter)))
        && (wanted.grpc.is_none() || is_grpc(call))
}

fn path_matches(wanted: &RouteMatch, path: &str, call: &Call) -> bool {
    let ignore_case = wanted.case_sensitive.is_some_and(|sensitive| !sensitive.value);
    let fold = |text: &str| if ignore_case { text.to_lowercase() } else { text.to_owned() };
    match &wanted.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => fold(path).starts_with(&fold(prefix)),
        Some(PathSpecifier::Path(exact)) => fold(path) == fold(exact),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => {
            let path = fold(path);
            path.strip_prefix(&fold(prefix)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        Some(PathSpecifier::SafeRegex(regex)) => text::is_full_match(&regex.regex, path),
        Some(PathSpecifier::ConnectMatcher(_)) => call.method == "CONNECT",
        Some(PathSpecifier::PathMatchPolicy(_)) | None => false,
    }
}

fn is_grpc(call: &Call) -> bool {
    call.headers
        .get("content-type")
        .is_some_and(|kind| kind == "application/grpc" || kind.starts_with("application/grpc+"))
}

/// The value of a header or of one of the parts of a request that count as headers.
fn header_value<'a>(name: &str, call: &'a Call) -> Option<&'a str> {
    match name {
        ":method" => Some(&call.method),
        ":authority" | "host" => Some(&call.host),
        ":path" => Some(&call.path),
        ":scheme" => Some(if call.tls.is_some() { "https" } else { "http" }),
        name => call.headers.get(name).map(String::as_str),
    }
}

#[expect(deprecated, reason = "users' own patches may use the older forms")]
fn header_matches(wanted: &HeaderMatcher, call: &Call) -> bool {
    let value = header_value(&wanted.name.to_lowercase(), call);
    let value = value.or(wanted.treat_missing_header_as_empty.then_some(""));
    let holds = match (&wanted.header_match_specifier, value) {
        (Some(HeaderMatchSpecifier::PresentMatch(present)), value) => value.is_some() == *present,
        (None, value) => value.is_some(),
        // What is not there is not compared, not even for being different.
        (Some(_), None) => return false,
        (Some(HeaderMatchSpecifier::StringMatch(matcher)), Some(value)) => text::matches(matcher, value),
        (Some(HeaderMatchSpecifier::ExactMatch(exact)), Some(value)) => value == exact,
        (Some(HeaderMatchSpecifier::PrefixMatch(prefix)), Some(value)) => value.starts_with(prefix),
        (Some(HeaderMatchSpecifier::SuffixMatch(suffix)), Some(value)) => value.ends_with(suffix),
        (Some(HeaderMatchSpecifier::ContainsMatch(part)), Some(value)) => value.contains(part),
        (Some(HeaderMatchSpecifier::SafeRegexMatch(regex)), Some(value)) => {
            text::is_full_match(&regex.regex, value)
        }
        (Some(HeaderMatchSpecifier::RangeMatch(range)), Some(value)) => {
            value.parse().is_ok_and(|number: i64| range.start <= number && number < range.end)
        }
    };
    holds != wanted.invert_match
}

/// A parameter is compared as it is written in the path, by its first occurrence.
fn parameter_matches(wanted: &QueryParameterMatcher, query: &str) -> bool {
    let mut parameters = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    let value = parameters.find(|(name, _)| *name == wanted.name).map(|(_, value)| value);
    match (&wanted.query_parameter_match_specifier, value) {
        (Some(QueryParameterMatchSpecifier::StringMatch(matcher)), Some(value)) => {
            text::matches(matcher, value)
        }
        (Some(QueryParameterMatchSpecifier::PresentMatch(present)), value) => value.is_some() == *present,
        (None, value) => value.is_some(),
        (Some(_), None) => false,
    }
}
