//! How the sources of the world are doing: written by the apply loop, shown by debug endpoints.

use std::sync::Arc;

use canopus_sources::status::SourceStatus;
use parking_lot::Mutex;

/// The latest status of each source.
#[derive(Debug, Default)]
pub struct SourceStatuses(Mutex<Arc<[SourceStatus]>>);

impl SourceStatuses {
    /// The latest statuses.
    pub fn current(&self) -> Arc<[SourceStatus]> {
        Arc::clone(&self.0.lock())
    }

    /// Replaces all of them.
    pub(crate) fn set(&self, statuses: Vec<SourceStatus>) {
        *self.0.lock() = statuses.into();
    }
}
