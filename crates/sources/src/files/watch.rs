//! Noticing that files changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use canopus_runtime::tasks;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Files, Look};
use crate::change::{Change, SourcePart};
use crate::feed::{Feed, Source};

/// An editor writes a file in several steps; they settle within this time.
const SETTLE: Duration = Duration::from_millis(20);

/// What is missing must still be missing after this time.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// Some file systems do not tell of changes. Files are also looked at this often.
const RESCAN: Duration = Duration::from_secs(5);

impl Source for Files {
    /// Looks whenever something changes. A directory that cannot be read is reported and looked at again.
    async fn run(mut self, feed: Feed) {
        let (changed, mut changes) = mpsc::channel(1);
        let mut watched = Watched::start(&self.root, changed.clone());
        let mut lost = false;
        let mut next = Instant::now();
        loop {
            tokio::select! {
                Some(()) = changes.recv() => sleep(SETTLE).await,
                () = sleep_until(next) => {}
                () = feed.closed() => return,
            }
            let looked = tokio::task::spawn_blocking(move || {
                // A panic costs one look, not the files that are known.
                (catch_unwind(AssertUnwindSafe(|| self.look())), self)
            });
            // The runtime stops.
            let Ok((result, files)) = looked.await else { return };
            self = files;
            if watched.moved(&self.root) {
                watched = Watched::start(&self.root, changed.clone());
            }
            let (mut events, settled) = match result {
                Ok(Ok(Look { events, settled })) => (events, settled),
                Ok(Err(error)) => (vec![Change::Lost(SourcePart::Whole, error.to_string())], true),
                Err(panic) => (vec![Change::Lost(SourcePart::Whole, tasks::caught("files", &*panic))], true),
            };
            let failed = matches!(events.as_slice(), [Change::Lost(..)]);
            if lost && !failed {
                events.push(Change::Live(SourcePart::Whole));
            }
            lost = failed;
            next = Instant::now() + if settled { RESCAN } else { SECOND_LOOK };
            if !events.is_empty() && feed.send(events).await.is_err() {
                return;
            }
        }
    }
}

/// A directory that is watched.
struct Watched {
    /// Where the links of its path led to.
    target: Option<PathBuf>,
    _watcher: Option<RecommendedWatcher>,
}

impl Watched {
    fn start(root: &Path, changed: mpsc::Sender<()>) -> Self {
        let notice = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // A full channel already says that something changed.
                let _ = changed.try_send(());
            }
        };
        let started = notify::recommended_watcher(notice).and_then(|mut watcher| {
            for (directory, mode) in watched_directories(root) {
                watcher.watch(&directory, mode)?;
            }
            Ok(watcher)
        });
        let watcher = started.map_err(|error| {
            tracing::warn!(path = %root.display(), %error, "cannot watch files; looking every {RESCAN:?} instead");
        });
        Self { target: root.canonicalize().ok(), _watcher: watcher.ok() }
    }

    /// Whether the path leads elsewhere by now, as when a link was swapped.
    fn moved(&self, root: &Path) -> bool {
        let target = root.canonicalize().ok();
        target.is_some() && target != self.target
    }
}

/// A single file is watched through its directory, so that replacing it is noticed; so is a link to a directory.
fn watched_directories(root: &Path) -> Vec<(PathBuf, RecursiveMode)> {
    let parent = match root.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => return vec![(root.to_owned(), RecursiveMode::Recursive)],
    };
    if !root.is_dir() {
        return vec![(parent, RecursiveMode::NonRecursive)];
    }
    let mut directories = vec![(root.to_owned(), RecursiveMode::Recursive)];
    if root.is_symlink() {
        directories.push((parent, RecursiveMode::NonRecursive));
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Intake;
    use crate::change::SourceInfo;

    #[tokio::test]
    async fn files_are_looked_at_again_when_a_look_panics() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join("a.yaml"),
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {ports: [{port: 80}]}",
        )
        .unwrap();
        let mut intake = Intake::new();
        let feed = intake.feed(SourceInfo::new("files", "c", 0));
        let mut files = Files::new(directory.path());
        files.is_broken = true;
        let running = tokio::spawn(files.run(feed));
        let mut objects = 0;
        let found = async {
            while objects == 0 {
                objects += intake.next().await.changes.len();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.unwrap();
        assert_eq!(objects, 1);
        assert_eq!(tasks::panics()["files"], 1);
        running.abort();
    }
}
