//! Cross-origin resource sharing.

use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{CorsPolicy, StringMatch};

use crate::text::quoted;
use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::{duration, header, regex};

codes! {
    EMPTY_ORIGIN: error "cors-origin-empty", "give exact, prefix or regex";
    UNKNOWN_METHOD: error "cors-method-unknown", "use an HTTP method in capital letters, or *";
    MAX_AGE: error "cors-max-age-too-precise", "give a whole number of seconds";
}

const METHODS: [&str; 10] =
    ["*", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// Checks a CORS policy.
pub fn check(policy: &CorsPolicy, mut scope: Scope<'_>) {
    scope.each("allowOrigins", &policy.allow_origins, origin);
    scope.each("allowMethods", &policy.allow_methods, |method, mut scope| {
        scope.add_if(!METHODS.contains(&method.as_str()), || {
            UNKNOWN_METHOD
                .says(format!("{} is not a supported HTTP method", quoted(method)))
                .with_value(method)
        });
    });
    scope.each("allowHeaders", &policy.allow_headers, |name, mut scope| {
        scope.require(header::cors_name(name));
    });
    scope.each("exposeHeaders", &policy.expose_headers, |name, mut scope| {
        scope.require(header::cors_name(name));
    });
    scope.optional("maxAge", policy.max_age.as_ref(), |age, mut scope| {
        scope.require(duration::positive(age));
        scope.add_if(age.nanos > 0, || {
            MAX_AGE.says("max_age duration is accurate only to seconds precision").listed()
        });
    });
}

fn origin(origin: &StringMatch, mut scope: Scope<'_>) {
    match &origin.match_type {
        Some(MatchType::Exact(text) | MatchType::Prefix(text) | MatchType::Regex(text))
            if !text.is_empty() =>
        {
            scope.require(regex::matching(origin, "corsPolicy.allowOrigins"));
        }
        _ => scope.add(EMPTY_ORIGIN.says("'' is not a valid match type for CORS allow origins")),
    }
}
