//! Noticing that files changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Files;
use crate::Update;

/// An editor writes a file in several steps; they settle within this time.
const SETTLE: Duration = Duration::from_millis(20);

/// Some file systems do not tell of changes. Files are also looked at this often.
const RESCAN: Duration = Duration::from_secs(5);

/// Reads `files` whenever they change and sends what differs, until the receiver is gone.
///
/// A directory that cannot be read is reported and tried again; nothing is taken away meanwhile.
pub async fn watch(mut files: Files, updates: mpsc::Sender<Update>) {
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = start(&files.root, changed);
    let mut rescan = interval(RESCAN);
    rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut problems = Vec::new();
    while !updates.is_closed() {
        tokio::select! {
            Some(()) = changes.recv() => sleep(SETTLE).await,
            _ = rescan.tick() => {}
            () = updates.closed() => return,
        }
        let (result, back) = match tokio::task::spawn_blocking(move || (files.read(), files)).await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "reading files ended unexpectedly");
                return;
            }
        };
        files = back;
        let update =
            result.unwrap_or_else(|error| Update { problems: vec![error.to_string()], ..Update::default() });
        if update.changes_nothing() && update.problems == problems {
            continue;
        }
        problems.clone_from(&update.problems);
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

fn start(root: &Path, changed: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let notice = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A full channel already says that something changed.
            let _ = changed.try_send(());
        }
    };
    let watched = watched_directory(root);
    let started = notify::recommended_watcher(notice).and_then(|mut watcher| {
        watcher.watch(&watched, RecursiveMode::Recursive)?;
        Ok(watcher)
    });
    match started {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(path = %watched.display(), %error, "cannot watch files; looking every {RESCAN:?} instead");
            None
        }
    }
}

/// A single file is watched through its directory, so that replacing it is noticed.
fn watched_directory(root: &Path) -> PathBuf {
    match root.parent() {
        Some(parent) if root.is_file() => {
            if parent.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                parent.to_owned()
            }
        }
        _ => root.to_owned(),
    }
}
