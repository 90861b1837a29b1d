//! The incremental variant.

use super::world::{Stream, World, change, in_short, request, told, told_and_removed};
use crate::interest::Interest;
use crate::names::Names;
use crate::resource::Resource;
use crate::session::SessionEvent;
use crate::source::Code;
use crate::types::{ADDRESS, AUTHORIZATION, CLUSTER, ENDPOINT, EXTENSION, HEALTH, LISTENER, ROUTE, SECRET};

#[test]
fn everything_is_sent_once_when_nothing_is_named() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "b"), (CLUSTER, "a")]));
    assert_eq!(stream.subscribe(CLUSTER, []), [told(CLUSTER, ["a", "b"])]);
    assert_eq!(stream.ack(CLUSTER), []);
    assert_eq!(stream.change(|_| {}), []);
}

#[test]
fn everything_is_sent_when_asked_for_by_its_name() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a")]));
    assert_eq!(stream.subscribe(CLUSTER, ["*"]), [told(CLUSTER, ["a"])]);
    assert_eq!(stream.session.interest(CLUSTER), Some(&Interest::Wildcard));
}

#[test]
fn refusal_gets_no_answer() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a")]));
    stream.subscribe(CLUSTER, []);
    assert_eq!(stream.nack(CLUSTER), []);
    assert_eq!(stream.change(|_| {}), []);
    let nacked =
        |event: &SessionEvent| matches!(event, SessionEvent::Nacked { message, .. } if message == "bad");
    assert_eq!(stream.events().iter().filter(|event| nacked(event)).count(), 1);
}

#[test]
fn refused_resources_go_along_with_the_next_change() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b"), (CLUSTER, "c")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    let bad = |world: &mut World| {
        world.put(CLUSTER, "a", "bad");
        world.delete(CLUSTER, "c");
    };
    assert_eq!(stream.change(bad), [told_and_removed(CLUSTER, ["a"], ["c"])]);
    assert_eq!(stream.nack(CLUSTER), []);
    let unrelated = |world: &mut World| world.put(CLUSTER, "b", "2");
    assert_eq!(stream.change(unrelated), [told_and_removed(CLUSTER, ["a", "b"], ["c"])]);
    stream.ack(CLUSTER);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "b", "3")), [told(CLUSTER, ["b"])]);
}

#[test]
fn refused_resource_is_sent_again_when_it_returns_to_what_the_client_had() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    stream.change(|world| world.put(CLUSTER, "a", "bad"));
    stream.nack(CLUSTER);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "a", "1")), [told(CLUSTER, ["a"])]);
}

#[test]
fn only_differences_are_pushed() {
    let mut stream = Stream::delta(World::new([(LISTENER, "80"), (LISTENER, "81"), (LISTENER, "in")]));
    assert_eq!(stream.subscribe(LISTENER, []), [told(LISTENER, ["80", "81", "in"])]);
    stream.ack(LISTENER);
    assert_eq!(stream.change(|world| world.delete(LISTENER, "81")), [told_and_removed(LISTENER, [], ["81"])]);
    stream.ack(LISTENER);
    assert_eq!(stream.change(|world| world.put(LISTENER, "in", "2")), [told(LISTENER, ["in"])]);
}

#[test]
fn changes_wait_for_the_acknowledgement_and_come_as_one() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b")]));
    stream.subscribe(CLUSTER, []);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "a", "2")), []);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "b", "2")), []);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "a", "3")), []);
    assert_eq!(stream.ack(CLUSTER), [told(CLUSTER, ["a", "b"])]);
    assert_eq!(stream.ack(CLUSTER), []);
}

#[test]
fn nothing_follows_the_acknowledgement_when_a_change_was_undone() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a")]));
    stream.subscribe(CLUSTER, []);
    stream.change(|world| world.put(CLUSTER, "a", "2"));
    stream.change(|world| world.put(CLUSTER, "a", "1"));
    assert_eq!(stream.ack(CLUSTER), []);
}

