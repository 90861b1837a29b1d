//! Conditions on texts and values.

use canopus_proto::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, StringMatcher, ValueMatcher, list_matcher, value_matcher,
};
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use regex::Regex;

/// Whether a text meets a condition.
pub(super) fn matches(matcher: &StringMatcher, text: &str) -> bool {
    let fold = |text: &str| if matcher.ignore_case { text.to_lowercase() } else { text.to_owned() };
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(wanted)) => fold(text) == fold(wanted),
        Some(MatchPattern::Prefix(wanted)) => fold(text).starts_with(&fold(wanted)),
        Some(MatchPattern::Suffix(wanted)) => fold(text).ends_with(&fold(wanted)),
        Some(MatchPattern::Contains(wanted)) => fold(text).contains(&fold(wanted)),
        Some(MatchPattern::SafeRegex(regex)) => is_full_match(&regex.regex, text),
        Some(MatchPattern::Custom(_)) | None => false,
    }
}

/// Whether an expression matches the whole text. One that cannot be compiled matches nothing.
pub(super) fn is_full_match(regex: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{regex})$")).is_ok_and(|regex| regex.is_match(text))
}

/// Whether what filters know of a request meets a condition.
pub(super) fn metadata_matches(matcher: &MetadataMatcher, known: Option<&Struct>) -> bool {
    let segments = matcher.path.iter().filter_map(|segment| segment.segment.as_ref());
    let mut keys = segments.map(|Segment::Key(key)| key);
    let first = keys.next().zip(known).and_then(|(key, known)| known.fields.get(key));
    let found = keys.fold(first, |value, key| match value?.kind.as_ref()? {
        Kind::StructValue(inner) => inner.fields.get(key),
        _ => None,
    });
    let holds = matcher.value.as_ref().is_some_and(|wanted| value_matches(wanted, found));
    holds != matcher.invert
}

fn value_matches(matcher: &ValueMatcher, value: Option<&Value>) -> bool {
    use value_matcher::MatchPattern as Pattern;
    let kind = value.and_then(|value| value.kind.as_ref());
    match (&matcher.match_pattern, kind) {
        (Some(Pattern::PresentMatch(wanted)), kind) => kind.is_some() == *wanted,
        (Some(Pattern::OrMatch(any)), _) => any.value_matchers.iter().any(|one| value_matches(one, value)),
        (Some(Pattern::StringMatch(wanted)), Some(Kind::StringValue(text))) => matches(wanted, text),
        (Some(Pattern::BoolMatch(wanted)), Some(Kind::BoolValue(value))) => wanted == value,
        (Some(Pattern::NullMatch(_)), Some(Kind::NullValue(_))) => true,
        (Some(Pattern::ListMatch(wanted)), Some(Kind::ListValue(list))) => list_matches(wanted, &list.values),
        _ => false,
    }
}

fn list_matches(matcher: &ListMatcher, values: &[Value]) -> bool {
    match &matcher.match_pattern {
        Some(list_matcher::MatchPattern::OneOf(wanted)) => {
            values.iter().any(|value| value_matches(wanted, Some(value)))
        }
        None => false,
    }
}
