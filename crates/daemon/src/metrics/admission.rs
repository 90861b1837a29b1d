//! What becomes of objects that are about to be stored.

use canopus_inject::validation::{Count, Resource};
use canopus_runtime::metrics::catalogue::{
    GALLEY_VALIDATION_FAILED, GALLEY_VALIDATION_HTTP_ERROR, GALLEY_VALIDATION_PASSED,
};
use canopus_runtime::metrics::{Counter, Family, Registry};

use super::labels;

/// Counts the answers of the validation webhook.
pub struct AdmissionMetrics {
    passed: Family<Counter, 3>,
    failed: Family<Counter, 4>,
    errors: Family<Counter, 1>,
}

impl AdmissionMetrics {
    /// Counts in this registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            passed: registry.family(GALLEY_VALIDATION_PASSED),
            failed: registry.family(GALLEY_VALIDATION_FAILED),
            errors: registry.family(GALLEY_VALIDATION_HTTP_ERROR),
        }
    }

    pub(crate) fn count(&self, count: &Count) {
        match count {
            Count::Passed(Resource { group, version, resource }) => {
                let [group, version, resource] = labels::resource(group, version, resource);
                self.passed.with([group, resource, version]).inc();
            }
            Count::Failed(Resource { group, version, resource }, reason) => {
                let [group, version, resource] = labels::resource(group, version, resource);
                self.failed.with([group, reason.label(), resource, version]).inc();
            }
            Count::HttpError(status) => self.errors.with([&status.to_string()]).inc(),
        }
    }
}