#[test]
fn types_are_pushed_in_order() {
    let types = ["x.example/Own", SECRET, ROUTE, EXTENSION, LISTENER, ENDPOINT, CLUSTER];
    let mut world = World::default();
    types.iter().for_each(|it| world.put(it, "a", "1"));
    let mut stream = Stream::delta(world);
    for type_url in types {
        stream.subscribe(type_url, ["a"]);
        stream.ack(type_url);
    }
    stream.ack(ENDPOINT);
    let pushed = stream.change(|world| types.iter().for_each(|it| world.put(it, "a", "2")));
    let order: Vec<_> = pushed.iter().map(|told| told.type_url.as_str()).collect();
    assert_eq!(order, [CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, EXTENSION, "x.example/Own"]);
}

#[test]
fn endpoints_are_sent_again_after_their_clusters() {
    let mut stream =
        Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b"), (ENDPOINT, "a"), (ENDPOINT, "b")]));
    assert_eq!(stream.subscribe(ENDPOINT, ["a"]), [told(ENDPOINT, ["a"])]);
    assert_eq!(stream.ack(ENDPOINT), []);
    assert_eq!(stream.subscribe(CLUSTER, []), [told(CLUSTER, ["a", "b"]), told(ENDPOINT, ["a"])]);
    stream.ack(CLUSTER);
    stream.ack(ENDPOINT);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "b", "2")), [told(CLUSTER, ["b"])]);
    stream.ack(CLUSTER);
    let changed = stream.change(|world| world.put(CLUSTER, "a", "2"));
    assert_eq!(changed, [told(CLUSTER, ["a"]), told(ENDPOINT, ["a"])]);
    stream.ack(CLUSTER);
    stream.ack(ENDPOINT);
    assert_eq!(stream.change(|world| world.delete(CLUSTER, "a")), [told_and_removed(CLUSTER, [], ["a"])]);
}

#[test]
fn endpoints_for_a_changed_cluster_wait_for_credit_but_are_not_lost() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (ENDPOINT, "a")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    stream.subscribe(ENDPOINT, ["a"]);
    assert_eq!(stream.change(|world| world.put(CLUSTER, "a", "2")), [told(CLUSTER, ["a"])]);
    assert_eq!(stream.ack(ENDPOINT), [told(ENDPOINT, ["a"])]);
}

/// A client that has two clusters and their endpoints.
fn with_endpoints() -> Stream {
    let mut stream =
        Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b"), (ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    stream.subscribe(ENDPOINT, ["a", "b"]);
    stream.ack(ENDPOINT);
    stream
}

#[test]
fn endpoints_of_a_leaving_cluster_are_left_alone_when_they_are_dropped_with_it() {
    let mut stream = with_endpoints();
    let pushed = stream.change(|world| {
        world.delete(CLUSTER, "a");
        world.put(ENDPOINT, "a", "2");
        world.put(ENDPOINT, "b", "2");
    });
    assert_eq!(pushed, [told_and_removed(CLUSTER, [], ["a"]), told(ENDPOINT, ["b"])]);
    assert_eq!(stream.ack(ENDPOINT), []);
    assert_eq!(stream.unsubscribe(ENDPOINT, ["a"]), []);
    assert_eq!(stream.ack(CLUSTER), []);
}

#[test]
fn endpoints_of_a_cluster_that_is_gone_are_told_to_a_client_that_keeps_them() {
    let mut stream = with_endpoints();
    let pushed = stream.change(|world| {
        world.delete(CLUSTER, "a");
        world.put(ENDPOINT, "a", "2");
    });
    assert_eq!(pushed, [told_and_removed(CLUSTER, [], ["a"])]);
    assert_eq!(stream.ack(CLUSTER), [told(ENDPOINT, ["a"])]);
}

