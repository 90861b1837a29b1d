//! What becomes of objects that are about to be stored.

use std::time::Duration;

use canopus_admission::injection::webhook::Outcome;
use canopus_admission::validation::{Count, Resource};
use canopus_runtime::metrics::catalogue::{
    GALLEY_VALIDATION_FAILED, GALLEY_VALIDATION_HTTP_ERROR, GALLEY_VALIDATION_PASSED,
    SIDECAR_INJECTION_FAILURE_TOTAL, SIDECAR_INJECTION_REQUESTS_TOTAL, SIDECAR_INJECTION_SKIP_TOTAL,
    SIDECAR_INJECTION_SUCCESS_TOTAL, SIDECAR_INJECTION_TIME_SECONDS,
};
use canopus_runtime::metrics::{Counter, Family, Histogram, Registry};

use super::labels;

/// Counts the answers of the webhooks.
pub struct AdmissionMetrics {
    passed: Family<Counter, 3>,
    failed: Family<Counter, 4>,
    errors: Family<Counter, 1>,
    injections: InjectionMetrics,
}

/// Counts the answers of the injector.
struct InjectionMetrics {
    requests: Family<Counter, 0>,
    successes: Family<Counter, 0>,
    failures: Family<Counter, 0>,
    skips: Family<Counter, 0>,
    seconds: Family<Histogram, 0>,
}

impl AdmissionMetrics {
    /// Counts in this registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            passed: registry.family(GALLEY_VALIDATION_PASSED),
            failed: registry.family(GALLEY_VALIDATION_FAILED),
            errors: registry.family(GALLEY_VALIDATION_HTTP_ERROR),
            injections: InjectionMetrics {
                requests: registry.family(SIDECAR_INJECTION_REQUESTS_TOTAL),
                successes: registry.family(SIDECAR_INJECTION_SUCCESS_TOTAL),
                failures: registry.family(SIDECAR_INJECTION_FAILURE_TOTAL),
                skips: registry.family(SIDECAR_INJECTION_SKIP_TOTAL),
                seconds: registry.family(SIDECAR_INJECTION_TIME_SECONDS),
            },
        }
    }

    pub(crate) fn count_injection(&self, outcome: &Outcome, took: Duration) {
        let injections = &self.injections;
        injections.requests.with([]).inc();
        injections.seconds.with([]).observe(took.as_secs_f64());
        let counted = [
            (outcome.answered, &injections.successes),
            (outcome.failure.is_some(), &injections.failures),
            (outcome.skipped, &injections.skips),
        ];
        for (_, counter) in counted.iter().filter(|(happened, _)| *happened) {
            counter.with([]).inc();
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
