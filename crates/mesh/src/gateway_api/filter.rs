//! Converting the filters of routes.

use std::collections::BTreeMap;
use std::time::Duration as Span;

use canopus_api::gateway_api::{
    Header, HeaderModifier, HttpCors, HttpPathModifier, HttpRequestRedirect, HttpUrlRewrite,
    PathModifierType, RequestMirror,
};
use canopus_proto::google::protobuf::{BoolValue, Duration};
use canopus_proto::istio::networking::v1alpha3::cors_policy::UnmatchedPreflights;
use canopus_proto::istio::networking::v1alpha3::headers::HeaderOperations;
use canopus_proto::istio::networking::v1alpha3::http_redirect::{RedirectPort, RedirectPortSelection};
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType as Pattern;
use canopus_proto::istio::networking::v1alpha3::{
    CorsPolicy, Headers, HttpMirrorPolicy, HttpRedirect, HttpRewrite, Percent, RegexRewrite, StringMatch,
};

use super::backend::{self, Referrer};
use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};

/// An origin by RFC 6454: a scheme and a host, with nothing after them.
const ANY_ORIGIN: &str = r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$";

/// The fault of an unsupported filter.
pub(super) fn unsupported(kind: &str) -> Fault {
    Fault::new(reason::INVALID_FILTER, format!("unsupported filter type {kind:?}"))
}

/// Adds changes of request headers.
pub(super) fn request_headers(
    into: &mut Option<Headers>,
    written: Option<&HeaderModifier>,
) -> Result<(), Fault> {
    if let Some(written) = written {
        into.get_or_insert_default().request = Some(headers(written)?);
    }
    Ok(())
}

/// Adds changes of response headers.
pub(super) fn response_headers(
    into: &mut Option<Headers>,
    written: Option<&HeaderModifier>,
) -> Result<(), Fault> {
    if let Some(written) = written {
        into.get_or_insert_default().response = Some(headers(written)?);
    }
    Ok(())
}

fn headers(written: &HeaderModifier) -> Result<HeaderOperations, Fault> {
    let is_printable =
        |header: &&Header| header.value.bytes().all(|byte| byte == 9 || (byte >= 32 && byte != 127));
    if let Some(header) = written.set.iter().chain(&written.add).find(|header| !is_printable(header)) {
        let message = format!("header {:?} value contains invalid characters", header.name);
        return Err(Fault::new(reason::INVALID_FILTER, message));
    }
    Ok(HeaderOperations {
        set: by_name(&written.set),
        add: by_name(&written.add),
        remove: written.remove.iter().map(ToString::to_string).collect(),
    })
}

/// Headers by lower-case name. Of several with one name the first wins.
fn by_name(headers: &[Header]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for header in headers {
        found.entry(header.name.to_lowercase()).or_insert_with(|| header.value.to_string());
    }
    found
}

/// Converts a mirror filter.
pub(super) fn mirror(
    cluster: &ClusterObjects<'_>,
    route: Referrer<'_>,
    written: &RequestMirror,
) -> Result<HttpMirrorPolicy, Fault> {
    let resolved = backend::resolve(cluster, route, &written.backend_ref.backend())?;
    if let Some(fault) = resolved.fault {
        return Err(fault);
    }
    let share = match (&written.fraction, written.percent) {
        (Some(fraction), _) => {
            Some(100.0 * f64::from(fraction.numerator) / f64::from(fraction.denominator.max(1)))
        }
        (None, percent) => percent.map(f64::from),
    };
    Ok(HttpMirrorPolicy {
        destination: Some(resolved.destination),
        percentage: share.map(|value| Percent { value }),
    })
}

/// Converts a URL rewrite. Returns `None` if it changes nothing.
pub(super) fn rewrite(written: &HttpUrlRewrite) -> Option<HttpRewrite> {
    let mut rewrite = HttpRewrite {
        authority: written.hostname.as_deref().unwrap_or_default().to_owned(),
        ..Default::default()
    };
    match written.path.as_ref().map(replacement) {
        Some(Replacement::Prefix(prefix)) => {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            // A single slash removes the prefix.
            rewrite.uri = if prefix.is_empty() { "/" } else { prefix }.to_owned();
        }
        Some(Replacement::Whole(path)) => {
            let rewrite_to = RegexRewrite { r#match: "/.*".to_owned(), rewrite: path.to_owned() };
            rewrite.uri_regex_rewrite = Some(rewrite_to);
        }
        Some(Replacement::None) | None => {}
    }
    (rewrite != HttpRewrite::default()).then_some(rewrite)
}

/// The replacement of a path.
enum Replacement<'a> {
    Prefix(&'a str),
    Whole(&'a str),
    None,
}

fn replacement(written: &HttpPathModifier) -> Replacement<'_> {
    match &written.r#type {
        PathModifierType::ReplacePrefixMatch => {
            Replacement::Prefix(written.replace_prefix_match.as_deref().unwrap_or_default())
        }
        PathModifierType::ReplaceFullPath => {
            Replacement::Whole(written.replace_full_path.as_deref().unwrap_or_default())
        }
        PathModifierType::Other(_) => Replacement::None,
    }
}

/// Converts a redirect.
pub(super) fn redirect(written: &HttpRequestRedirect) -> HttpRedirect {
    let derived = match written.scheme {
        Some(_) => RedirectPortSelection::FromProtocolDefault,
        None => RedirectPortSelection::FromRequestPort,
    };
    let port = match written.port {
        Some(port) => RedirectPort::Port(port.into()),
        None => RedirectPort::DerivePort(derived as i32),
    };
    let mut redirect = HttpRedirect {
        redirect_code: written.status_code.into(),
        authority: written.hostname.as_deref().unwrap_or_default().to_owned(),
        scheme: written.scheme.as_deref().unwrap_or_default().to_owned(),
        redirect_port: Some(port),
        ..Default::default()
    };
    match written.path.as_ref().map(replacement) {
        Some(Replacement::Whole(path)) => redirect.uri = path.to_owned(),
        Some(Replacement::Prefix(prefix)) => redirect.prefix_rewrite = prefix.to_owned(),
        Some(Replacement::None) | None => {}
    }
    redirect
}

/// Converts a CORS filter.
pub(super) fn cors(written: &HttpCors) -> CorsPolicy {
    let texts = |list: &[Box<str>]| list.iter().map(ToString::to_string).collect();
    let origins = written.allow_origins.iter().filter(|origin| !origin.is_empty());
    CorsPolicy {
        allow_origins: origins
            .map(|origin| StringMatch { match_type: Some(origin_pattern(origin)) })
            .collect(),
        allow_credentials: (written.allow_credentials == Some(true)).then_some(BoolValue { value: true }),
        allow_methods: texts(&written.allow_methods),
        allow_headers: texts(&written.allow_headers),
        expose_headers: texts(&written.expose_headers),
        max_age: u64::try_from(written.max_age)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from(Span::from_secs(seconds))),
        unmatched_preflights: UnmatchedPreflights::Ignore as i32,
        ..Default::default()
    }
}

fn origin_pattern(origin: &str) -> Pattern {
    match origin.split_once('*') {
        None => Pattern::Exact(origin.to_owned()),
        Some(("", "")) => Pattern::Regex(ANY_ORIGIN.to_owned()),
        Some((prefix, "")) => Pattern::Prefix(prefix.to_owned()),
        Some(_) => {
            let parts: Vec<_> = origin.split('*').map(quoted).collect();
            Pattern::Regex(format!("^{}$", parts.join(".*")))
        }
    }
}

/// Escapes the characters that have a meaning in a regular expression.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}
