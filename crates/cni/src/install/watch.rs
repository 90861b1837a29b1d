//! Tells that something in one of several directories changed.

use std::path::PathBuf;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches directories. Those that cannot be watched are looked at again by the caller's clock.
pub struct DirectoryWatch {
    notify: Arc<Notify>,
    _watcher: Option<RecommendedWatcher>,
}

impl DirectoryWatch {
    /// Begins to watch.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let notify = Arc::new(Notify::new());
        let wake = Arc::clone(&notify);
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files is an event as well, and must not wake its reader.
            if event.map_or(true, |event| !event.kind.is_access()) {
                wake.notify_one();
            }
        });
        let mut watcher = made.inspect_err(|error| tracing::warn!("cannot watch directories: {error}")).ok();
        if let Some(watcher) = &mut watcher {
            for directory in directories {
                if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
                    tracing::warn!("cannot watch {}: {error}", directory.display());
                }
            }
        }
        Self { notify, _watcher: watcher }
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) {
        self.notify.notified().await;
    }
}
