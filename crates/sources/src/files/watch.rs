//! Noticing that files changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Files, Look};
use crate::event::{Event, Part};
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
            let (result, files) = match tokio::task::spawn_blocking(move || (self.look(), self)).await {
                Ok(looked) => looked,
                Err(error) => {
                    tracing::error!(%error, "looking at files ended unexpectedly");
                    return;
                }
            };
            self = files;
            if watched.moved(&self.root) {
                watched = Watched::start(&self.root, changed.clone());
            }
            let (mut events, settled) = match result {
                Ok(Look { events, settled }) => (events, settled),
                Err(error) => (vec![Event::Lost(Part::Whole, error.to_string())], true),
            };
            let failed = matches!(events.as_slice(), [Event::Lost(..)]);
            if lost && !failed {
                events.push(Event::Live(Part::Whole));
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
