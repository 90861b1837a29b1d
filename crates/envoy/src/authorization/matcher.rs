//! Values of policies, which may begin or end with `*`, as Envoy matches them.

use canopus_proto::envoy::config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier};
use canopus_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment::Segment};
use canopus_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
    string_matcher::MatchPattern, value_matcher,
};

/// Any text that is not empty.
pub(super) const PRESENT: &str = ".+";

/// A text matched in one way, its case counting or not.
fn text(pattern: MatchPattern, ignore_case: bool) -> StringMatcher {
    StringMatcher { ignore_case, match_pattern: Some(pattern) }
}

/// Exactly this text.
pub(super) fn exact(value: impl Into<String>) -> StringMatcher {
    text(MatchPattern::Exact(value.into()), false)
}

/// A text that begins like this.
pub(super) fn prefix(value: impl Into<String>) -> StringMatcher {
    text(MatchPattern::Prefix(value.into()), false)
}

/// A text that ends like this.
pub(super) fn suffix(value: impl Into<String>) -> StringMatcher {
    text(MatchPattern::Suffix(value.into()), false)
}

/// A text that an expression matches as a whole.
pub(super) fn regex(regex: impl Into<String>) -> StringMatcher {
    let regex = RegexMatcher { regex: regex.into(), ..Default::default() };
    text(MatchPattern::SafeRegex(regex), false)
}

/// The text a value stands for; `*` alone is any that is not empty.
pub(super) fn wildcard(value: &str) -> StringMatcher {
    wildcard_after("", value)
}

/// The same, with `before` in front of every text but the one that `*` alone stands for.
pub(super) fn wildcard_after(before: &str, value: &str) -> StringMatcher {
    if value == "*" {
        return regex(PRESENT);
    }
    match (value.strip_prefix('*'), value.strip_suffix('*')) {
        (Some(rest), _) if before.is_empty() => suffix(rest),
        (Some(rest), _) => regex(format!("{before}.*{}", quote(rest))),
        (None, Some(rest)) => prefix(format!("{before}{rest}")),
        (None, None) => exact(format!("{before}{value}")),
    }
}

/// An expression that matches a text and nothing else.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    add_quoted(&mut quoted, text);
    quoted
}

/// Adds [`quote`] to an expression.
pub(super) fn add_quoted(expression: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$') {
            expression.push('\\');
        }
        expression.push(c);
    }
}

/// A header whose value is what `value` stands for; `*` alone asks for its presence.
pub(super) fn header(name: &str, value: &str, ignore_case: bool) -> HeaderMatcher {
    let specifier = if value == "*" {
        HeaderMatchSpecifier::PresentMatch(true)
    } else {
        HeaderMatchSpecifier::StringMatch(StringMatcher { ignore_case, ..wildcard(value) })
    };
    HeaderMatcher { name: name.into(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// A value that is text.
pub(super) fn text_value(text: StringMatcher) -> ValueMatcher {
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::StringMatch(text)) }
}

/// A list that has a value.
pub(super) fn list_with(value: ValueMatcher) -> ValueMatcher {
    let one_of = list_matcher::MatchPattern::OneOf(Box::new(value));
    let list = ListMatcher { match_pattern: Some(one_of) };
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(list))) }
}

/// A value that one of these matches; one alone stands for itself.
pub(super) fn one_of(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    match values.pop() {
        Some(only) if values.is_empty() => only,
        last => {
            values.extend(last);
            let any = OrMatcher { value_matchers: values };
            ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(any)) }
        }
    }
}

/// A value in the metadata that a filter noted under nested keys.
pub(super) fn metadata<'a>(
    filter: &str,
    keys: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment { segment: Some(Segment::Key(key.into())) };
    MetadataMatcher {
        filter: filter.into(),
        path: keys.into_iter().map(segment).collect(),
        value: Some(value),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_with_a_meaning_are_quoted() {
        assert_eq!(quote(r"a.b[0]\{c}-d"), r"a\.b\[0\]\\\{c\}-d");
    }

    #[test]
    fn text_before_a_wildcard_makes_it_an_expression() {
        assert_eq!(wildcard_after("spiffe://", "*/sa/a.b"), regex(r"spiffe://.*/sa/a\.b"));
        assert_eq!(wildcard_after("spiffe://", "a*"), prefix("spiffe://a"));
        assert_eq!(wildcard_after("spiffe://", "*"), regex(".+"));
        assert_eq!(wildcard("*a"), suffix("a"));
    }
}
