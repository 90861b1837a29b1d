//! Make before break.

use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource};
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use canopus_proto::istio::workload::{Address, Workload, address};

use super::world::Nonce::{Last, None as NoNonce};
use super::world::{Delivered, Stream, World, told, told_and_removed};
use crate::resource::Resource;
use crate::session::Protocol;
use crate::types::{ADDRESS, AUTHORIZATION, CLUSTER, ENDPOINT, LISTENER, ROUTE};

/// A cluster whose endpoints are to be asked for.
fn cluster(name: &str) -> Resource {
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let eds_config = Some(ConfigSource { config_source_specifier: Some(ads), ..Default::default() });
    let eds = EdsClusterConfig { eds_config, service_name: name.into() };
    Resource::encode(
        name,
        &Cluster { name: name.into(), eds_cluster_config: Some(eds), ..Default::default() },
    )
}

/// Routes that lead to these clusters.
fn routes(clusters: &[&str]) -> Resource {
    let host = |name: &&str| VirtualHost { name: (*name).into(), ..Default::default() };
    let virtual_hosts = clusters.iter().map(host).collect();
    Resource::encode("80", &RouteConfiguration { name: "80".into(), virtual_hosts, ..Default::default() })
}

fn world(clusters: &[&str], routed: &[&str]) -> World {
    let mut world = World::default();
    change_to(&mut world, clusters, routed);
    world.put(LISTENER, "l", "1");
    world
}

fn change_to(world: &mut World, clusters: &[&str], routed: &[&str]) {
    for name in ["a", "b", "c"] {
        world.delete(CLUSTER, name);
        world.delete(ENDPOINT, name);
    }
    for name in clusters {
        world.insert(CLUSTER, cluster(name));
        world.put(ENDPOINT, name, "1");
    }
    world.insert(ROUTE, routes(routed));
}

/// A client that has cluster `a` and routes that lead to it.
fn serving(protocol: Protocol) -> Stream {
    let world = world(&["a"], &["a"]);
    let mut stream = match protocol {
        Protocol::Delta => Stream::delta(world),
        Protocol::Sotw => Stream::sotw(world),
    };
    ask(&mut stream, CLUSTER, []);
    stream.ack(CLUSTER);
    ask(&mut stream, ENDPOINT, ["a"]);
    stream.ack(ENDPOINT);
    ask(&mut stream, LISTENER, []);
    stream.ack(LISTENER);
    ask(&mut stream, ROUTE, ["80"]);
    stream.ack(ROUTE);
    stream
}

fn ask<const N: usize>(stream: &mut Stream, type_url: &str, names: [&str; N]) -> Vec<Delivered> {
    match stream.session.protocol {
        Protocol::Delta => stream.subscribe(type_url, names),
        Protocol::Sotw => stream.want(type_url, NoNonce, names),
    }
}

/// Asks for more endpoints than it did.
fn ask_for_endpoints(stream: &mut Stream) -> Vec<Delivered> {
    match stream.session.protocol {
        Protocol::Delta => stream.subscribe(ENDPOINT, ["b"]),
        Protocol::Sotw => stream.want(ENDPOINT, Last, ["a", "b"]),
    }
}

const BOTH: [Protocol; 2] = [Protocol::Delta, Protocol::Sotw];

#[test]
fn routes_wait_until_their_new_cluster_has_endpoints() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        let pushed = stream.change(|world| change_to(world, &["a", "b"], &["a", "b"]));
        assert_eq!(pushed.len(), 1, "{pushed:?}");
        assert_eq!(pushed[0].type_url, CLUSTER);
        assert!(stream.session.is_waiting());
        assert_eq!(stream.ack(CLUSTER), []);
        assert_eq!(ask_for_endpoints(&mut stream), [told(ENDPOINT, ["b"])]);
        assert_eq!(stream.ack(ENDPOINT), [told(ROUTE, ["80"])]);
        assert!(!stream.session.is_waiting());
    }
}

#[test]
fn endpoints_may_be_asked_for_before_the_cluster_is_acknowledged() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        stream.change(|world| change_to(world, &["a", "b"], &["b"]));
        assert_eq!(ask_for_endpoints(&mut stream), [told(ENDPOINT, ["b"])]);
        assert_eq!(stream.ack(ENDPOINT), []);
        assert_eq!(stream.ack(CLUSTER), [told(ROUTE, ["80"])]);
    }
}