#[test]
fn endpoints_wait_with_a_cluster_whose_removal_has_to_wait() {
    let mut stream = with_endpoints();
    assert_eq!(stream.change(|world| world.put(CLUSTER, "c", "1")), [told(CLUSTER, ["c"])]);
    let pushed = stream.change(|world| {
        world.delete(CLUSTER, "a");
        world.delete(ENDPOINT, "a");
    });
    assert_eq!(pushed, []);
    assert_eq!(stream.ack(CLUSTER), [told_and_removed(CLUSTER, [], ["a"])]);
    assert_eq!(stream.ack(CLUSTER), [told_and_removed(ENDPOINT, [], ["a"])]);
}

#[test]
fn any_name_is_answered_by_types_that_know_every_name() {
    let world = World::new([(ROUTE, "80")]).inventive(ROUTE).inventive(ENDPOINT);
    let mut stream = Stream::delta(world);
    assert_eq!(stream.subscribe(ENDPOINT, ["nosuch"]), [told(ENDPOINT, ["nosuch"])]);
    assert_eq!(stream.subscribe(ROUTE, ["nonsense", "80"]), [told(ROUTE, ["80", "nonsense"])]);
}

#[test]
fn names_that_do_not_exist_are_answered_as_removed() {
    let mut stream = Stream::delta(World::new([(SECRET, "cred")]));
    let answer = stream.subscribe(SECRET, ["missing", "cred", "default"]);
    assert_eq!(answer, [told_and_removed(SECRET, ["cred"], ["default", "missing"])]);
    stream.ack(SECRET);
    assert_eq!(stream.change(|_| {}), []);
    assert_eq!(stream.change(|world| world.put(SECRET, "missing", "1")), [told(SECRET, ["missing"])]);
}

#[test]
fn deleted_secret_stays_in_use_and_is_not_sent_again_unchanged() {
    let mut stream = Stream::delta(World::new([(SECRET, "cred"), (SECRET, "other")]));
    stream.subscribe(SECRET, ["cred", "other"]);
    stream.ack(SECRET);
    assert_eq!(stream.change(|world| world.delete(SECRET, "cred")), []);
    assert_eq!(stream.change(|world| world.put(SECRET, "cred", "1")), []);
    assert_eq!(stream.change(|world| world.delete(SECRET, "cred")), []);
    assert_eq!(stream.change(|world| world.put(SECRET, "cred", "2")), [told(SECRET, ["cred"])]);
}

#[test]
fn deleted_extension_is_an_empty_response() {
    let mut stream = Stream::delta(World::new([(EXTENSION, "wasm")]));
    assert_eq!(stream.subscribe(EXTENSION, ["wasm"]), [told(EXTENSION, ["wasm"])]);
    stream.ack(EXTENSION);
    assert_eq!(stream.change(|world| world.delete(EXTENSION, "wasm")), [told(EXTENSION, [])]);
    stream.ack(EXTENSION);
    assert_eq!(stream.change(|_| {}), []);
    assert_eq!(stream.change(|world| world.put(EXTENSION, "wasm", "2")), [told(EXTENSION, ["wasm"])]);
    assert_eq!(stream.subscribe(EXTENSION, ["missing"]), [told(EXTENSION, [])]);
}

#[test]
fn extension_that_is_back_as_it_was_is_not_sent_again_after_a_reconnect() {
    let mut stream = Stream::delta(World::new([(EXTENSION, "wasm"), (EXTENSION, "other")]));
    stream.subscribe(EXTENSION, ["wasm", "other"]);
    stream.ack(EXTENSION);
    let version = stream.version(EXTENSION, "wasm");
    let mut stream = stream.reconnected();
    stream.change(|world| world.delete(EXTENSION, "wasm"));
    stream.resume(EXTENSION, ["wasm"], [("wasm", &version)]);
    stream.ack(EXTENSION);
    assert_eq!(stream.change(|world| world.put(EXTENSION, "wasm", "1")), []);
    assert_eq!(stream.change(|world| world.put(EXTENSION, "wasm", "2")), [told(EXTENSION, ["wasm"])]);
}

