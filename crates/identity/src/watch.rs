//! Following the files of a plugged-in authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustls_pki_types::UnixTime;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::authority::Authority;
use crate::bundle::{Bundle, BundleError};
use crate::plugged::{self, Files, PluggedError, ReloadRefused};

/// How long files may still change after the first change before they are read. Parity: istiod waits as long.
pub const SETTLE: Duration = Duration::from_millis(100);

/// Why files are not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The files cannot be read.
    #[error(transparent)]
    Files(#[from] PluggedError),
    /// The files are gone.
    #[error("{}: there is no authority in it any more", .0.display())]
    Gone(PathBuf),
    /// The files do not make a working authority.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The files may not replace those in use.
    #[error(transparent)]
    Refused(#[from] ReloadRefused),
}

/// Follows the files of a directory for an authority that started with them.
pub struct Follower {
    directory: PathBuf,
    authority: Arc<Authority>,
    multi_root: bool,
    with_crl: bool,
    changed: Arc<Notify>,
    _watcher: RecommendedWatcher,
}

impl Follower {
    /// Watches the directory from now on.
    pub fn new(
        directory: &Path,
        authority: Arc<Authority>,
        multi_root: bool,
        with_crl: bool,
    ) -> Result<Self, notify::Error> {
        let changed = Arc::new(Notify::new());
        let signal = Arc::clone(&changed);
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
                // A Secret that is mounted changes by a rename of a link.
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
                Ok(_) => signal.notify_one(),
                Err(error) => error!(%error, "cannot watch the plugged-in CA"),
            })?;
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
        Ok(Self {
            directory: directory.to_owned(),
            authority,
            multi_root,
            with_crl,
            changed,
            _watcher: watcher,
        })
    }

    /// Takes new files as they come, for ever; `replaced` is called after each exchange.
    pub async fn run(self, mut replaced: impl FnMut(&Arc<Bundle>)) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(SETTLE).await;
            match self.reload(UnixTime::now()) {
                Ok(Some(bundle)) => {
                    info!(directory = %self.directory.display(), "the plugged-in CA was replaced");
                    replaced(&bundle);
                }
                Ok(None) => {}
                Err(error) => warn!("the plugged-in CA stays as it was: {error}"),
            }
        }
    }

    /// Reads the files; the new bundle, if it is another one and was taken.
    pub fn reload(&self, now: UnixTime) -> Result<Option<Arc<Bundle>>, ReloadError> {
        let files = Files::find(&self.directory, self.with_crl)?;
        let files = files.ok_or_else(|| ReloadError::Gone(self.directory.clone()))?;
        let parts = files.read()?;
        let mut next = Bundle::new(&parts, now)?;
        if let Some(current) = self.authority.bundle() {
            if current.is_same(&next) {
                return Ok(None);
            }
            if let Err(refused) = plugged::may_replace(&current, &next, self.multi_root) {
                if current.crl_pem() == next.crl_pem() {
                    return Err(refused.into());
                }
                // Whoever revokes a certificate cannot wait until the roots are in order.
                next = current.with_revocations(&parts.crl)?;
                warn!("only the revocation lists are taken: {refused}");
            }
        }
        let next = Arc::new(next);
        self.authority.replace(Some(Arc::clone(&next)));
        Ok(Some(next))
    }
}
