//! The apply loop: the only writer of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{Objects, Origin, Settings};
use canopus_runtime::ready::ReadyGuard;
use canopus_runtime::shutdown::Part;
use canopus_sources::snapshot::Keeper;
use canopus_sources::status::Severity;
use canopus_sources::{Intake, Update};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::settings::SettingsKeeper;

/// How long what a snapshot says is held back for sources to answer: better the truth a little later than the past first.
const GRACE: Duration = Duration::from_millis(500);

/// Takes what sources say and applies it to the engine.
pub(crate) struct Applier {
    pub(crate) engine: Engine,
    pub(crate) intake: Intake,
    /// Each revision that changed something.
    pub(crate) announce: watch::Sender<u64>,
    pub(crate) settings: SettingsKeeper,
    pub(crate) keeper: Option<Keeper>,
    /// What the process is not ready without, by source.
    pub(crate) guards: BTreeMap<Box<str>, ReadyGuard>,
}

impl Applier {
    /// Applies what comes as it comes, until this part has to stop.
    ///
    /// There is no fixed delay: an idle mesh applies at once, and under load a batch is whatever arrived during the last one.
    pub(crate) async fn run(mut self, part: Part) {
        let grace = Instant::now() + GRACE;
        let mut grace_is_over = false;
        loop {
            tokio::select! {
                update = self.intake.next() => {
                    let status = update.status;
                    tokio::task::block_in_place(|| self.apply(update));
                    if status {
                        self.release(grace_is_over);
                    }
                }
                () = sleep_until(grace), if !grace_is_over => {
                    grace_is_over = true;
                    self.release(true);
                }
                () = due(self.keeper.as_ref()) => {
                    if let Some(keeper) = &mut self.keeper {
                        keeper.save(self.intake.world()).await;
                    }
                }
                () = part.stopping() => break,
            }
        }
        if let Some(keeper) = self.keeper {
            keeper.finish(self.intake.world()).await;
        }
    }

    /// Gives up the guards of the sources of which enough is known.
    fn release(&mut self, grace_is_over: bool) {
        for holdings in self.intake.world().holdings() {
            let enough = holdings.is_settled() || (grace_is_over && holdings.is_known());
            if enough && let Some(guard) = self.guards.remove(&holdings.source().name) {
                guard.ready();
            }
        }
    }

    /// Applies one update.
    pub(crate) fn apply(&mut self, update: Update) {
        for notice in &update.notices {
            match notice.severity {
                Severity::Info => info!(source = notice.source, "{}", notice.text),
                Severity::Warning => warn!(source = notice.source, "{}", notice.text),
            }
        }
        if update.changes.is_empty() {
            return;
        }
        info!(changes = update.changes.len(), "objects changed");
        let mut batch = Batch::new();
        if let Some(settings) = self.settings.take(&update) {
            batch.set::<Settings>((), settings.clone());
        }
        for ((cluster, key), object) in update.changes {
            let origin = Origin::new(cluster, key);
            match object {
                Some(object) => batch.set::<Objects>(origin, object),
                None => batch.remove::<Objects>(&origin),
            };
        }
        self.announce.send_replace(self.engine.apply(batch).revision.number());
    }
}

/// Waits until it is time to save; for ever if nothing is kept.
async fn due(keeper: Option<&Keeper>) {
    match keeper {
        Some(keeper) => keeper.due().await,
        None => std::future::pending().await,
    }
}
