//! Repairs of what Envoy would refuse whole for one bad part.
//!
//! Istio sends such resources and leaves it to the proxy to reject them, so a proxy that does not say what it was built with
//! still gets them, byte for byte. One that does say gets the rest of the resource, with the bad part made harmless.

mod keys;

use std::collections::BTreeSet;

use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use canopus_proto::envoy::config::route::v3::{DirectResponseAction, RouteMatch};
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::JwtAuthentication;
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::value_matcher::MatchPattern as ValuePattern;
use canopus_proto::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, ValueMatcher, list_matcher::MatchPattern as ListPattern,
};

use crate::audience::Build;
use crate::jwt::UNKNOWN_KEYS;
use crate::listener::draft::Match;

/// Whether resources of such a proxy are repaired.
fn applies(build: &Build) -> bool {
    build.is_known()
}

/// Filter chains of which no two match the same connections: the first stays.
pub(crate) struct DistinctChains {
    /// What the chains so far match; `None` if they need not differ.
    seen: Option<BTreeSet<Vec<u8>>>,
}

impl DistinctChains {
    /// None yet.
    pub(crate) fn new(build: &Build) -> Self {
        Self { seen: applies(build).then(BTreeSet::new) }
    }

    /// Whether a chain that matches these connections can be one of them.
    pub(crate) fn admits(&mut self, matched: Option<&Match<'_>>) -> bool {
        let matched = || matched.map(Match::encode).unwrap_or_default();
        self.seen.as_mut().is_none_or(|seen| seen.insert(matched()))
    }
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

/// Keys that cannot be read are keys that nobody has: no token passes.
pub(crate) fn readable_keys(build: &Build, config: Any) -> Any {
    if !applies(build) {
        return config;
    }
    let Ok(mut filter) = config.unpack::<JwtAuthentication>() else { return config };
    let mut repaired = false;
    for provider in filter.providers.values_mut() {
        if let Some(JwksSourceSpecifier::LocalJwks(DataSource {
            specifier: Some(Specifier::InlineString(keys)),
            ..
        })) = &mut provider.jwks_source_specifier
            && !keys::are_usable(keys)
        {
            UNKNOWN_KEYS.clone_into(keys);
            repaired = true;
        }
    }
    if repaired { Any::pack(&filter) } else { config }
}

#[cfg(test)]
mod tests;
