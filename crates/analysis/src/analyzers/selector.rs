//! Equality selectors, as Istio's kinds have them.

use std::collections::BTreeMap;

use canopus_base::labels::Labels;

/// Whether all labels of the selector are there. An empty selector selects everything.
pub(super) fn selects(selector: &BTreeMap<String, String>, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The selector as `a=b,c=d`.
pub(super) fn text(selector: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// The selector's first key, which stands for it where a line is looked up.
pub(super) fn first_key(selector: &BTreeMap<String, String>) -> &str {
    selector.keys().next().map(String::as_str).unwrap_or_default()
}
