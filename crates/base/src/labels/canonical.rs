//! Which service and revision a workload says it is, for telemetry.

use super::Labels;

/// The label that names the canonical service outright.
pub const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
/// The label that names the canonical revision outright.
pub const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

const NAME_LABELS: [&str; 3] = [CANONICAL_NAME, "app.kubernetes.io/name", "app"];
const REVISION_LABELS: [&str; 3] = [CANONICAL_REVISION, "app.kubernetes.io/version", "version"];

/// The first of the given labels that is present.
fn first(labels: &Labels, mut keys: impl Iterator<Item = &'static str>) -> Option<&str> {
    keys.find_map(|key| labels.get(key))
}

/// The canonical service that the labels name, if they do.
pub fn name(labels: &Labels) -> Option<&str> {
    first(labels, NAME_LABELS.into_iter())
}

/// The canonical revision that the labels name, if they do.
pub fn revision(labels: &Labels) -> Option<&str> {
    first(labels, REVISION_LABELS.into_iter())
}

/// Canonical service and revision of a workload, falling back to the workload's name and to `latest`.
pub fn service<'a>(labels: &'a Labels, workload_name: &'a str) -> (&'a str, &'a str) {
    (name(labels).unwrap_or(workload_name), revision(labels).unwrap_or("latest"))
}

/// The application a workload belongs to.
///
/// Parity: the same labels as [`name`] in the opposite order, because proxies are named by `app` first.
pub fn app(labels: &Labels) -> Option<&str> {
    first(labels, NAME_LABELS.into_iter().rev())
}
