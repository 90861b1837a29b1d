//! The state-of-the-world variant.

use super::world::Nonce::{Last, None as NoNonce, Stale};
use super::world::{Stream, World, told};
use crate::interest::Interest;
use crate::session::SessionEvent;
use crate::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET};

#[test]
fn first_request_is_answered_and_acknowledgement_and_refusal_are_not() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a"), (CLUSTER, "b")]));
    assert_eq!(stream.want(CLUSTER, NoNonce, []), [told(CLUSTER, ["a", "b"])]);
    assert_eq!(stream.ack(CLUSTER), []);
    assert_eq!(stream.nack(CLUSTER), []);
    assert_eq!(stream.change(|_| {}), []);
}

#[test]
fn request_with_a_stale_nonce_is_ignored() {
    let mut stream = Stream::sotw(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.want(ENDPOINT, NoNonce, ["a"]);
    assert_eq!(stream.want(ENDPOINT, Stale, ["a", "b"]), []);
    let expired =
        |event: &SessionEvent| matches!(event, SessionEvent::Expired { nonce, .. } if nonce == "made-up");
    assert!(stream.events().iter().any(expired));
    assert_eq!(stream.want(ENDPOINT, Last, ["a", "b"]), [told(ENDPOINT, ["b"])]);
}

#[test]
fn unknown_names_are_answered_by_types_that_know_every_name() {
    let world = World::new([(ROUTE, "80")]).inventive(ROUTE).inventive(ENDPOINT);
    let mut stream = Stream::sotw(world);
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["nosuch"]), [told(ENDPOINT, ["nosuch"])]);
    assert_eq!(stream.want(ROUTE, NoNonce, ["80", "nonsense"]), [told(ROUTE, ["80", "nonsense"])]);
}

#[test]
fn each_type_is_answered_on_its_own() {
    let mut stream =
        Stream::sotw(World::new([(CLUSTER, "c"), (LISTENER, "l"), (ROUTE, "80"), (ENDPOINT, "c")]));
    assert_eq!(stream.want(CLUSTER, NoNonce, []), [told(CLUSTER, ["c"])]);
    assert_eq!(stream.want(LISTENER, NoNonce, []), [told(LISTENER, ["l"])]);
    assert_eq!(stream.want(ROUTE, NoNonce, ["80"]), [told(ROUTE, ["80"])]);
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["c"]), [told(ENDPOINT, ["c"])]);
}

#[test]
fn listeners_and_clusters_are_answered_whole_when_names_are_added() {
    let mut stream = Stream::sotw(World::new([(LISTENER, "a:80"), (LISTENER, "b:80"), (LISTENER, "c:80")]));
    assert_eq!(stream.want(LISTENER, NoNonce, ["a:80"]), [told(LISTENER, ["a:80"])]);
    let both = stream.want(LISTENER, Last, ["a:80", "b:80"]);
    assert_eq!(both, [told(LISTENER, ["a:80", "b:80"])]);
    assert_eq!(stream.want(LISTENER, Last, ["b:80"]), [told(LISTENER, ["b:80"])]);
    assert_eq!(stream.want(LISTENER, Last, []), []);
    assert!(stream.session.interest(LISTENER).unwrap().is_nothing());
}