#[test]
fn cluster_goes_after_the_routes_that_named_it_are_acknowledged() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        stream.change(|world| change_to(world, &["a", "b"], &["b"]));
        stream.ack(CLUSTER);
        ask_for_endpoints(&mut stream);
        stream.ack(ENDPOINT);
        stream.ack(ROUTE);
        let pushed = stream.change(|world| change_to(world, &["a"], &["a"]));
        assert_eq!(pushed, [told(ROUTE, ["80"])]);
        assert!(stream.session.is_waiting());
        let removal = match protocol {
            Protocol::Delta => told_and_removed(CLUSTER, [], ["b"]),
            Protocol::Sotw => told(CLUSTER, ["a"]),
        };
        assert_eq!(stream.ack(ROUTE)[0], removal);
    }
}

#[test]
fn one_cluster_takes_the_place_of_another() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        let pushed = stream.change(|world| change_to(world, &["b"], &["b"]));
        let both = match protocol {
            Protocol::Delta => told(CLUSTER, ["b"]),
            Protocol::Sotw => told(CLUSTER, ["a", "b"]),
        };
        assert_eq!(pushed, [both]);
        assert_eq!(stream.ack(CLUSTER), []);
        ask_for_endpoints(&mut stream);
        assert_eq!(stream.ack(ENDPOINT), [told(ROUTE, ["80"])]);
        let last = match protocol {
            Protocol::Delta => told_and_removed(CLUSTER, [], ["a"]),
            Protocol::Sotw => told(CLUSTER, ["b"]),
        };
        assert_eq!(stream.ack(ROUTE)[0], last);
        stream.ack(CLUSTER);
        assert!(!stream.session.is_waiting());
    }
}

#[test]
fn what_does_not_name_the_new_cluster_does_not_wait() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        let pushed = stream.change(|world| {
            change_to(world, &["a", "b"], &["a"]);
            world.put(LISTENER, "l", "2");
        });
        let types: Vec<_> = pushed.iter().map(|told| told.type_url.as_str()).collect();
        assert_eq!(types, [CLUSTER, LISTENER]);
    }
}

#[test]
fn waiting_ends_when_it_has_taken_long_enough() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        stream.change(|world| change_to(world, &["a", "b"], &["b"]));
        stream.session.stop_waiting();
        assert_eq!(stream.change(|_| {}), [told(ROUTE, ["80"])]);
        assert!(!stream.session.is_waiting());
    }
}

#[test]
fn routes_do_not_wait_for_a_cluster_that_was_refused() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        stream.change(|world| change_to(world, &["a", "b"], &["b"]));
        assert_eq!(stream.nack(CLUSTER), [told(ROUTE, ["80"])]);
    }
}

#[test]
fn routes_to_a_cluster_that_does_not_exist_do_not_keep_it_or_wait() {
    for protocol in BOTH {
        let mut stream = serving(protocol);
        let pushed = stream.change(|world| change_to(world, &["b"], &["a", "c"]));
        assert_eq!(pushed.last(), Some(&told(ROUTE, ["80"])), "{protocol:?}");
        stream.ack(CLUSTER);
        stream.ack(ROUTE);
        assert!(!stream.session.is_waiting());
    }
}

#[test]
fn clients_that_ask_for_clusters_by_name_are_not_waited_for() {
    let mut stream = Stream::delta(world(&["a"], &["a"]));
    stream.subscribe(ROUTE, ["80"]);
    stream.ack(ROUTE);
    stream.subscribe(CLUSTER, ["a"]);
    stream.ack(CLUSTER);
    assert_eq!(stream.change(|world| change_to(world, &["a", "b"], &["b"])), [told(ROUTE, ["80"])]);
}

#[test]
fn routes_of_a_returning_client_wait_for_clusters_it_does_not_have() {
    let stream = serving(Protocol::Delta);
    let version = |type_url, name| stream.version(type_url, name);
    let (a, route, listener) = (version(CLUSTER, "a"), version(ROUTE, "80"), version(LISTENER, "l"));
    let endpoints = version(ENDPOINT, "a");
    let mut stream = stream.reconnected();
    stream.change(|world| change_to(world, &["b"], &["b"]));
    assert_eq!(stream.resume(CLUSTER, [], [("a", &a)]), [told(CLUSTER, ["b"])]);
    assert_eq!(stream.resume(ENDPOINT, ["a"], [("a", &endpoints)]).len(), 1);
    stream.resume(LISTENER, [], [("l", &listener)]);
    assert_eq!(stream.resume(ROUTE, ["80"], [("80", &route)]), []);
    assert_eq!(stream.ack(ENDPOINT), []);
    assert_eq!(stream.ack(LISTENER), []);
    assert_eq!(stream.ack(CLUSTER), []);
    stream.subscribe(ENDPOINT, ["b"]);
    assert_eq!(stream.ack(ENDPOINT), [told(ROUTE, ["80"])]);
    assert!(stream.session.is_waiting(), "the cluster that is gone waits for the routes");
    assert_eq!(stream.ack(ROUTE), [told_and_removed(CLUSTER, [], ["a"])]);
    stream.ack(CLUSTER);
    assert!(!stream.session.is_waiting());
}

