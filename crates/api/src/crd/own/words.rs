//! What kinds and fields mean, for `kubectl explain`.

mod destination_rule;
mod extensions;
mod gateway;
mod patch;
mod route;
mod security;
mod status;
mod telemetry;
mod types;
mod workload;

/// What is said about one message, by its name within its package: first about itself, then about its fields.
type Entry = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PACKAGES: [(&str, &[Entry]); 13] = [
    ("istio.analysis.v1alpha1.", status::ANALYSIS),
    ("istio.extensions.v1alpha1.", extensions::WORDS),
    ("istio.meta.v1alpha1.", status::WORDS),
    ("istio.networking.v1alpha3.", destination_rule::WORDS),
    ("istio.networking.v1alpha3.", gateway::WORDS),
    ("istio.networking.v1alpha3.", patch::WORDS),
    ("istio.networking.v1alpha3.", route::WORDS),
    ("istio.networking.v1alpha3.", workload::WORDS),
    ("istio.networking.v1beta1.", workload::PROXY_CONFIG),
    ("istio.security.v1beta1.", security::WORDS),
    ("istio.telemetry.v1alpha1.", telemetry::WORDS),
    ("istio.type.v1beta1.", types::WORDS),
    ("istio.networking.v1alpha3.", types::NETWORKING),
];

/// What is said about a message.
pub(super) fn about(message: &str) -> Option<&'static str> {
    find(message).map(|(_, about, _)| *about)
}

/// What is said about a field of a message.
pub(super) fn about_field(message: &str, field: &str) -> Option<&'static str> {
    let (.., fields) = find(message)?;
    fields.iter().find(|(name, _)| *name == field).map(|(_, about)| *about)
}

fn find(message: &str) -> Option<&'static Entry> {
    PACKAGES.iter().find_map(|(package, entries)| {
        let name = message.strip_prefix(package)?;
        entries.iter().find(|(entry, ..)| *entry == name)
    })
}

/// The messages and fields something is said about.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (String, &'static str)> {
    PACKAGES.iter().flat_map(|(package, entries)| {
        entries.iter().flat_map(move |(message, _, fields)| {
            fields.iter().map(move |(field, _)| (format!("{package}{message}"), *field))
        })
    })
}
