//! Repairs of routes that Envoy would refuse whole for one bad part.
//!
//! Istio sends such resources and leaves it to the proxy to reject them, so a proxy that does not say what it was built with
//! still gets them, byte for byte. One that does say gets the rest of the resource, with the bad part made harmless. The same
//! is done for keys of tokens (`jwt::readable`) and for filter chains (`listener::distinct_chains`).

use canopus_proto::envoy::config::route::v3::{DirectResponseAction, RouteMatch};
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::value_matcher::MatchPattern as ValuePattern;
use canopus_proto::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, ValueMatcher, list_matcher::MatchPattern as ListPattern,
};

use crate::audience::Build;

/// Whether resources of such a proxy are repaired.
fn applies(build: &Build) -> bool {
    build.is_known()
}

/// Makes every condition of a route mean something.
pub(crate) fn complete_match(build: &Build, matched: &mut RouteMatch) {
    if applies(build) {
        matched.dynamic_metadata.iter_mut().filter_map(|claim| claim.value.as_mut()).for_each(state);
    }
}

/// What a route does instead of leading nowhere, where none of its destinations has any weight.
pub(crate) fn instead_of_nowhere(build: &Build) -> Option<DirectResponseAction> {
    // The same answer as for destinations that do not exist.
    applies(build).then(|| DirectResponseAction { status: 500, ..Default::default() })
}

/// A condition that asks only whether a claim is there asks for any text.
fn state(value: &mut ValueMatcher) {
    match &mut value.match_pattern {
        Some(ValuePattern::StringMatch(text)) if text.match_pattern.is_none() => {
            let regex = RegexMatcher { regex: ".*".to_owned(), ..Default::default() };
            *text =
                StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex)), ..Default::default() };
        }
        Some(ValuePattern::ListMatch(list)) => {
            if let Some(ListPattern::OneOf(one)) = &mut list.match_pattern {
                state(one);
            }
        }
        Some(ValuePattern::OrMatch(either)) => either.value_matchers.iter_mut().for_each(state),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
