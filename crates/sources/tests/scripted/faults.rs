//! Answers that are wrong, late or cut off: what is known stays, and all is made up for.

use std::time::Duration;

use canopus_api::Kind;
use canopus_sources::kubernetes::Listing;

use crate::api::{Api, CONFIG_MAPS, Fault, LISTINGS};

fn status(code: u16) -> Fault {
    let text = serde_json::json!({"kind": "Status", "code": code, "message": "on purpose"});
    Fault::Status(code, text.to_string())
}

fn faults() -> Vec<Fault> {
    vec![
        status(410),
        status(429),
        status(500),
        status(503),
        Fault::Garbage(b"<html>nothing here</html>\n".to_vec()),
        Fault::Garbage(b"\xff\xfe\x00\n{\"type\":\"NEW\"}\n".to_vec()),
        Fault::Garbage(Vec::new()),
        Fault::Half(r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"ma"#.to_owned()),
        Fault::HangUp,
        Fault::Trickle(3, Duration::from_millis(1)),
    ]
}

#[tokio::test]
async fn listing_succeeds_after_any_fault() {
    for listing in LISTINGS {
        for fault in faults() {
            let api = Api::start().await;
            api.set(CONFIG_MAPS, "map", "x");
            api.fail(CONFIG_MAPS, [fault.clone(), fault.clone()]);
            let mut follower = api.follow(&[Kind::ConfigMap], |options| options.listing = listing).await;
            follower.until(&format!("{fault:?}"), |follower| follower.value("map").is_some()).await;
            follower.until("up to date", |follower| follower.is_live(Kind::ConfigMap)).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_when_a_watch_is_taken_up_after_any_fault() {
    for fault in faults() {
        let api = Api::start().await;
        api.set(CONFIG_MAPS, "stays", "x");
        api.set(CONFIG_MAPS, "goes", "x");
        let mut follower = api.follow(&[Kind::ConfigMap], |_| ()).await;
        follower.until("the world", |follower| follower.value("goes").is_some()).await;
        api.fail(CONFIG_MAPS, [fault.clone(), fault.clone(), fault.clone()]);
        api.hang_up();
        api.remove(CONFIG_MAPS, "goes");
        api.set(CONFIG_MAPS, "new", "x");
        let caught_up = |follower: &crate::api::Follower| {
            assert!(follower.value("stays").is_some(), "what is there never goes");
            follower.value("goes").is_none() && follower.value("new").is_some()
        };
        follower.until(&format!("{fault:?}"), caught_up).await;
    }
}

#[tokio::test]
async fn half_a_listing_takes_nothing_away() {
    let api = Api::start().await;
    for name in ["one", "two", "three"] {
        api.set(CONFIG_MAPS, name, "x");
    }
    let options = |options: &mut canopus_sources::kubernetes::Options| options.listing = Listing::Pages(1);
    let mut follower = api.follow(&[Kind::ConfigMap], options).await;
    follower.until("the world", |follower| follower.value("three").is_some()).await;
    // The server forgets, and then gives the first page of a listing and no more.
    let first = r#"{"metadata":{"resourceVersion":"9","continue":"more"},"items":[]}"#;
    let page = || Fault::Garbage(first.as_bytes().to_vec());
    api.fail(CONFIG_MAPS, [page(), status(410), page(), status(500), page(), Fault::HangUp]);
    api.hang_up();
    api.set(CONFIG_MAPS, "four", "x");
    let whole = |follower: &crate::api::Follower| {
        for name in ["one", "two", "three"] {
            assert!(follower.value(name).is_some(), "{name} is there");
        }
        follower.value("four").is_some()
    };
    follower.until("what came meanwhile", whole).await;
}

#[tokio::test]
async fn object_that_is_too_large_keeps_its_last_value_and_hides_no_deletion() {
    let api = Api::start().await;
    api.set(CONFIG_MAPS, "large", "small yet");
    api.set(CONFIG_MAPS, "goes", "x");
    let mut follower = api.follow(&[Kind::ConfigMap], |_| ()).await;
    follower.until("the world", |follower| follower.value("goes").is_some()).await;
    api.set(CONFIG_MAPS, "large", &"x".repeat(13 << 20));
    let said = |follower: &crate::api::Follower| {
        let said =
            follower.notices.iter().filter(|notice| notice.contains("ConfigMap a/large: cannot be read"));
        said.count()
    };
    follower.until("a word about the watch", |follower| said(follower) == 1).await;
    // The server forgets what happened, so that a listing alone tells of the deletion.
    api.fail(CONFIG_MAPS, [status(410)]);
    api.remove(CONFIG_MAPS, "goes");
    api.hang_up();
    follower.until("the deletion", |follower| follower.value("goes").is_none()).await;
    assert_eq!(follower.value("large").as_deref(), Some("small yet"));
    api.set(CONFIG_MAPS, "large", "small again");
    let is_back = |follower: &crate::api::Follower| follower.value("large").as_deref() == Some("small again");
    follower.until("the next value", is_back).await;
}

/// Longer than a connection may be silent, with the pauses before the next.
const SILENCE: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn listing_that_stops_in_the_middle_of_an_object_is_begun_again() {
    for listing in LISTINGS {
        let api = Api::start().await;
        api.set(CONFIG_MAPS, "map", "x");
        api.fail(
            CONFIG_MAPS,
            [Fault::Stall(r#"{"metadata":{"resourceVersion":"1"},"items":[{"metad"#.to_owned())],
        );
        let mut follower = api.follow(&[Kind::ConfigMap], |options| options.listing = listing).await;
        follower.settle(SILENCE).await;
        assert_eq!(follower.value("map").as_deref(), Some("x"), "{listing:?}");
        assert!(follower.is_live(Kind::ConfigMap));
    }
}

#[tokio::test(start_paused = true)]
async fn watch_that_stops_in_the_middle_of_a_line_is_taken_up_again() {
    let api = Api::start().await;
    api.set(CONFIG_MAPS, "map", "x");
    let mut follower = api.follow(&[Kind::ConfigMap], |_| ()).await;
    follower.until("the world", |follower| follower.value("map").is_some()).await;
    api.fail(CONFIG_MAPS, [Fault::Stall(r#"{"type":"MODIFIED","object":{"metadata":{"name":"m"#.to_owned())]);
    api.hang_up();
    follower.settle(Duration::from_secs(1)).await;
    api.set(CONFIG_MAPS, "map", "y");
    follower.settle(SILENCE).await;
    assert_eq!(follower.value("map").as_deref(), Some("y"));
}
