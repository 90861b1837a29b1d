//! Holders of the locks, for debug output.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::Record;

/// A lock as this process last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// Kind, namespace and name of the object that the lock is part of.
    pub lock: String,
    /// Whether this process leads.
    pub leading: bool,
    /// Holder of the lock; empty if it is free, or was not seen yet.
    pub holder: String,
    /// The revision of the holder.
    pub holder_revision: String,
    /// Since when, in RFC 3339.
    pub acquired: String,
    /// When the holder last renewed it.
    pub renewed: String,
    /// How often it changed hands.
    pub transitions: u64,
    /// Why it cannot be read or renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The locks that the elections of a process take part in. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Leaders(Arc<Mutex<BTreeMap<String, LockStatus>>>);

impl Leaders {
    /// All locks, by name.
    pub fn all(&self) -> Vec<LockStatus> {
        self.0.lock().values().cloned().collect()
    }

    /// Takes note of what a lock says.
    pub(super) fn note_record(&self, lock: &str, record: &Record) {
        self.change(lock, |status| {
            status.holder.clone_from(&record.holder_identity);
            status.holder_revision.clone_from(&record.holder_key);
            status.acquired.clone_from(&record.acquire_time);
            status.renewed.clone_from(&record.renew_time);
            status.transitions = record.leader_transitions;
        });
    }

    /// Takes note of how the last attempt at a lock ended.
    pub(super) fn note_attempt(&self, lock: &str, leading: bool, trouble: Option<String>) {
        self.change(lock, |status| {
            status.leading = leading;
            status.trouble = trouble;
        });
    }

    fn change(&self, lock: &str, change: impl FnOnce(&mut LockStatus)) {
        let mut all = self.0.lock();
        let status = all.entry(lock.to_owned()).or_default();
        lock.clone_into(&mut status.lock);
        change(status);
    }
}
