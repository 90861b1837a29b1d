//! A server whose store was restored from an older copy, and one that loses events.

use std::time::Duration;

use canopus_api::Kind;

use crate::api::{Api, CONFIG_MAPS, LISTINGS};

#[tokio::test]
async fn store_restored_from_an_older_copy_is_listed_anew() {
    for listing in LISTINGS {
        let api = Api::start().await;
        api.set(CONFIG_MAPS, "stays", "old");
        api.set(CONFIG_MAPS, "comes-back", "x");
        let backup = api.back_up();
        api.remove(CONFIG_MAPS, "comes-back");
        for turn in 0..10 {
            api.set(CONFIG_MAPS, "goes", &turn.to_string());
            api.set(CONFIG_MAPS, "stays", "new");
        }
        let mut follower = api.follow(&[Kind::ConfigMap], |options| options.listing = listing).await;
        follower.until("the world", |follower| follower.value("goes").as_deref() == Some("9")).await;

        api.restore(backup);
        // A change at a version that the watch has passed long ago.
        api.set(CONFIG_MAPS, "after", "x");
        let is_restored = |follower: &crate::api::Follower| {
            let value = |name| follower.value(name);
            value("goes").is_none()
                && value("stays").as_deref() == Some("old")
                && value("comes-back").is_some()
                && value("after").is_some()
        };
        follower.until("the world of the copy", is_restored).await;
        let said = follower.notices.iter().any(|notice| notice.contains("restored from an older copy"));
        assert!(said, "{:?}", follower.notices);
        api.set(CONFIG_MAPS, "later", "x");
        follower.until("what comes after", |follower| follower.value("later").is_some()).await;
    }
}

#[tokio::test]
async fn audit_heals_and_reports_what_a_watch_was_not_told() {
    let api = Api::start().await;
    api.set(CONFIG_MAPS, "known", "x");
    let mut follower =
        api.follow(&[Kind::ConfigMap], |options| options.audit_interval = Duration::from_millis(100)).await;
    follower.until("the world", |follower| follower.value("known").is_some()).await;
    api.set_silently(CONFIG_MAPS, "lost", "x");
    // The watch passes the version of the event it was not told.
    api.set(CONFIG_MAPS, "known", "y");
    follower.until("the object nobody told of", |follower| follower.value("lost").is_some()).await;
    let said = follower.notices.iter().find(|notice| notice.contains("differed from a listing"));
    assert!(said.is_some_and(|said| said.contains("a/lost")), "{:?}", follower.notices);
}

#[tokio::test]
async fn audit_lists_nothing_anew_when_nothing_differs() {
    let api = Api::start().await;
    api.set(CONFIG_MAPS, "busy", "x");
    let mut follower =
        api.follow(&[Kind::ConfigMap], |options| options.audit_interval = Duration::from_millis(20)).await;
    follower.until("the world", |follower| follower.value("busy").is_some()).await;
    for turn in 0..100 {
        api.set(CONFIG_MAPS, "busy", &turn.to_string());
        api.set(CONFIG_MAPS, "short-lived", "x");
        api.remove(CONFIG_MAPS, "short-lived");
        follower.settle(Duration::from_millis(5)).await;
    }
    assert!(api.asked("configmaps?limit=500") > 3, "audits were made");
    assert_eq!(api.asked("configmaps?watch=true&sendInitialEvents"), 1);
    assert_eq!(follower.notices, Vec::<String>::new());
}
