//! Make before break.

use canopus_proto::envoy::config::cluster::v3::{Cluster, cluster::EdsClusterConfig};
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource};
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::world::Nonce::{Last, None as NoNonce};
use super::world::{Stream, Told, World, told, told_and_removed};
use crate::resource::Resource;
use crate::session::Protocol;
use crate::types::{CLUSTER, ENDPOINT, LISTENER, ROUTE};

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

fn ask<const N: usize>(stream: &mut Stream, type_url: &str, names: [&str; N]) -> Vec<Told> {
    match stream.session.protocol {
        Protocol::Delta => stream.subscribe(type_url, names),
        Protocol::Sotw => stream.want(type_url, NoNonce, names),
    }
}

/// Asks for more endpoints than it did.
fn ask_for_endpoints(stream: &mut Stream) -> Vec<Told> {
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
