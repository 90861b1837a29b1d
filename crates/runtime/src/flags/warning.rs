//! What is odd about the settings, for the log at start-up.

use std::collections::BTreeMap;

use super::spec::{Area, Spec};

/// A setting that does not have the effect its user may expect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The value cannot be parsed.
    #[error("{name}: {value} is not valid, expected {expected}; using {used}")]
    Invalid {
        /// Variable.
        name: &'static str,
        /// The value, quoted; a secret is masked.
        value: String,
        /// What would be valid.
        expected: String,
        /// The value in its place.
        used: String,
    },
    /// The flag does not count because another is off.
    #[error("{name}: ignored, because {requires} is not on")]
    Ignored {
        /// Variable.
        name: &'static str,
        /// The flag that would have to be on.
        requires: &'static str,
    },
    /// The name looks like a flag but is none.
    #[error("{name}: not a flag of this build{}", suggest(*.similar))]
    Unknown {
        /// Variable.
        name: String,
        /// A flag with nearly the same name.
        similar: Option<&'static str>,
    },
}

fn suggest(similar: Option<&'static str>) -> String {
    similar.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Variables that look like flags and are none.
pub(super) fn unknown(variables: &BTreeMap<String, String>) -> impl Iterator<Item = Warning> {
    variables
        .keys()
        .filter(|name| name.starts_with("PILOT_") || name.starts_with("ISTIO_"))
        .filter(|name| !is_metadata(name) && !is_service_link(name))
        .filter(|name| all_specs().all(|spec| spec.name != *name))
        .map(|name| Warning::Unknown { name: name.clone(), similar: similar(name) })
}

fn all_specs() -> impl Iterator<Item = &'static Spec> {
    Area::ALL.into_iter().flat_map(Area::specs)
}

/// Whether the variable is metadata of a proxy, whose names are free.
fn is_metadata(name: &str) -> bool {
    name.starts_with("ISTIO_META_") || name.starts_with("ISTIO_METAJSON_")
}

/// Whether Kubernetes set the variable because a service has such a name.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_PORT")
        || ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|mark| name.contains(mark))
}

/// The flag whose name differs in at most three characters, the nearest one.
fn similar(name: &str) -> Option<&'static str> {
    all_specs()
        .map(|spec| (distance(name, spec.name), spec.name))
        .filter(|(distance, _)| *distance <= 3)
        .min()
        .map(|(_, name)| name)
}

/// Number of insertions, deletions and replacements between two names.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn unknown_names(names: [&str; 1]) -> Vec<String> {
        unknown(&names.map(|name| (name, "")).variables()).map(|warning| warning.to_string()).collect()
    }

    #[test]
    fn counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn suggests_a_similar_flag() {
        assert_eq!(
            unknown_names(["PILOT_DEBOUNCE_AFTR"]),
            ["PILOT_DEBOUNCE_AFTR: not a flag of this build; did you mean PILOT_DEBOUNCE_AFTER?"]
        );
        assert_eq!(
            unknown_names(["PILOT_ENABLE_TELEPATHY_AT_A_DISTANCE"]),
            ["PILOT_ENABLE_TELEPATHY_AT_A_DISTANCE: not a flag of this build"]
        );
    }

    #[test]
    fn leaves_other_names_alone() {
        for name in [
            "HOME",
            "PILOT_DEBOUNCE_AFTER",
            "ISTIO_META_NETWORK",
            "ISTIO_METAJSON_LABELS",
            "ISTIO_INGRESSGATEWAY_SERVICE_HOST",
            "ISTIO_INGRESSGATEWAY_SERVICE_PORT_HTTP2",
            "ISTIO_INGRESSGATEWAY_PORT",
            "ISTIO_INGRESSGATEWAY_PORT_80_TCP_ADDR",
        ] {
            assert!(unknown_names([name]).is_empty(), "{name}");
        }
    }
}