#[test]
fn first_request_is_answered_even_when_there_is_nothing() {
    let mut stream = Stream::delta(World::new([(ADDRESS, "pod"), (ADDRESS, "svc")]));
    assert_eq!(stream.subscribe(ADDRESS, []), [told(ADDRESS, ["pod", "svc"])]);
    stream.ack(ADDRESS);
    assert_eq!(stream.subscribe(AUTHORIZATION, []), [told(AUTHORIZATION, [])]);
    assert_eq!(stream.change(|world| world.delete(ADDRESS, "pod")), [told_and_removed(ADDRESS, [], ["pod"])]);
}

#[test]
fn added_names_are_answered_alone() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.subscribe(ENDPOINT, ["a"]);
    assert_eq!(stream.subscribe(ENDPOINT, ["b"]), [told(ENDPOINT, ["b"])]);
}

#[test]
fn names_added_with_an_acknowledgement_or_a_refusal_are_answered() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a"), (ENDPOINT, "b"), (ENDPOINT, "c")]));
    stream.subscribe(ENDPOINT, ["a"]);
    let nonce = stream.last_nonce(ENDPOINT);
    let answer = stream.ask_raw(request(ENDPOINT, &nonce, None, change(["b"], [], [])));
    assert_eq!(answer.iter().map(in_short).collect::<Vec<_>>(), [told(ENDPOINT, ["b"])]);
    let nonce = stream.last_nonce(ENDPOINT);
    let answer = stream.ask_raw(request(ENDPOINT, &nonce, Some("bad"), change(["c"], [], [])));
    // What was refused is uncertain and goes along.
    assert_eq!(answer.iter().map(in_short).collect::<Vec<_>>(), [told(ENDPOINT, ["b", "c"])]);
}

#[test]
fn names_added_with_a_stale_nonce_are_answered() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.subscribe(ENDPOINT, ["a"]);
    let answer = stream.ask_raw(request(ENDPOINT, "made-up", None, change(["b"], [], [])));
    assert_eq!(answer.iter().map(in_short).collect::<Vec<_>>(), [told(ENDPOINT, ["b"])]);
    let expired = |event: &SessionEvent| matches!(event, SessionEvent::Expired { .. });
    assert!(stream.events().iter().any(expired));
}

#[test]
fn name_asked_for_again_gets_no_answer() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a")]));
    stream.subscribe(ENDPOINT, ["a"]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.subscribe(ENDPOINT, ["a"]), []);
}

#[test]
fn unsubscribing_is_silent_and_forgets() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    stream.subscribe(ENDPOINT, ["a", "b"]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.unsubscribe(ENDPOINT, ["a"]), []);
    assert_eq!(stream.change(|world| world.put(ENDPOINT, "a", "2")), []);
    assert_eq!(stream.subscribe(ENDPOINT, ["a"]), [told(ENDPOINT, ["a"])]);
}

#[test]
fn unsubscribing_from_everything_keeps_what_was_named() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b")]));
    stream.subscribe(CLUSTER, ["*", "a"]);
    stream.ack(CLUSTER);
    assert_eq!(stream.session.interest(CLUSTER), Some(&Interest::WildcardAnd(Names::new(["a"]))));
    assert_eq!(stream.unsubscribe(CLUSTER, ["*"]), []);
    let both = |world: &mut World| {
        world.put(CLUSTER, "a", "2");
        world.put(CLUSTER, "b", "2");
    };
    assert_eq!(stream.change(both), [told(CLUSTER, ["a"])]);
    assert_eq!(stream.subscribe(CLUSTER, ["*"]), [told(CLUSTER, ["b"])]);
}

