//! The apply loop: the only writer of the engine.

use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{Objects, Origin, Settings};
use canopus_sources::Update;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Applies updates as they come and announces each revision that changed something.
///
/// There is no fixed delay: an idle mesh applies at once, and under load a batch is whatever arrived during the last one.
pub async fn run(engine: Engine, mut updates: mpsc::Receiver<Update>, announce: watch::Sender<u64>) {
    while let Some(mut update) = updates.recv().await {
        while let Ok(more) = updates.try_recv() {
            update.merge(more);
        }
        tokio::task::block_in_place(|| batch(&engine, update, &announce));
    }
}

/// Applies one update.
pub fn batch(engine: &Engine, update: Update, announce: &watch::Sender<u64>) {
    info!(
        set = update.set.len(),
        removed = update.removed.len(),
        problems = update.problems.len(),
        "objects changed"
    );
    for problem in &update.problems {
        warn!("{problem}");
    }
    let cluster = engine.read::<Settings>(&()).unwrap_or_default().cluster.clone();
    let mut batch = Batch::new();
    for object in update.set {
        batch.set::<Objects>(Origin::new(cluster.clone(), object.key()), object);
    }
    for key in &update.removed {
        batch.remove::<Objects>(&Origin::new(cluster.clone(), key.clone()));
    }
    announce.send_replace(engine.apply(batch).revision.number());
}
