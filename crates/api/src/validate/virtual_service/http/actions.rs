//! What a route does instead of, or before, sending a request on: redirects, answers, rewrites.

use canopus_proto::istio::networking::v1alpha3::http_body::Specifier;
use canopus_proto::istio::networking::v1alpha3::http_redirect::RedirectPort;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{
    HttpDirectResponse, HttpMatchRequest, HttpRedirect, HttpRewrite, RegexRewrite,
};

use super::fault::http_status;
use crate::validate::code::{Fault, codes};
use crate::validate::scope::Scope;
use crate::validate::{port, regex};

codes! {
    URI_AND_PREFIX: error "redirect-uri-and-prefix", "use either uri or prefixRewrite";
    PREFIX_WITHOUT_PREFIX: error "redirect-prefix-without-prefix-match", "match the path by prefix in every match";
    EMPTY_REDIRECT: error "redirect-empty", "give uri, authority, scheme or port";
    REDIRECT_CODE: error "redirect-code", "use a status from 300 to 399";
    REDIRECT_SCHEME: error "redirect-scheme", "use http or https";
    BODY_TOO_LARGE: error "direct-response-too-large", "keep the body below 1MB, or serve it from a workload";
    BODY_LARGE: warning "direct-response-large", "serve large bodies from a workload";
    TWO_REWRITES: error "rewrite-uri-and-regex", "use either uri or uriRegexRewrite";
    EMPTY_REWRITE: error "rewrite-empty", "give uri, uriRegexRewrite or authority";
    REGEX_INCOMPLETE: error "rewrite-regex-incomplete", "give both match and rewrite";
}

/// Above this a body is worth a warning.
const LARGE_BODY: usize = 100 << 10;
const MAX_BODY: usize = 1 << 20;

/// Checks a redirect of requests that match.
pub fn redirect(redirect: &HttpRedirect, matches: &[HttpMatchRequest], mut scope: Scope<'_>) {
    scope.first_only(|mut scope| {
        let HttpRedirect { uri, authority, scheme, redirect_code, prefix_rewrite, redirect_port } = redirect;
        scope.add_if(!uri.is_empty() && !prefix_rewrite.is_empty(), || {
            URI_AND_PREFIX.says("redirect may only specify one of uri or prefix_rewrite")
        });
        if !prefix_rewrite.is_empty() && !matches.iter().all(matches_by_prefix) {
            let message = "redirect prefix_rewrite requires all URI matches to use prefix match type";
            scope.field("prefixRewrite").add(PREFIX_WITHOUT_PREFIX.says(message));
        }
        let texts = [uri, prefix_rewrite, authority, scheme];
        scope.add_if(redirect_port.is_none() && texts.iter().all(|text| text.is_empty()), || {
            EMPTY_REDIRECT.says("redirect must specify URI, authority, scheme, or port")
        });
        scope.field("redirectCode").add_if(!matches!(redirect_code, 0 | 300..400), || {
            let message = format!("{redirect_code} is not a valid redirect code, must be 3xx");
            REDIRECT_CODE.says(message).with_value(redirect_code)
        });
        scope.field("scheme").add_if(!matches!(scheme.as_str(), "" | "http" | "https"), || {
            REDIRECT_SCHEME.says(r#"invalid redirect scheme, must be "http" or "https""#).with_value(scheme)
        });
        if let Some(RedirectPort::Port(number @ 1..)) = redirect_port {
            scope.field("port").require(port::number(*number));
        }
    });
}

fn matches_by_prefix(matching: &HttpMatchRequest) -> bool {
    matching.uri.as_ref().is_none_or(|uri| matches!(uri.match_type, Some(MatchType::Prefix(_))))
}

/// Checks an answer that the proxy gives itself.
pub fn direct_response(response: &HttpDirectResponse, mut scope: Scope<'_>) {
    let body = response.body.as_ref().and_then(|body| body.specifier.as_ref());
    let size = match body {
        Some(Specifier::String(text)) => text.len(),
        Some(Specifier::Bytes(bytes)) => bytes.len(),
        None => 0,
    };
    if size > MAX_BODY {
        let message = "large direct_responses may impact control plane performance, must be less than 1MB";
        scope.field("body").add(BODY_TOO_LARGE.says(message).with_value(size));
    } else if size > LARGE_BODY {
        let message = "large direct_responses may impact control plane performance";
        scope.field("body").add(BODY_LARGE.says(message).with_value(size));
    }
    // Parity: a status beyond what an int32 holds wraps around in the message.
    scope.field("status").require(http_status(response.status.cast_signed()));
}

/// Checks a rewrite.
pub fn rewrite(rewrite: &HttpRewrite, mut scope: Scope<'_>) {
    scope.first_only(|mut scope| {
        let HttpRewrite { uri, authority, uri_regex_rewrite } = rewrite;
        scope.add_if(!uri.is_empty() && uri_regex_rewrite.is_some(), || {
            TWO_REWRITES.says("rewrite may only contain one of URI or UriRegexRewrite")
        });
        scope.add_if(uri.is_empty() && uri_regex_rewrite.is_none() && authority.is_empty(), || {
            let message = "rewrite must specify at least one of URI, UriRegexRewrite, or authority. Only one of URI or \
                           UriRegexRewrite may be specified";
            EMPTY_REWRITE.says(message)
        });
        scope.optional("uriRegexRewrite", uri_regex_rewrite.as_ref(), |regex, mut scope| {
            let reworded = |fault: Fault| fault.reworded(|said| format!("UriRegexRewrite has errors\n{said}"));
            scope.require(regex_rewrite(regex).map_err(reworded));
        });
    });
}

/// A rewrite of a path by an expression.
pub fn regex_rewrite(rewrite: &RegexRewrite) -> Result<(), Fault> {
    if rewrite.r#match.is_empty() || rewrite.rewrite.is_empty() {
        let message = "UriRegexRewrite requires both Rewrite and Match fields to be specified";
        return Err(REGEX_INCOMPLETE.says(message));
    }
    regex::pattern(&rewrite.r#match, "HTTPRewrite.UriRegexRewrite.Match")
}