#[test]
fn nothing_is_sent_again_when_versions_match_on_reconnect() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (CLUSTER, "b"), (CLUSTER, "c")]));
    stream.subscribe(CLUSTER, []);
    let version = |name| stream.version(CLUSTER, name);
    let (a, b, c) = (version("a"), version("b"), version("c"));
    let mut stream = stream.reconnected();
    assert_eq!(stream.resume(CLUSTER, [], [("a", &a), ("b", &b), ("c", &c)]), [told(CLUSTER, [])]);

    let mut stream = stream.reconnected();
    stream.world.put(CLUSTER, "b", "2");
    stream.world.delete(CLUSTER, "c");
    stream.world.put(CLUSTER, "d", "1");
    let resumed = stream.resume(CLUSTER, [], [("a", &a), ("b", &b), ("c", &c)]);
    assert_eq!(resumed, [told(CLUSTER, ["b", "d"])], "its routes may still lead to what is gone");
    stream.ack(CLUSTER);
    stream.session.stop_waiting();
    assert_eq!(stream.change(|_| {}), [told_and_removed(CLUSTER, [], ["c"])]);
}

#[test]
fn removals_are_answered_on_reconnect() {
    let mut stream = Stream::delta(World::new([(LISTENER, "a"), (LISTENER, "c")]));
    stream.subscribe(LISTENER, []);
    let (a, c) = (stream.version(LISTENER, "a"), stream.version(LISTENER, "c"));
    let mut stream = stream.reconnected();
    stream.world.delete(LISTENER, "c");
    let resumed = stream.resume(LISTENER, [], [("a", &a), ("c", &c)]);
    assert_eq!(resumed, [told_and_removed(LISTENER, [], ["c"])]);
}

#[test]
fn several_changes_before_the_first_is_acknowledged_come_as_one_difference() {
    let mut stream = Stream::delta(World::new([(LISTENER, "a"), (LISTENER, "b")]));
    stream.subscribe(LISTENER, []);
    stream.ack(LISTENER);
    assert_eq!(stream.change(|world| world.put(LISTENER, "a", "2")), [told(LISTENER, ["a"])]);
    assert_eq!(stream.change(|world| world.put(LISTENER, "c", "1")), []);
    assert_eq!(stream.change(|world| world.put(LISTENER, "c", "2")), []);
    assert_eq!(stream.change(|world| world.delete(LISTENER, "b")), []);
    assert_eq!(stream.ack(LISTENER), [told_and_removed(LISTENER, ["c"], ["b"])]);
    assert_eq!(stream.ack(LISTENER), []);
}

#[test]
fn held_names_count_as_subscribed_on_reconnect() {
    let mut stream = Stream::delta(World::new([(ENDPOINT, "a"), (ENDPOINT, "b")]));
    assert_eq!(stream.resume(ENDPOINT, [], [("a", "")]), [told(ENDPOINT, ["a"])]);
    stream.ack(ENDPOINT);
    assert_eq!(stream.change(|world| world.put(ENDPOINT, "a", "2")), [told(ENDPOINT, ["a"])]);
}

#[test]
fn endpoints_lost_between_cluster_and_reconnect_are_sent() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (ENDPOINT, "a")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    stream.subscribe(ENDPOINT, ["a"]);
    stream.ack(ENDPOINT);
    let endpoint = stream.version(ENDPOINT, "a");
    // The client gets the new cluster, but the stream breaks before the endpoints it waits for arrive.
    stream.change(|world| world.put(CLUSTER, "a", "2"));
    let cluster = stream.version(CLUSTER, "a");
    let mut stream = stream.reconnected();
    assert_eq!(stream.resume(CLUSTER, [], [("a", &cluster)]), [told(CLUSTER, [])]);
    assert_eq!(stream.resume(ENDPOINT, ["a"], [("a", &endpoint)]), [told(ENDPOINT, ["a"])]);
    let endpoint = stream.version(ENDPOINT, "a");
    let mut stream = stream.reconnected();
    stream.resume(CLUSTER, [], [("a", &cluster)]);
    assert_eq!(stream.resume(ENDPOINT, ["a"], [("a", &endpoint)]), [told(ENDPOINT, [])]);
}

