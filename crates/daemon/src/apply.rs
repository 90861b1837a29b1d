//! The apply loop: the only writer of the engine.

use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{Objects, Origin};
use canopus_runtime::ready::ReadyGuard;
use canopus_sources::status::Severity;
use canopus_sources::{Intake, Update};
use tokio::sync::watch;
use tracing::{info, warn};

/// Applies what sources say as it comes and announces each revision that changed something.
///
/// There is no fixed delay: an idle mesh applies at once, and under load a batch is whatever arrived during the last one.
/// The guard is given up once something is known of every source.
pub async fn run(engine: Engine, mut intake: Intake, announce: watch::Sender<u64>, synced: ReadyGuard) {
    let mut synced = Some(synced);
    loop {
        let update = intake.next().await;
        tokio::task::block_in_place(|| apply(&engine, update, &announce));
        if intake.world().is_whole()
            && let Some(guard) = synced.take()
        {
            guard.ready();
        }
    }
}

/// Applies one update.
pub fn apply(engine: &Engine, update: Update, announce: &watch::Sender<u64>) {
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
    for ((cluster, key), object) in update.changes {
        let origin = Origin::new(cluster, key);
        match object {
            Some(object) => batch.set::<Objects>(origin, object),
            None => batch.remove::<Objects>(&origin),
        };
    }
    announce.send_replace(engine.apply(batch).revision.number());
}
