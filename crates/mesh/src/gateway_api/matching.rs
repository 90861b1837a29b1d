//! Converting the matches of routes, and their precedence.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use canopus_api::gateway_api::{GrpcRouteMatch, HttpRouteMatch, MatchType, PathMatchType};
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType as Pattern;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute, StringMatch};

use super::fault::{Fault, reason};

/// Converts a match of an HTTPRoute.
pub(super) fn http_match(written: &HttpRouteMatch) -> Result<HttpMatchRequest, Fault> {
    let headers = written.headers.iter().map(|header| (&header.r#type, &*header.name, &*header.value));
    let query = written.query_params.iter().map(|param| (&param.r#type, &*param.name, &*param.value));
    Ok(HttpMatchRequest {
        uri: Some(path(written)?),
        headers: texts(headers, "HeaderMatch")?,
        query_params: texts(query, "QueryParams")?,
        method: written.method.as_ref().map(|method| text(Pattern::Exact(method.to_string()))),
        ..Default::default()
    })
}

/// Converts a match of a GRPCRoute.
pub(super) fn grpc_match(written: &GrpcRouteMatch) -> Result<HttpMatchRequest, Fault> {
    let headers = written.headers.iter().map(|header| (&header.r#type, &*header.name, &*header.value));
    Ok(HttpMatchRequest {
        uri: method(written)?.map(text),
        headers: texts(headers, "HeaderMatch")?,
        ..Default::default()
    })
}

fn text(pattern: Pattern) -> StringMatch {
    StringMatch { match_type: Some(pattern) }
}

fn unknown(what: &str, kind: &str) -> Fault {
    let message = format!("unknown type: {what:?} is not supported {kind} type");
    Fault::new(reason::INVALID_CONFIGURATION, message)
}

fn path(written: &HttpRouteMatch) -> Result<StringMatch, Fault> {
    let value = &*written.path.value;
    Ok(text(match &written.path.r#type {
        PathMatchType::Exact => Pattern::Exact(value.to_owned()),
        PathMatchType::RegularExpression => Pattern::Regex(value.to_owned()),
        // A trailing slash is ignored, except for the root path.
        PathMatchType::PathPrefix if value == "/" => Pattern::Prefix(value.to_owned()),
        PathMatchType::PathPrefix => Pattern::Prefix(value.strip_suffix('/').unwrap_or(value).to_owned()),
        PathMatchType::Other(other) => return Err(unknown(other, "Path match")),
    }))
}

/// The path pattern of a gRPC method: requests have the path `/service/method`.
fn method(written: &GrpcRouteMatch) -> Result<Option<Pattern>, Fault> {
    let Some(method) = &written.method else { return Ok(None) };
    let is_exact = match &method.r#type {
        MatchType::Exact => true,
        MatchType::RegularExpression => false,
        MatchType::Other(other) => return Err(unknown(other, "Path match")),
    };
    Ok(Some(match (method.service.as_deref(), method.method.as_deref()) {
        (None, None) => {
            let message = "gRPC match must have method or service defined";
            return Err(Fault::new(reason::INVALID_CONFIGURATION, message));
        }
        (None, Some(method)) => Pattern::Regex(format!("/[^/]+/{method}")),
        (Some(service), None) if is_exact => Pattern::Prefix(format!("/{service}/")),
        (Some(service), None) => Pattern::Regex(format!("/{service}/.+")),
        (Some(service), Some(method)) if is_exact => Pattern::Exact(format!("/{service}/{method}")),
        (Some(service), Some(method)) => Pattern::Regex(format!("/{service}/{method}")),
    }))
}

/// Converts header or query matches by name. Of several with one name the last wins.
fn texts<'a>(
    written: impl Iterator<Item = (&'a MatchType, &'a str, &'a str)>,
    kind: &str,
) -> Result<BTreeMap<String, StringMatch>, Fault> {
    let one = |(r#type, name, value): (&MatchType, &str, &str)| {
        let pattern = match r#type {
            MatchType::Exact => Pattern::Exact(value.to_owned()),
            MatchType::RegularExpression => Pattern::Regex(value.to_owned()),
            MatchType::Other(other) => return Err(unknown(other, kind)),
        };
        Ok((name.to_owned(), text(pattern)))
    };
    written.map(one).collect()
}

/// Sorts routes by the precedence that the Gateway API defines. The sort is stable.
///
/// Exact paths come before prefixes, and those before regular expressions; longer paths come first. Then come routes with a
/// method, with more headers, with more query parameters. A route without a match comes last.
pub(super) fn sort(routes: &mut [HttpRoute]) {
    routes.sort_by(|a, b| match (a.r#match.first(), b.r#match.first()) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => specificity(b).cmp(&specificity(a)),
    });
}

fn specificity(found: &HttpMatchRequest) -> (u8, usize, bool, usize, usize) {
    let (rank, length) = match found.uri.as_ref().and_then(|uri| uri.match_type.as_ref()) {
        Some(Pattern::Exact(path)) => (3, path.len()),
        Some(Pattern::Prefix(path)) => (2, path.len()),
        Some(Pattern::Regex(path)) => (1, path.len()),
        None => (0, 0),
    };
    (rank, length, found.method.is_some(), found.headers.len(), found.query_params.len())
}
