//! A server that is away for long, while the process is started anew from its snapshot.

use std::time::Duration;

use canopus_api::Kind;
use canopus_sources::snapshot::Store;

use crate::api::{Api, CONFIG_MAPS};

/// A third of the outage.
const RUN: Duration = Duration::from_secs(20 * 60);

/// Longer than the pause between two attempts.
const RECOVERY: Duration = Duration::from_secs(5 * 60);

#[tokio::test(start_paused = true)]
async fn hour_without_the_server_and_restarts_within_are_made_up_for_exactly() {
    let api = Api::start().await;
    for number in 0..30 {
        api.set(CONFIG_MAPS, &format!("map-{number}"), "old");
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut follower = api.follow_from(Some(&store), &[Kind::ConfigMap], |_| ()).await;
    follower.until("the world", |follower| follower.values() == api.values()).await;
    let known = api.values();
    api.set_away(true);
    let start = tokio::time::Instant::now();
    for run in 0..3 {
        api.remove(CONFIG_MAPS, &format!("map-{run}"));
        api.set(CONFIG_MAPS, &format!("map-{}", 10 + run), "new");
        api.set(CONFIG_MAPS, &format!("late-{run}"), "new");
        follower.settle(RUN).await;
        assert_eq!(follower.values(), known, "what is known is served in run {run}");
        follower.save(&store).await;
        drop(follower);
        follower = api.follow_from(Some(&store), &[Kind::ConfigMap], |_| ()).await;
        assert_eq!(follower.values(), known, "it is known from the first moment of the next life");
    }
    assert!(start.elapsed() >= Duration::from_secs(3600));
    assert!(api.asked(CONFIG_MAPS) < 2_000, "the server is not stormed: {}", api.asked(CONFIG_MAPS));
    assert_ne!(api.values(), known);
    api.set_away(false);
    follower.settle(RECOVERY).await;
    assert_eq!(follower.values(), api.values());
    assert!(follower.is_live(Kind::ConfigMap));
}
