use std::sync::Arc;

use canopus_api::mesh_config;

use crate::world::{HOME_CLUSTER, Parsed, World, read_text};
use crate::{Outcome, Selection, Suppression, analyze};

fn world(objects: &str) -> World {
    let mut world =
        World::new(mesh_config::default_mesh_config(), mesh_config::default_networks(), "istio-system");
    add(&mut world, HOME_CLUSTER, objects);
    world
}

fn add(world: &mut World, cluster: &str, objects: &str) {
    for parsed in read_text("mesh.yaml", objects.as_bytes(), "", &Arc::from(cluster), |_| true) {
        match parsed {
            Parsed::Resource(resource) => world.insert(*resource),
            other => panic!("{other:?}"),
        }
    }
}

fn run(world: &World, analyzer: &str) -> Outcome {
    let selection = Selection { analyzers: vec![analyzer.to_owned()], ..Selection::default() };
    analyze(world, &selection, |_| true)
}

fn lines(outcome: &Outcome) -> Vec<String> {
    outcome.messages.iter().map(ToString::to_string).collect()
}

const ROUTE: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{name: http, port: 80}, {name: grpc, port: 81}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop}
spec:
  hosts: [cart]
  http:
  - route:
    - destination:
        host: cart
    - destination:
        host: gone
    - destination: {host: cart, port: {number: 9}}
";

#[test]
fn messages_name_object_file_and_the_line_of_the_field() {
    assert_eq!(
        lines(&run(&world(ROUTE), "virtualservice.DestinationHostAnalyzer")),
        [
            "Error [IST0101] (VirtualService shop/v mesh.yaml:17) Referenced host not found: \"gone\"",
            "Error [IST0101] (VirtualService shop/v mesh.yaml:18) Referenced host:port not found: \"cart:9\"",
            "Error [IST0112] (VirtualService shop/v mesh.yaml:15) This VirtualService routes to a service \"cart\" that \
             exposes multiple ports [80 81]. Specifying a port in the destination is required to disambiguate.",
        ]
    );
}

#[test]
fn suppressed_codes_are_not_reported() {
    let world = world(ROUTE);
    let selection = Selection {
        analyzers: vec!["virtualservice.DestinationHostAnalyzer".to_owned()],
        suppressions: vec![Suppression::parse("IST0101=VirtualService shop/*").unwrap()],
        ..Selection::default()
    };
    assert_eq!(analyze(&world, &selection, |_| true).messages.len(), 1);
}

#[test]
fn annotation_of_the_object_suppresses_its_codes() {
    let objects = ROUTE.replace(
        "{name: v, namespace: shop}",
        "{name: v, namespace: shop, annotations: {galley.istio.io/analyze-suppress: 'IST0101,IST0112'}}",
    );
    assert_eq!(lines(&run(&world(&objects), "virtualservice.DestinationHostAnalyzer")), Vec::<String>::new());
}

#[test]
fn only_the_chosen_namespace_is_reported() {
    let selection = Selection { namespace: "other".to_owned(), ..Selection::default() };
    let found = analyze(&world(ROUTE), &selection, |_| true).messages;
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn analyzers_are_skipped_when_not_all_they_read_is_known() {
    let outcome = analyze(&world(ROUTE), &Selection::default(), |kind| kind != canopus_api::Kind::Service);
    assert!(outcome.skipped.iter().any(|name| name == "virtualservice.DestinationHostAnalyzer"));
    assert!(outcome.chosen.len() > outcome.skipped.len());
}

#[test]
fn services_that_differ_between_clusters_are_reported_once() {
    let service = |kind: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: a, namespace: shop}}\nspec: {{type: {kind}}}\n"
        )
    };
    let mut world = world(&service("ClusterIP"));
    add(&mut world, "west", &service("NodePort"));
    assert_eq!(
        lines(&run(&world, "services.MultiClusterServiceAnalyzer")),
        [
            "Warning [IST0170] (Service shop/a mesh.yaml:1) The service a in namespace \"shop\" is inconsistent across clusters \
          [\"default\" \"west\"], which can lead to undefined behaviors. The inconsistent behaviors are: service type is \
          inconsistent."
        ]
    );
}

#[test]
fn diagnostics_of_generation_come_with_remedies() {
    let objects = format!(
        "{ROUTE}---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: d, namespace: shop}}\n\
         spec: {{hosts: [x.com], http: [{{route: [{{destination: {{host: cart, port: {{number: 7}}}}}}]}}]}}\n"
    );
    let found = crate::generation::diagnose(&world(&objects)).unwrap();
    assert!(found.iter().any(|message| message.code == "CAN0101" && message.remedy.is_some()), "{found:?}");
}

#[test]
fn every_analyzer_takes_a_world_without_objects() {
    let outcome = analyze(&world(""), &Selection::default(), |_| true);
    assert!(outcome.messages.is_empty(), "{:?}", outcome.messages);
    assert_eq!(outcome.chosen.len(), crate::analyzer::ALL.len());
}