#[test]
fn returning_client_without_new_routes_is_told_of_removed_clusters_once_its_listeners_are_settled() {
    let stream = serving(Protocol::Delta);
    let version = |type_url, name| stream.version(type_url, name);
    let (route, listener) = (version(ROUTE, "80"), version(LISTENER, "l"));
    let mut stream = stream.reconnected();
    assert_eq!(stream.resume(CLUSTER, [], [("gone", "1"), ("a", "outdated")]), [told(CLUSTER, ["a"])]);
    assert_eq!(stream.ack(CLUSTER), []);
    assert_eq!(stream.resume(LISTENER, [], [("l", &listener)]).len(), 1);
    assert_eq!(stream.resume(ROUTE, ["80"], [("80", &route)]).len(), 1);
    assert_eq!(stream.ack(LISTENER), []);
    assert_eq!(stream.ack(ROUTE), [told_and_removed(CLUSTER, [], ["gone"])]);
}

#[test]
fn returning_client_that_asks_for_nothing_else_is_told_of_removed_clusters_after_a_while() {
    let mut stream = Stream::delta(world(&["a"], &["a"]));
    assert_eq!(stream.resume(CLUSTER, [], [("gone", "1")]), [told(CLUSTER, ["a"])]);
    assert_eq!(stream.ack(CLUSTER), []);
    assert!(stream.session.is_waiting());
    stream.session.stop_waiting();
    assert_eq!(stream.change(|_| {}), [told_and_removed(CLUSTER, [], ["gone"])]);
}

/// A state-of-the-world client that has clusters `a` and `b` with routes to `a`, and returns to this world.
fn returning_to(clusters: &[&str], routed: &[&str]) -> Stream {
    let mut stream = Stream::sotw(world(&["a", "b"], &["a"]));
    ask(&mut stream, CLUSTER, []);
    let version = stream.whole_version(CLUSTER);
    let mut stream = stream.reconnected();
    stream.change(|world| change_to(world, clusters, routed));
    assert_eq!(stream.want_with_version(CLUSTER, &version), []);
    stream
}

#[test]
fn returning_state_of_the_world_client_keeps_clusters_until_its_routes_are_settled() {
    let mut stream = returning_to(&["b"], &["b"]);
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["a", "b"]), []);
    assert_eq!(stream.want(LISTENER, NoNonce, []), [told(LISTENER, ["l"])]);
    assert_eq!(stream.want(ROUTE, NoNonce, ["80"]), [told(ROUTE, ["80"])]);
    assert!(stream.session.is_waiting());
    assert_eq!(stream.ack(LISTENER), []);
    assert_eq!(stream.ack(ROUTE), [told(CLUSTER, ["b"]), told(ENDPOINT, ["b"])]);
    assert!(!stream.session.is_waiting());
}

#[test]
fn returning_state_of_the_world_client_gets_clusters_first_if_its_routes_name_new_ones() {
    let mut stream = returning_to(&["b", "c"], &["c"]);
    assert_eq!(stream.want(ENDPOINT, NoNonce, ["a", "b"]), []);
    assert_eq!(stream.want(LISTENER, NoNonce, []), [told(LISTENER, ["l"])]);
    let told_first = stream.want(ROUTE, NoNonce, ["80"]);
    assert_eq!(told_first, [told(CLUSTER, ["b", "c"]), told(ENDPOINT, ["b"])]);
    stream.ack(CLUSTER);
    stream.want(ENDPOINT, Last, ["b", "c"]);
    assert_eq!(stream.ack(ENDPOINT), [told(ROUTE, ["80"])]);
}

#[test]
fn returning_state_of_the_world_client_that_lacks_nothing_gets_its_clusters_at_once() {
    let mut stream = returning_to(&["a", "b", "c"], &["a"]);
    // It may have listeners of its own, and never ask for any.
    let answers = stream.want(ENDPOINT, NoNonce, ["a", "b"]);
    assert_eq!(answers, [told(CLUSTER, ["a", "b", "c"]), told(ENDPOINT, ["a", "b"])]);
}

#[test]
fn returning_state_of_the_world_client_that_asks_for_nothing_else_is_answered_after_a_while() {
    let mut stream = returning_to(&["b"], &["b"]);
    assert!(stream.session.is_waiting());
    stream.session.stop_waiting();
    assert_eq!(stream.change(|_| {}), [told(CLUSTER, ["b"])]);
}

