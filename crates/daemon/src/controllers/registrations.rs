//! Counts of registrations, under istiod's names.

use canopus_controllers::{Change, Outcome, WorkloadRegistrationController, Write};
use canopus_runtime::metrics::catalogue::{
    AUTO_REGISTRATION_DELETES_TOTAL, AUTO_REGISTRATION_ERRORS_TOTAL, AUTO_REGISTRATION_SUCCESS_TOTAL,
    AUTO_REGISTRATION_UNREGISTER_TOTAL, AUTO_REGISTRATION_UPDATES_TOTAL,
};
use canopus_runtime::metrics::{Counter, Registry};

/// The counters.
pub(super) struct Registrations {
    registered: Counter,
    updated: Counter,
    unregistered: Counter,
    deleted: Counter,
    failed: Counter,
}

impl Registrations {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            registered: registry.value(AUTO_REGISTRATION_SUCCESS_TOTAL),
            updated: registry.value(AUTO_REGISTRATION_UPDATES_TOTAL),
            unregistered: registry.value(AUTO_REGISTRATION_UNREGISTER_TOTAL),
            deleted: registry.value(AUTO_REGISTRATION_DELETES_TOTAL),
            failed: registry.value(AUTO_REGISTRATION_ERRORS_TOTAL),
        }
    }

    /// Counts a write, if it is one of those that register machines.
    pub(super) fn count(&self, controller: &str, write: &Write, outcome: &Outcome) {
        if !matches!(controller, "workload-registration" | "workload-entry-cleanup") {
            return;
        }
        match (outcome, &write.change) {
            (Outcome::Forbidden(_) | Outcome::Failed(_), _) => self.failed.inc(),
            (Outcome::Written, Change::Create { .. }) => self.registered.inc(),
            (Outcome::Written, Change::Patch { .. }) if WorkloadRegistrationController::releases(write) => {
                self.unregistered.inc();
            }
            (Outcome::Written, Change::Patch { .. }) => self.updated.inc(),
            (Outcome::Written, Change::Delete { .. }) => self.deleted.inc(),
            _ => {}
        }
    }
}
