//! Matches by path prefix that an earlier, shorter prefix takes everything from.

use std::collections::{BTreeMap, BTreeSet};

use canopus_base::FastMap;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpRoute, StringMatch};

use super::{ineffective, label};
use crate::validate::report::MAX_FINDINGS;
use crate::validate::scope::Scope;

/// A match by path prefix, as far as it is compared.
pub(super) struct PrefixMatch<'a> {
    rule: usize,
    index: usize,
    rule_label: String,
    label: String,
    prefix: &'a str,
    port: u32,
    method: Pattern<'a>,
    authority: Pattern<'a>,
    headers: Patterns<'a>,
    query: Patterns<'a>,
    without_headers: Patterns<'a>,
}

type Patterns<'a> = BTreeMap<&'a str, Pattern<'a>>;

/// How a text is matched, as far as it is compared: expressions are not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern<'a> {
    Anything,
    Exact(&'a str),
    Prefix(&'a str),
}

impl<'a> Pattern<'a> {
    fn from_string_match(matching: &'a StringMatch) -> Self {
        match &matching.match_type {
            Some(MatchType::Exact(text)) if !text.is_empty() => Self::Exact(text),
            Some(MatchType::Prefix(text)) if !text.is_empty() => Self::Prefix(text),
            _ => Self::Anything,
        }
    }

    fn optional(matching: Option<&'a StringMatch>) -> Self {
        matching.map_or(Self::Anything, Self::from_string_match)
    }

    fn all(matches: &'a BTreeMap<String, StringMatch>) -> Patterns<'a> {
        matches.iter().map(|(name, matching)| (name.as_str(), Self::from_string_match(matching))).collect()
    }

    /// Parity: Istio compares texts the wrong way round, so that a narrower earlier pattern counts as covering.
    fn covers(self, later: Self) -> bool {
        match (self, later) {
            (_, Self::Anything) => true,
            (Self::Exact(earlier), Self::Exact(later)) | (Self::Prefix(earlier), Self::Prefix(later)) => {
                earlier.starts_with(later)
            }
            _ => false,
        }
    }
}

impl<'a> PrefixMatch<'a> {
    /// The match of a route, if it is by path prefix.
    pub(super) fn from_route(route: &'a HttpRoute, rule: usize, index: usize) -> Option<Self> {
        let matching = &route.r#match[index];
        let Some(MatchType::Prefix(prefix)) = matching.uri.as_ref()?.match_type.as_ref() else { return None };
        if prefix.is_empty() {
            return None;
        }
        let method = match Pattern::optional(matching.method.as_ref()) {
            // Parity: Istio takes a match without a method for one of GET.
            Pattern::Anything => Pattern::Exact("GET"),
            method => method,
        };
        Some(Self {
            rule,
            index,
            rule_label: label(&route.name, rule),
            label: label(&matching.name, index),
            prefix,
            port: matching.port,
            method,
            authority: Pattern::optional(matching.authority.as_ref()),
            headers: Pattern::all(&matching.headers),
            query: Pattern::all(&matching.query_params),
            without_headers: Pattern::all(&matching.without_headers),
        })
    }

    /// Whether it takes everything from a later match whose prefix is longer.
    fn covers(&self, later: &Self) -> bool {
        self.port == later.port
            && self.method.covers(later.method)
            && self.authority.covers(later.authority)
            && all_cover(&self.headers, &later.headers)
            && all_cover(&self.query, &later.query)
            && all_cover(&self.without_headers, &later.without_headers)
    }
}

fn all_cover(earlier: &Patterns<'_>, later: &Patterns<'_>) -> bool {
    earlier.len() == later.len()
        && earlier.iter().all(|(name, pattern)| later.get(name).is_some_and(|later| pattern.covers(*later)))
}

/// Warns of each later match for each earlier one that covers it. `scope` is the list of routes.
pub(super) fn check(matches: &[PrefixMatch<'_>], mut scope: Scope<'_>) {
    for (earlier, later) in covered(matches) {
        let (earlier, later) = (&matches[earlier], &matches[later]);
        let matching = format!("{} of prefix {}", later.label, later.prefix);
        let hidden_by = format!("{} of prefix {} on {}", earlier.label, earlier.prefix, earlier.rule_label);
        let mut scope = scope.item(later.rule);
        ineffective(later.rule_label.clone(), matching, hidden_by, scope.field("match").item(later.index));
    }
}

/// The pairs of an earlier match and a later one that it covers. Only prefixes that contain each other are compared, since
/// thousands of routes in one object are common.
fn covered(matches: &[PrefixMatch<'_>]) -> BTreeSet<(usize, usize)> {
    let mut pairs = BTreeSet::new();
    let mut lengths = BTreeSet::new();
    let mut by_prefix = FastMap::<&[u8], Vec<usize>>::default();
    for (later, matching) in matches.iter().enumerate() {
        let prefix = matching.prefix.as_bytes();
        for length in lengths.range(..prefix.len()) {
            for &earlier in by_prefix.get(&prefix[..*length]).into_iter().flatten() {
                if pairs.len() == MAX_FINDINGS {
                    return pairs;
                }
                if matches[earlier].covers(matching) {
                    pairs.insert((earlier, later));
                }
            }
        }
        lengths.insert(prefix.len());
        by_prefix.entry(prefix).or_default().push(later);
    }
    pairs
}