#[test]
fn whole_state_is_pushed_for_clusters_and_differences_for_endpoints() {
    let mut stream =
        Stream::sotw(World::new([(CLUSTER, "a"), (CLUSTER, "b"), (ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.want(CLUSTER, NoNonce, []);
    stream.want(ENDPOINT, NoNonce, ["a", "b"]);
    stream.ack(CLUSTER);
    stream.ack(ENDPOINT);
    assert_eq!(stream.change(|world| world.put(ENDPOINT, "a", "2")), [told(ENDPOINT, ["a"])]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.change(|world| world.delete(CLUSTER, "b")), [told(CLUSTER, ["a"])]);
    stream.ack(CLUSTER);
    let warmed = stream.change(|world| world.put(CLUSTER, "a", "2"));
    assert_eq!(warmed, [told(CLUSTER, ["a"]), told(ENDPOINT, ["a"])]);
}

#[test]
fn last_cluster_is_removed_by_an_empty_response() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a")]));
    stream.want(CLUSTER, NoNonce, []);
    stream.ack(CLUSTER);
    assert_eq!(stream.change(|world| world.delete(CLUSTER, "a")), [told(CLUSTER, [])]);
}

#[test]
fn removing_names_is_silent() {
    let mut stream = Stream::sotw(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.want(ENDPOINT, NoNonce, ["a", "b"]);
    assert_eq!(stream.want(ENDPOINT, Last, ["b"]), []);
    assert_eq!(stream.change(|world| world.put(ENDPOINT, "a", "2")), []);
    assert_eq!(stream.want(ENDPOINT, Last, ["a", "b"]), [told(ENDPOINT, ["a"])]);
}

#[test]
fn naming_nothing_of_a_named_type_unsubscribes() {
    let mut stream = Stream::sotw(World::new([(ROUTE, "80")]));
    assert_eq!(stream.want(ROUTE, NoNonce, []), []);
    assert_eq!(stream.session.interest(ROUTE), None);
    stream.want(ROUTE, NoNonce, ["80"]);
    assert_eq!(stream.want(ROUTE, Last, []), []);
    assert!(stream.session.interest(ROUTE).unwrap().is_nothing());
    assert_eq!(stream.change(|world| world.put(ROUTE, "80", "2")), []);
    assert_eq!(stream.want(ROUTE, Last, ["80"]), [told(ROUTE, ["80"])]);
}

#[test]
fn request_without_nonce_is_answered_with_everything() {
    let mut stream = Stream::sotw(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.want(ENDPOINT, NoNonce, ["a", "b"]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["a", "b"]), [told(ENDPOINT, ["a", "b"])]);
}

#[test]
fn nonce_of_another_stream_does_not_matter_in_the_first_request() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a")]));
    assert_eq!(stream.want(CLUSTER, Stale, []), [told(CLUSTER, ["a"])]);
}

#[test]
fn nothing_is_sent_on_reconnect_when_the_version_matches() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a")]));
    stream.want(CLUSTER, NoNonce, []);
    let version = stream.whole_version(CLUSTER);
    let mut stream = stream.reconnected();
    assert_eq!(stream.want_with_version(CLUSTER, &version), []);
    let current = |event: &SessionEvent| matches!(event, SessionEvent::Current { .. });
    assert!(stream.events().iter().any(current));
    assert_eq!(stream.change(|world| world.put(CLUSTER, "a", "2")), [told(CLUSTER, ["a"])]);
    let mut stream = stream.reconnected();
    // What else it has decides about the order in which it is answered.
    assert_eq!(stream.want_with_version(CLUSTER, &version), []);
    assert_eq!(stream.want(LISTENER, NoNonce, []), [told(CLUSTER, ["a"]), told(LISTENER, [])]);
}

#[test]
fn endpoints_are_not_sent_twice_when_a_client_that_returns_asks_for_them_first() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a"), (ENDPOINT, "a")]));
    stream.want(CLUSTER, NoNonce, []);
    let version = stream.whole_version(CLUSTER);
    let mut stream = stream.reconnected();
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["a"]), [told(ENDPOINT, ["a"])]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.want_with_version(CLUSTER, &version), []);
    assert_eq!(stream.change(|_| {}), []);
}

#[test]
fn missing_secret_is_an_empty_answer() {
    let mut stream = Stream::sotw(World::default());
    assert_eq!(stream.want(SECRET, NoNonce, ["missing"]), [told(SECRET, [])]);
}

#[test]
fn everything_can_be_asked_for_by_name() {
    let mut stream = Stream::sotw(World::new([(CLUSTER, "a"), (CLUSTER, "b")]));
    assert_eq!(stream.want(CLUSTER, NoNonce, ["*"]), [told(CLUSTER, ["a", "b"])]);
    assert_eq!(stream.session.interest(CLUSTER), Some(&Interest::Wildcard));
    assert_eq!(stream.want(CLUSTER, Last, ["a"]), [told(CLUSTER, ["a"])]);
}
