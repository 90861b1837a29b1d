use canopus_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::route_match::PathSpecifier;
use canopus_proto::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::Secret;

use super::*;

fn route(name: &str, prefix: &str, cluster: &str) -> Route {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..RouteAction::default()
    };
    Route {
        name: name.to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(prefix.to_owned())),
            ..RouteMatch::default()
        }),
        action: Some(Action::Route(action)),
        ..Route::default()
    }
}

fn table(routes: Vec<Route>) -> Resource {
    let host = VirtualHost {
        name: "cart.shop:80".to_owned(),
        domains: vec!["*.cart".to_owned(), "cart".to_owned()],
        routes,
        ..VirtualHost::default()
    };
    let table = RouteConfiguration {
        name: "80".to_owned(),
        virtual_hosts: vec![host],
        ..RouteConfiguration::default()
    };
    Resource::encode("80", &table)
}

fn listener(chains: &[(&str, u32)], traffic: i32) -> Resource {
    let chain = |(name, port): &(&str, u32)| FilterChain {
        name: (*name).to_owned(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(canopus_proto::google::protobuf::UInt32Value { value: *port }),
            ..FilterChainMatch::default()
        }),
        ..FilterChain::default()
    };
    let listener = Listener {
        name: "a".to_owned(),
        filter_chains: chains.iter().map(chain).collect(),
        traffic_direction: traffic,
        ..Listener::default()
    };
    Resource::encode("a", &listener)
}

fn only(kind: ResourceType, before: Option<Resource>, after: Option<Resource>) -> GroupImpact {
    let differences = differences(kind, before.as_slice(), after.as_slice());
    let mut impact = Impact::new([("web.shop".to_owned(), differences)]);
    impact.changes.remove(0)
}

#[test]
fn proxies_with_equal_changes_are_one_group() {
    let change = || differences(ResourceType::Route, &[table(vec![])], &[table(vec![route("a", "/", "x")])]);
    let other = differences(ResourceType::Route, &[], &[table(vec![])]);
    let proxies = [("b", change()), ("c", other), ("a", change()), ("d", Vec::new())];
    let impact = Impact::new(proxies.map(|(name, differences)| (name.to_owned(), differences)));
    assert_eq!((impact.proxies, impact.changed_proxies, impact.changed_resources), (4, 3, 3));
    let groups: Vec<Vec<String>> = impact.changes.iter().map(|group| group.proxies.clone()).collect();
    assert_eq!(groups, [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]]);
}

#[test]
fn accounts_of_two_control_planes_are_one() {
    let change = || differences(ResourceType::Route, &[], &[table(vec![])]);
    let [first, second] = ["a", "b"].map(|name| Impact::new([(name.to_owned(), change())]));
    let bytes = first.bytes;
    let merged = first.merge(second);
    assert_eq!((merged.proxies, merged.changed_proxies, merged.bytes), (2, 2, bytes * 2));
    assert_eq!(merged.changes.len(), 1);
    assert_eq!(merged.changes[0].proxies, ["a", "b"]);
}

#[test]
fn fields_are_named_by_the_items_they_are_in() {
    let before = table(vec![route("old", "/a", "x"), route("all", "/", "x")]);
    let after = table(vec![route("new", "/a", "x"), route("all", "/", "y")]);
    let group = only(ResourceType::Route, Some(before), Some(after));
    let paths: Vec<&str> = group.changes[0].fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "virtualHosts[cart.shop:80].routes[old]",
            "virtualHosts[cart.shop:80].routes[all].route.cluster",
            "virtualHosts[cart.shop:80].routes[new]",
        ]
    );
    let cluster = &group.changes[0].fields[1];
    assert_eq!((cluster.before.as_deref(), cluster.after.as_deref()), (Some("\"x\""), Some("\"y\"")));
}

#[test]
fn another_order_of_routes_is_a_change() {
    let (a, b) = (route("a", "/a", "x"), route("b", "/b", "x"));
    let group = only(ResourceType::Route, Some(table(vec![a.clone(), b.clone()])), Some(table(vec![b, a])));
    let order = &group.changes[0].fields[0];
    assert_eq!(order.path, "virtualHosts[cart.shop:80].routes (order)");
    assert_eq!((order.before.as_deref(), order.after.as_deref()), (Some("a, b"), Some("b, a")));
}

#[test]
fn requests_that_take_another_way_are_shown_once_for_each_pair_of_ways() {
    let before = table(vec![route("all", "/", "x")]);
    let after = table(vec![route("a", "/a", "y"), route("a2", "/a2", "y"), route("all", "/", "x")]);
    let group = only(ResourceType::Route, Some(before), Some(after));
    assert_eq!(
        group.requests,
        [Reroute {
            request: "GET http://cart/a".to_owned(),
            decided_by: "80".to_owned(),
            before: "goes to x".to_owned(),
            after: "goes to y".to_owned(),
        }]
    );
}

#[test]
fn listener_whose_chains_alone_change_drains_those() {
    let before = listener(&[("80", 80), ("90", 90)], 0);
    let group =
        only(ResourceType::Listener, Some(before.clone()), Some(listener(&[("80", 80), ("90", 91)], 0)));
    assert!(group.changes[0].drains);
    assert_eq!(group.changes[0].drained_chains, ["90"]);
    let more = listener(&[("80", 80), ("90", 90), ("99", 99)], 0);
    assert!(!only(ResourceType::Listener, Some(before.clone()), Some(more)).changes[0].drains);
    for after in [Some(listener(&[("80", 80), ("90", 90)], 1)), None] {
        let group = only(ResourceType::Listener, Some(before.clone()), after);
        assert!(group.changes[0].drains && group.changes[0].drained_chains.is_empty());
    }
    assert!(!only(ResourceType::Listener, None, Some(before)).changes[0].drains, "nobody is connected yet");
}

#[test]
fn values_of_secrets_are_not_shown() {
    let secret = |name: &str| Resource::encode("key", &Secret { name: name.to_owned(), ..Secret::default() });
    let group = only(ResourceType::Secret, Some(secret("one")), Some(secret("two")));
    let field = &group.changes[0].fields[0];
    assert_eq!((field.path.as_str(), &field.before, &field.after), ("name", &None, &None));
}