#[test]
fn endpoints_that_are_back_as_they_were_are_not_sent_again_to_a_client_that_returned() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (ENDPOINT, "a")]));
    stream.subscribe(CLUSTER, []);
    stream.ack(CLUSTER);
    stream.subscribe(ENDPOINT, ["a"]);
    stream.ack(ENDPOINT);
    let (cluster, endpoint) = (stream.version(CLUSTER, "a"), stream.version(ENDPOINT, "a"));
    // It comes back while the cluster is gone, and keeps it until its routes are settled.
    let mut stream = stream.reconnected();
    stream.change(|world| {
        world.delete(CLUSTER, "a");
        world.delete(ENDPOINT, "a");
    });
    assert_eq!(stream.resume(CLUSTER, [], [("a", &cluster)]), [told(CLUSTER, [])]);
    assert_eq!(stream.resume(ENDPOINT, ["a"], [("a", &endpoint)]), [told(ENDPOINT, [])]);
    assert_eq!([stream.ack(CLUSTER), stream.ack(ENDPOINT)], [vec![], vec![]]);
    let pushed = stream.change(|world| {
        world.put(CLUSTER, "a", "1");
        world.put(ENDPOINT, "a", "1");
    });
    assert_eq!(pushed, []);
    assert_eq!(stream.change(|world| world.put(ENDPOINT, "a", "2")), [told(ENDPOINT, ["a"])]);
}

#[test]
fn on_demand_subscription_starts_with_nothing() {
    let mut world = World::new([(ADDRESS, "svc")]);
    world.insert(ADDRESS, Resource::new("pod", "1").with_aliases(["net/10.0.0.1"]));
    let mut stream = Stream::delta(world);
    let first = stream.ask_raw(request(ADDRESS, "", None, change(["*"], ["*"], [])));
    assert_eq!(first.iter().map(in_short).collect::<Vec<_>>(), [told(ADDRESS, [])]);
    let answer = stream.ask_raw(request(ADDRESS, "", None, change(["net/10.0.0.1", "net/none"], [], [])));
    assert_eq!(in_short(&answer[0]), told_and_removed(ADDRESS, ["pod"], ["net/none"]));
    assert!(answer[0].has_aliases());
    assert_eq!(*answer[0].resource(0).unwrap().aliases, ["net/10.0.0.1".into()]);
    stream.ack(ADDRESS);
    assert_eq!(stream.change(|world| world.delete(ADDRESS, "pod")), [told_and_removed(ADDRESS, [], ["pod"])]);
}

#[test]
fn resource_behind_an_alias_is_forgotten_with_the_alias() {
    let mut world = World::default();
    world.insert(ADDRESS, Resource::new("pod", "1").with_aliases(["net/10.0.0.1"]));
    let mut stream = Stream::delta(world);
    stream.subscribe(ADDRESS, ["net/10.0.0.1"]);
    stream.ack(ADDRESS);
    assert_eq!(stream.unsubscribe(ADDRESS, ["net/10.0.0.1"]), []);
    assert_eq!(stream.subscribe(ADDRESS, ["pod"]), [told(ADDRESS, ["pod"])]);
}

#[test]
fn refused_type_ends_the_stream() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a")]).refusing("foo.Bar"));
    stream.subscribe(CLUSTER, []);
    let refusal = stream.try_ask(request("foo.Bar", "", None, change([], [], []))).unwrap_err();
    assert_eq!(refusal.code, Code::PermissionDenied);
}

