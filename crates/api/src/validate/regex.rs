//! Regular expressions, and the matches that may be made with them.

use canopus_base::regex::check;
use canopus_proto::istio::networking::v1alpha3::StringMatch;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;

use super::code::{Fault, codes};
use crate::text::quoted;

codes! {
    TOO_LONG: error "regex-too-long", "use at most 1024 characters";
    INVALID: error "regex-invalid", "use RE2's syntax: no look-around and no back-references";
    EMPTY_REGEX: error "match-regex-empty", "give an expression, or leave the match out";
    EMPTY_PREFIX: error "match-prefix-empty", "give a prefix, or leave the match out";
}

const MAX_LENGTH: usize = 1024;

/// An expression that proxies can run; `place` is what the message calls the field.
pub fn pattern(text: &str, place: &str) -> Result<(), Fault> {
    if text.len() > MAX_LENGTH {
        let message = format!("{}: regex is too large, max length allowed is 1024", quoted(place));
        return Err(TOO_LONG.says(message));
    }
    check(text).map_err(|error| {
        let message = format!(
            "{}: {error}; Istio uses RE2 style regex-based match (https://github.com/google/re2/wiki/Syntax)",
            quoted(place)
        );
        INVALID.says(message).with_value(text)
    })
}

/// A match whose expression, if it is one, is there and can be run.
pub fn matching(matching: &StringMatch, place: &str) -> Result<(), Fault> {
    match &matching.match_type {
        Some(MatchType::Regex(text)) if text.is_empty() => {
            Err(EMPTY_REGEX.says(format!("{}: regex string match should not be empty", quoted(place))))
        }
        Some(MatchType::Regex(text)) => pattern(text, place),
        _ => Ok(()),
    }
}

/// Like [`matching`]; a prefix must not be empty.
pub fn non_empty(string: &StringMatch, place: &str) -> Result<(), Fault> {
    match &string.match_type {
        Some(MatchType::Prefix(prefix)) if prefix.is_empty() => {
            Err(EMPTY_PREFIX.says(format!("{}: prefix string match should not be empty", quoted(place))))
        }
        _ => matching(string, place),
    }
}
