//! The apply loop: objects that sources report become inputs of the engine here and nowhere else.
//!
//! ```text
//! Intake ──► gather ──► admit (quarantine) ──► Batch ──► Dispatcher::apply
//!              ▲ pace: how long to wait for more                 │
//!              └─────────────────────────────────────────────────┘ what the last batch cost
//! ```
//!
//! An idle mesh applies a change at once. Under load a batch is what arrived during the last one and the pause after it, so the
//! number of batches falls as their cost rises. The loop also rereads the files of the mesh configuration, saves the snapshot,
//! and gives quarantine its turn: all of them change what is served, and one loop keeps their order.
//!
//! Other writers (fetched keys, access to secrets, distributed roots) apply batches of their own kind of input through the same
//! dispatcher; the engine takes one batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_engine::Batch;
use canopus_mesh::world::{Objects, Origin, Settings};
use canopus_runtime::ready::ReadyGuard;
use canopus_runtime::shutdown::Part;
use canopus_sources::snapshot::Keeper;
use canopus_sources::status::Severity;
use canopus_sources::{Intake, Update};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info, warn};

use crate::metrics::Metrics;
use crate::pace::{Applied, Pace};
use crate::push::{Cause, Dispatched, Dispatcher, Reason, Stamp};
use crate::quarantine::QuarantineController;
use crate::settings::SettingsKeeper;
use crate::source_statuses::SourceStatuses;

/// How long objects of a snapshot are held back for sources to answer: better present objects a little later than old ones
/// first.
const GRACE: Duration = Duration::from_millis(500);

/// How often the files of the mesh configuration are read.
const FILES: Duration = Duration::from_secs(1);

/// Applies the updates of sources to the engine.
pub(crate) struct Applier {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) intake: Intake,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pace: Pace,
    pub(crate) settings: SettingsKeeper,
    pub(crate) quarantine: QuarantineController,
    pub(crate) sources: Arc<SourceStatuses>,
    pub(crate) keeper: Option<Keeper>,
    /// Guards of readiness by source, released once enough of the source is known.
    pub(crate) guards: BTreeMap<Box<str>, ReadyGuard>,
}

impl Applier {
    /// Applies updates as they arrive, until this part has to stop.
    ///
    /// There is no fixed delay: an idle mesh applies at once, and under load a batch is whatever arrived during the last one
    /// and the pause after it.
    pub(crate) async fn run(mut self, part: Part) {
        let grace = Instant::now() + GRACE;
        let mut grace_is_over = false;
        let mut look = Instant::now() + FILES;
        loop {
            tokio::select! {
                update = self.intake.next() => {
                    let seen = Stamp::now();
                    let update = self.gather(update).await;
                    let status = update.status;
                    tokio::task::block_in_place(|| self.apply(update, seen));
                    if status {
                        let sources = self.intake.world().status();
                        self.metrics.followed(&self.sources.current(), &sources);
                        self.sources.set(sources);
                        self.release(grace_is_over);
                    }
                }
                () = sleep_until(grace), if !grace_is_over => {
                    grace_is_over = true;
                    self.release(true);
                }
                () = self.quarantine.due() => {
                    tokio::task::block_in_place(|| self.quarantine.act(Instant::now()));
                }
                () = sleep_until(look) => {
                    look = Instant::now() + FILES;
                    tokio::task::block_in_place(|| self.reread());
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

    /// Merges further updates into this one until the pace allows to apply it.
    async fn gather(&mut self, mut update: Update) -> Update {
        let due = self.pace.due(Instant::now());
        while let Ok(more) = timeout_at(due, self.intake.next()).await {
            update.changes.extend(more.changes);
            update.notices.extend(more.notices);
            update.status |= more.status;
        }
        update
    }

    /// Releases the guards of sources of which enough is known.
    fn release(&mut self, grace_is_over: bool) {
        for holdings in self.intake.world().holdings() {
            let enough = holdings.is_settled() || (grace_is_over && holdings.is_known());
            if enough && let Some(guard) = self.guards.remove(&holdings.source().name) {
                guard.ready();
            }
        }
    }

    /// Applies the files of the mesh configuration if they changed.
    fn reread(&mut self) {
        if let Some(settings) = self.settings.reread() {
            let mut batch = Batch::new();
            batch.set::<Settings>((), settings.clone());
            self.dispatcher.apply(batch, Cause::reason(Reason::Global));
        }
    }

    /// Applies one update; `seen` is when its first change arrived.
    pub(crate) fn apply(&mut self, update: Update, seen: Stamp) {
        for notice in &update.notices {
            match notice.severity {
                Severity::Info => info!(source = notice.source, "{}", notice.text),
                Severity::Warning => warn!(source = notice.source, "{}", notice.text),
            }
        }
        if update.changes.is_empty() {
            return;
        }
        debug!(changes = update.changes.len(), "objects changed");
        let started = Instant::now();
        self.metrics.updated(self.dispatcher.engine(), &update);
        let mut batch = Batch::new();
        let settings = self.settings.take(&update).cloned();
        let mut origins = Vec::new();
        for ((cluster, key), object) in update.changes {
            let origin = Origin::new(cluster, key);
            self.quarantine.admit(&origin, object.as_ref());
            origins.push(origin.clone());
            match object {
                Some(object) => batch.set::<Objects>(origin, object),
                None => batch.remove::<Objects>(&origin),
            };
        }
        let changes = origins.len();
        let mut cause = Cause::objects(seen, origins);
        if let Some(settings) = settings {
            batch.set::<Settings>((), settings);
            cause = cause.and(Reason::Global);
        }
        let Dispatched { revision, woken } = self.dispatcher.apply(batch, cause);
        self.quarantine.applied(revision);
        self.pace.applied(Applied { started, ended: Instant::now(), changes, woken });
    }
}

/// Waits until the snapshot has to be saved; forever without one.
async fn due(keeper: Option<&Keeper>) {
    match keeper {
        Some(keeper) => keeper.due().await,
        None => std::future::pending().await,
    }
}