#[test]
fn too_many_names_or_types_end_the_stream() {
    let mut stream = Stream::delta(World::default());
    let names: Vec<String> = (0..60).map(|n| format!("n{n}")).collect();
    let wish = |prefix: &str| crate::session::Wish::Change {
        subscribe: names.iter().map(|name| format!("{prefix}{name}")).collect(),
        unsubscribe: Vec::new(),
        held: Default::default(),
    };
    stream.ask_raw(request(ENDPOINT, "", None, wish("a")));
    let refusal = stream.try_ask(request(ENDPOINT, "", None, wish("b"))).unwrap_err();
    assert_eq!(refusal.code, Code::ResourceExhausted);

    let mut stream = Stream::delta(World::default());
    for n in 0..8 {
        stream.subscribe(&format!("type/{n}"), []);
    }
    let refusal = stream.try_ask(request("type/9", "", None, change([], [], []))).unwrap_err();
    assert_eq!(refusal.code, Code::ResourceExhausted);
}

#[test]
fn names_of_all_types_together_are_bounded() {
    let mut stream = Stream::delta(World::default());
    let long = |name: &str| format!("{name}{}", "x".repeat(4_000));
    let (first, second) = (long("a"), long("b"));
    stream.subscribe(ENDPOINT, [&first]);
    stream.subscribe(ROUTE, [&second]);
    for type_url in [ENDPOINT, ROUTE, SECRET] {
        let more = request(type_url, "", None, change([long("c").as_str()], [], []));
        assert_eq!(stream.try_ask(more).unwrap_err().code, Code::ResourceExhausted, "{type_url}");
    }
    stream.unsubscribe(ENDPOINT, [&first]);
    stream.subscribe(SECRET, [&first]);
}

#[test]
fn query_is_answered_each_time_and_never_pushed() {
    let syncz = "istio.io/debug/syncz";
    let mut stream = Stream::delta(World::new([(syncz, "all")]));
    let ask = || request(syncz, "", None, change([], [], []));
    let answer = stream.ask_raw(ask());
    assert_eq!(in_short(&answer[0]), told(syncz, ["all"]));
    assert_eq!(answer[0].identifier(), Some("this control plane"));
    assert_eq!(stream.ask_raw(ask()).len(), 1);
    assert_eq!(stream.change(|world| world.put(syncz, "all", "2")), []);
    let nonce = stream.last_nonce(syncz);
    assert!(stream.ask_raw(request(syncz, &nonce, None, change([], [], []))).is_empty());
}

#[test]
fn query_with_a_nonce_of_the_client_is_answered() {
    let syncz = "istio.io/debug/syncz";
    for nonce in ["2026-11-18 06:00:00.123 +0000 UTC m=+0.05", "0-1", "ffff-zz", "-"] {
        let mut stream = Stream::delta(World::new([(syncz, "all")]));
        let answer = stream.ask_raw(request(syncz, nonce, None, change([], [], [])));
        assert_eq!(answer.len(), 1, "{nonce}");
    }
}

#[test]
fn report_is_noted_and_not_answered() {
    let mut stream = Stream::delta(World::default());
    assert!(stream.ask_raw(request(HEALTH, "", Some("unwell"), change([], [], []))).is_empty());
    let reported = SessionEvent::Reported { type_url: HEALTH.into(), error: Some("unwell".into()) };
    assert_eq!(stream.events(), [reported]);
}

#[test]
fn session_settles_when_everything_is_acknowledged() {
    let mut stream = Stream::delta(World::new([(CLUSTER, "a"), (LISTENER, "l")]));
    let settled = |stream: &mut Stream| {
        let events = stream.events();
        events.into_iter().find_map(|event| match event {
            SessionEvent::Settled { revision } => Some(revision),
            _ => None,
        })
    };
    stream.subscribe(CLUSTER, []);
    stream.subscribe(LISTENER, []);
    stream.ack(CLUSTER);
    assert_eq!(settled(&mut stream), None);
    stream.ack(LISTENER);
    assert_eq!(settled(&mut stream), Some(0));
    stream.change(|world| world.put(LISTENER, "l", "2"));
    assert_eq!(settled(&mut stream), None);
    stream.ack(LISTENER);
    assert_eq!(settled(&mut stream), Some(1));
    stream.change(|_| {});
    assert_eq!(settled(&mut stream), Some(2));
}
