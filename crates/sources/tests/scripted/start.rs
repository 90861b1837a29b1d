//! Start-up with a server that is slow: a part of the world is never taken for the whole.

use std::time::Duration;

use canopus_api::Kind;

use crate::api::{Api, CONFIG_MAPS, DEFINITIONS, ENTRIES};

const DEFINITION: &str = "serviceentries.networking.istio.io";
const KINDS: [Kind; 2] = [Kind::ConfigMap, Kind::ServiceEntry];
const MOMENT: Duration = Duration::from_millis(300);

async fn server() -> Api {
    let api = Api::start().await;
    api.set(CONFIG_MAPS, "map", "x");
    api.set(DEFINITIONS, DEFINITION, "x");
    api.set(ENTRIES, "entry", "example.com");
    api
}

#[tokio::test]
async fn world_is_not_whole_before_late_definitions_and_late_kinds() {
    let api = server().await;
    api.hold(&[DEFINITIONS, ENTRIES]);
    let mut follower = api.follow(&KINDS, |_| ()).await;
    follower.until("the kind that is fast", |follower| follower.value("map").is_some()).await;
    follower.settle(MOMENT).await;
    assert!(!follower.is_whole(), "which kinds there are is not known");
    api.hold(&[ENTRIES]);
    follower.settle(MOMENT).await;
    assert!(!follower.is_whole(), "a kind that there is has not been listed");
    api.hold(&[]);
    follower.until("the whole world", crate::api::Follower::is_whole).await;
    assert!(follower.has_entry("entry"));
}

#[tokio::test]
async fn kind_that_is_defined_but_not_served_yet_is_waited_for() {
    let api = server().await;
    let beta = ENTRIES.replace("/v1/", "/v1beta1/");
    let alpha = ENTRIES.replace("/v1/", "/v1alpha3/");
    let all = [ENTRIES, &beta, &alpha];
    api.set_missing(&all);
    let mut follower = api.follow(&KINDS, |_| ()).await;
    follower.until("the kind that is served", |follower| follower.value("map").is_some()).await;
    follower.settle(MOMENT).await;
    assert!(api.asked(ENTRIES) > 0);
    assert!(!follower.is_whole(), "the cluster has objects of the kind");
    api.set_missing(&[]);
    follower.until("the whole world", crate::api::Follower::is_whole).await;
    assert!(follower.has_entry("entry"));
}

#[tokio::test]
async fn definition_that_cannot_be_read_does_not_hide_the_kinds_that_can() {
    let api = server().await;
    // An object without a name: which definition it is cannot be said.
    let list = r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"serviceentries.networking.istio.io"}},7]}"#;
    api.fail(DEFINITIONS, [crate::api::Fault::Garbage(list.as_bytes().to_vec())]);
    let pages = canopus_sources::kubernetes::Listing::Pages(500);
    let mut follower = api.follow(&KINDS, |options| options.listing = pages).await;
    follower.until("the whole world", crate::api::Follower::is_whole).await;
    assert!(follower.has_entry("entry"));
}
