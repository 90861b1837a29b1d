//! Trees of matches, as waypoints choose their filter chains by.

use canopus_proto::Message as _;
use canopus_proto::xds::r#type::matcher::v3::matcher::matcher_tree::TreeType;
use canopus_proto::xds::r#type::matcher::v3::matcher::on_match::OnMatch as Outcome;
use canopus_proto::xds::r#type::matcher::v3::matcher::{MatcherType, OnMatch};
use canopus_proto::xds::r#type::matcher::v3::{IpMatcher, Matcher};

const IP_MATCHER: &str = "type.googleapis.com/xds.type.matcher.v3.IPMatcher";

/// The conditions under which a tree chooses the chain of this name.
pub(super) fn paths(chain: &str, tree: &Matcher) -> Vec<String> {
    let none = || vec!["NONE".to_owned()];
    match outcome(tree.on_no_match.as_deref()) {
        Some(Outcome::Action(action)) if action.name == chain => vec!["UNMATCHED".to_owned()],
        Some(Outcome::Matcher(inner)) => search(chain, inner).unwrap_or_else(none),
        _ => search(chain, tree).unwrap_or_else(none),
    }
}

fn outcome(on_match: Option<&OnMatch>) -> Option<&Outcome> {
    on_match?.on_match.as_ref()
}

fn search(chain: &str, tree: &Matcher) -> Option<Vec<String>> {
    match outcome(tree.on_no_match.as_deref()) {
        Some(Outcome::Action(action)) if action.name == chain => return Some(vec!["ANY".to_owned()]),
        Some(Outcome::Matcher(inner)) => {
            return Some(search(chain, inner).unwrap_or_else(|| vec!["NONE".to_owned()]));
        }
        _ => {}
    }
    let Some(MatcherType::MatcherTree(tree)) = &tree.matcher_type else { return None };
    let input = tree.input.as_ref().map(|input| input.name.as_str()).unwrap_or_default();
    let mut found = Vec::new();
    let mut add = |equality: &str, key: &str, on_match: Option<&OnMatch>| match outcome(on_match) {
        Some(Outcome::Action(action)) if action.name == chain => {
            found.push(format!("{input}{equality}{key}"));
        }
        Some(Outcome::Matcher(inner)) => {
            let below = search(chain, inner).unwrap_or_default();
            found.extend(below.into_iter().map(|below| format!("{input}{equality}{key} -> {below}")));
        }
        _ => {}
    };
    match &tree.tree_type {
        Some(TreeType::ExactMatchMap(map)) => {
            map.map.iter().for_each(|(key, on_match)| add("=", key, Some(on_match)));
        }
        Some(TreeType::PrefixMatchMap(map)) => {
            map.map.iter().for_each(|(key, on_match)| add("^", key, Some(on_match)));
        }
        Some(TreeType::CustomMatch(custom)) => {
            let config = custom.typed_config.clone().unwrap_or_default();
            let addresses =
                if config.type_url == IP_MATCHER { IpMatcher::decode(config.value).ok() } else { None };
            for matcher in addresses.iter().flat_map(|addresses| &addresses.range_matchers) {
                for range in &matcher.ranges {
                    let length = range.prefix_len.as_ref().map(|length| length.value).unwrap_or_default();
                    let is_single = length == 32 || length == 128;
                    let prefix = &range.address_prefix;
                    let key = if is_single { prefix.clone() } else { format!("{prefix}/{length}") };
                    add("=", &key, matcher.on_match.as_ref());
                }
            }
        }
        None => {}
    }
    (!found.is_empty()).then_some(found)
}