/// A workload that these policies are about.
fn workload(policies: &[&str]) -> Resource {
    let authorization_policies = policies.iter().map(ToString::to_string).collect();
    let workload = Workload { uid: "w".into(), authorization_policies, ..Workload::default() };
    Resource::encode("w", &Address { r#type: Some(address::Type::Workload(workload)) })
}

/// The policies there are, and those that the workload names.
fn guard(world: &mut World, policies: &[&str], named: &[&str]) {
    for name in ["shop/a", "shop/b"] {
        world.delete(AUTHORIZATION, name);
    }
    for name in policies {
        world.put(AUTHORIZATION, name, "1");
    }
    world.insert(ADDRESS, workload(named));
}

/// A ztunnel that has the workload and these policies, all of which it names.
fn guarded(policies: &[&str]) -> Stream {
    let mut world = World::default();
    guard(&mut world, policies, policies);
    let mut stream = Stream::delta(world);
    stream.subscribe(ADDRESS, []);
    stream.ack(ADDRESS);
    stream.subscribe(AUTHORIZATION, []);
    stream.ack(AUTHORIZATION);
    stream
}

#[test]
fn workload_names_a_new_policy_once_that_is_acknowledged() {
    for before in [&[][..], &["shop/b"]] {
        let mut stream = guarded(before);
        let after = [before, &["shop/a"]].concat();
        let pushed = stream.change(|world| guard(world, &after, &after));
        assert_eq!(pushed, [told(AUTHORIZATION, ["shop/a"])], "{before:?}");
        assert!(stream.session.is_waiting());
        assert_eq!(stream.ack(AUTHORIZATION), [told(ADDRESS, ["w"])], "{before:?}");
        assert!(!stream.session.is_waiting());
    }
}

#[test]
fn policy_goes_once_the_workload_that_named_it_is_acknowledged() {
    let mut stream = guarded(&["shop/a"]);
    assert_eq!(stream.change(|world| guard(world, &[], &[])), [told(ADDRESS, ["w"])]);
    assert!(stream.session.is_waiting());
    assert_eq!(stream.ack(ADDRESS), [told_and_removed(AUTHORIZATION, [], ["shop/a"])]);
    assert!(!stream.session.is_waiting());
}

#[test]
fn policy_stays_while_the_change_of_a_workload_waits_for_an_acknowledgement() {
    let mut stream = guarded(&["shop/a"]);
    stream.change(|world| guard(world, &["shop/a", "shop/b"], &["shop/a"]));
    stream.ack(AUTHORIZATION);
    // The workload is told something that is not acknowledged when both go.
    assert_eq!(
        stream.change(|world| guard(world, &["shop/a", "shop/b"], &["shop/b"])),
        [told(ADDRESS, ["w"])]
    );
    assert_eq!(stream.change(|world| guard(world, &[], &[])), []);
    let removal = |name: &str| told_and_removed(AUTHORIZATION, [], [name]);
    assert_eq!(stream.ack(ADDRESS), [told(ADDRESS, ["w"]), removal("shop/a")]);
    assert_eq!(stream.ack(AUTHORIZATION), []);
    assert_eq!(stream.ack(ADDRESS), [removal("shop/b")]);
}

#[test]
fn one_policy_takes_the_place_of_another_and_the_workload_is_never_without() {
    let mut stream = guarded(&["shop/a"]);
    let pushed = stream.change(|world| guard(world, &["shop/b"], &["shop/b"]));
    assert_eq!(pushed, [told(AUTHORIZATION, ["shop/b"])]);
    assert_eq!(stream.ack(AUTHORIZATION), [told(ADDRESS, ["w"])]);
    assert_eq!(stream.ack(ADDRESS), [told_and_removed(AUTHORIZATION, [], ["shop/a"])]);
}

#[test]
fn ztunnel_that_never_acknowledges_is_told_everything_after_a_while() {
    let mut stream = guarded(&["shop/a"]);
    stream.change(|world| guard(world, &["shop/b"], &["shop/b"]));
    stream.session.stop_waiting();
    assert_eq!(stream.change(|_| {}), [told(ADDRESS, ["w"])]);
}

#[test]
fn returning_ztunnel_keeps_a_policy_that_is_gone_until_its_workloads_are_settled() {
    let stream = guarded(&["shop/a"]);
    let (workload, policy) = (stream.version(ADDRESS, "w"), stream.version(AUTHORIZATION, "shop/a"));
    let mut stream = stream.reconnected();
    stream.change(|world| guard(world, &[], &[]));
    assert_eq!(stream.resume(ADDRESS, [], [("w", &workload)]), [told(ADDRESS, ["w"])]);
    assert_eq!(stream.resume(AUTHORIZATION, [], [("shop/a", &policy)]), [told(AUTHORIZATION, [])]);
    stream.ack(AUTHORIZATION);
    assert_eq!(stream.ack(ADDRESS), [told_and_removed(AUTHORIZATION, [], ["shop/a"])]);
}
