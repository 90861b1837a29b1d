//! What descriptors do not say about fields: which are required, how much they hold, which rules they keep.

mod extensions;
mod networking;
mod security;
mod telemetry;
mod types;

/// One thing said about a message or a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// The field must exist.
    Required,
    /// The smallest number.
    Minimum(i64),
    /// The largest number.
    Maximum(i64),
    /// The fewest characters.
    MinLength(i64),
    /// The most characters.
    MaxLength(i64),
    /// The regular expression that its text matches.
    Pattern(&'static str),
    /// The fewest items.
    MinItems(i64),
    /// The most items.
    MaxItems(i64),
    /// The fewest entries.
    MinProperties(i64),
    /// The most entries.
    MaxProperties(i64),
    /// No two items have the same value in this field.
    Keyed(&'static str),
    /// A rule in CEL, and what is said when it is broken.
    Rule { rule: &'static str, message: &'static str },
    /// At most one of these fields is there.
    AtMostOne { of: &'static [&'static str], message: &'static str },
    /// The rule with this message, which values of its type keep elsewhere, need not be kept here.
    Without(&'static str),
    /// A duration may be shorter than a millisecond.
    AnyDuration,
    /// The field may also be written under this name.
    Also(&'static str),
    /// What is said about each item of a list or each value of a map.
    Each(&'static [Limit]),
}

/// What is said about one message or field, by its name within its package.
type Entry = (&'static str, &'static [Limit]);

const PACKAGES: [(&str, &[Entry]); 6] = [
    ("istio.extensions.v1alpha1.", extensions::LIMITS),
    ("istio.networking.v1alpha3.", networking::LIMITS),
    ("istio.networking.v1beta1.", networking::PROXY_CONFIG_LIMITS),
    ("istio.security.v1beta1.", security::LIMITS),
    ("istio.telemetry.v1alpha1.", telemetry::LIMITS),
    ("istio.type.v1beta1.", types::LIMITS),
];

/// What is said about a message or field, by its full name.
pub(super) fn limits_for(full_name: &str) -> &'static [Limit] {
    let entry = PACKAGES.iter().find_map(|(package, entries)| {
        let name = full_name.strip_prefix(package)?;
        entries.iter().find(|(entry, _)| *entry == name)
    });
    entry.map_or(&[], |(_, limits)| limits)
}

/// The full name of everything something is said about.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = String> {
    PACKAGES
        .iter()
        .flat_map(|(package, entries)| entries.iter().map(move |(name, _)| format!("{package}{name}")))
}

const fn rule(rule: &'static str, message: &'static str) -> Limit {
    Limit::Rule { rule, message }
}

/// Ports there are.
const PORT: Limit = rule("0 < self && self <= 65535", "port must be between 1-65535");

/// A policy is for the workloads it selects or for the objects it refers to, not for both.
const ONE_TARGET: Limit = Limit::AtMostOne {
    of: &["selector", "targetRef", "targetRefs"],
    message: "only one of targetRefs or selector can be set",
};
