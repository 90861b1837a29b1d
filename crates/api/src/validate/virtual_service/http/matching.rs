//! Which requests a route is for.

use canopus_base::labels::is_dns_label;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, StringMatch};

use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::virtual_service::gateway_names;
use crate::validate::{header, labels, port, regex};

codes! {
    SOURCE_NAMESPACE: error "http-match-source-namespace", "give the name of a namespace";
}

/// Checks the matches of a route. `scope` is the list's.
pub(super) fn check(matches: &[HttpMatchRequest], mut scope: Scope<'_>) {
    for (index, matching) in matches.iter().enumerate() {
        request(matching, scope.item(index));
    }
    for (index, matching) in matches.iter().enumerate() {
        source(matching, scope.item(index));
    }
}

fn request(matching: &HttpMatchRequest, mut scope: Scope<'_>) {
    scope.each_entry("headers", &matching.headers, |name, value, mut scope| {
        scope.require(header::match_name(name));
        scope.require(regex::non_empty(value, "headers"));
    });
    scope.each_entry("withoutHeaders", &matching.without_headers, |name, value, mut scope| {
        scope.require(header::match_name(name));
        if !means_present(value) {
            scope.require(regex::non_empty(value, "withoutHeaders"));
        }
    });
    // An empty prefix of a path matches every path; of anything else a proxy refuses it.
    scope.optional("uri", matching.uri.as_ref(), |uri, mut scope| {
        scope.require(regex::matching(uri, "uri"));
    });
    let others =
        [("scheme", &matching.scheme), ("method", &matching.method), ("authority", &matching.authority)];
    for (field, value) in others {
        scope.optional(field, value.as_ref(), |value, mut scope| {
            scope.require(regex::non_empty(value, field));
        });
    }
    scope.each_entry("queryParams", &matching.query_params, |_, value, mut scope| {
        scope.require(regex::non_empty(value, "queryParams"));
    });
}

/// `regex: "*"` is no expression: it stands for a header that is there at all.
fn means_present(value: &StringMatch) -> bool {
    matches!(&value.match_type, Some(MatchType::Regex(text)) if text == "*")
}

fn source(matching: &HttpMatchRequest, mut scope: Scope<'_>) {
    if matching.port != 0 {
        scope.field("port").require(port::number(matching.port));
    }
    labels::check("sourceLabels", &matching.source_labels, scope.again());
    // Parity: Istio drops the warnings of a match.
    gateway_names(&matching.gateways, false, scope.field("gateways").without_warnings());
    let namespace = &matching.source_namespace;
    scope.field("sourceNamespace").add_if(!namespace.is_empty() && !is_dns_label(namespace), || {
        SOURCE_NAMESPACE.says(format!("sourceNamespace match {namespace} is invalid")).with_value(namespace)
    });
}
