//! Whether a route is for a request, and what it makes of it.

use std::sync::LazyLock;

use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction as AppendAction;
use canopus_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use canopus_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, Route, RouteAction, RouteMatch,
};
use regex::Regex;

use super::{Call, text};

/// `\\1` in a substitution, as RE2 writes what a group matched.
static BACK_REFERENCE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\\(\d)").expect("a constant expression"));

/// The first thing that a route asks for and a request does not have.
pub(super) fn mismatch(route: &Route, call: &Call) -> Option<String> {
    let Some(wanted) = &route.r#match else { return Some("it matches nothing".to_owned()) };
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    if !path_matches(wanted, path, call) {
        return Some(format!("the path is not {}", wanted_path(wanted)));
    }
    if let Some(header) = wanted.headers.iter().find(|header| !header_matches(header, call)) {
        return Some(format!("header {}", header.name));
    }
    let parameter = wanted.query_parameters.iter().find(|parameter| !parameter_matches(parameter, query));
    if let Some(parameter) = parameter {
        return Some(format!("query parameter {}", parameter.name));
    }
    let noted = |filter: &str| call.metadata.get(filter);
    let metadata =
        wanted.dynamic_metadata.iter().find(|one| !text::metadata_matches(one, noted(&one.filter)));
    if let Some(metadata) = metadata {
        return Some(format!("what {} knows of it", metadata.filter));
    }
    (wanted.grpc.is_some() && !is_grpc(call)).then(|| "it is not gRPC".to_owned())
}

/// The path that a route asks for, in words.
fn wanted_path(wanted: &RouteMatch) -> String {
    match &wanted.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(exact)) => exact.clone(),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => format!("{prefix} or below it"),
        Some(PathSpecifier::SafeRegex(regex)) => format!("~{}", regex.regex),
        Some(PathSpecifier::ConnectMatcher(_)) => "that of a CONNECT request".to_owned(),
        Some(PathSpecifier::PathMatchPolicy(_)) | None => "one that this can tell".to_owned(),
    }
}

/// The request as a route passes it on: rewritten, with the headers that are set and without those that are removed.
pub(super) fn forwarded(route: &Route, call: &Call) -> Call {
    let mut next = call.clone();
    if let Some(Action::Route(action)) = &route.action {
        rewrite(route, action, &mut next);
    }
    for header in &route.request_headers_to_remove {
        next.headers.remove(&header.to_lowercase());
    }
    for option in &route.request_headers_to_add {
        // Values with commands depend on the connection.
        let Some(header) = option.header.as_ref().filter(|header| !header.value.contains('%')) else {
            continue;
        };
        let name = header.key.to_lowercase();
        match option.append_action() {
            AppendAction::AddIfAbsent => {
                next.headers.entry(name).or_insert_with(|| header.value.clone());
            }
            AppendAction::OverwriteIfExists => {
                next.headers.entry(name).and_modify(|value| value.clone_from(&header.value));
            }
            AppendAction::OverwriteIfExistsOrAdd => {
                next.headers.insert(name, header.value.clone());
            }
            AppendAction::AppendIfExistsOrAdd => {
                let value = next.headers.entry(name).or_default();
                *value =
                    if value.is_empty() { header.value.clone() } else { format!("{value},{}", header.value) };
            }
        }
    }
    next
}

fn rewrite(route: &Route, action: &RouteAction, call: &mut Call) {
    let (path, query) = match call.path.split_once('?') {
        Some((path, query)) => (path.to_owned(), format!("?{query}")),
        None => (call.path.clone(), String::new()),
    };
    if let Some(regex) = &action.regex_rewrite {
        let pattern = regex.pattern.as_ref().and_then(|pattern| Regex::new(&pattern.regex).ok());
        if let Some(pattern) = pattern {
            let substitution = regex.substitution.replace('$', "$$");
            let substitution = BACK_REFERENCE.replace_all(&substitution, "$${$1}");
            call.path = format!("{}{query}", pattern.replace_all(&path, substitution.as_ref()));
        }
    } else if !action.prefix_rewrite.is_empty() {
        let matched = match route.r#match.as_ref().and_then(|wanted| wanted.path_specifier.as_ref()) {
            Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => prefix.len(),
            // All of it was matched.
            _ => path.len(),
        };
        let rest = path.get(matched..).unwrap_or_default();
        call.path = format!("{}{rest}{query}", action.prefix_rewrite);
    }
    if let Some(HostRewriteSpecifier::HostRewriteLiteral(host)) = &action.host_rewrite_specifier {
        call.host.clone_from(host);
    }
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
pub(super) fn header_matches(wanted: &HeaderMatcher, call: &Call) -> bool {
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
