use canopus_engine::Engine;
use canopus_runtime::flags::Flags;

use super::*;
use crate::testing;
use crate::world::MeshSettings;

fn world(ambient: bool, documents: &[String]) -> Engine {
    let flags = Flags::read(&[("PILOT_ENABLE_AMBIENT", if ambient { "true" } else { "false" })]);
    let settings = MeshSettings { flags: Arc::new(flags), ..MeshSettings::default() };
    testing::world(settings, &documents.join("\n---\n"))
}

/// A waypoint in `ns` that namespaces may attach to as `from` says, with labels.
fn waypoint(name: &str, from: &str, labels: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
          metadata: {{name: {name}, namespace: ns, labels: {{{labels}}}}},
          spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE,
            allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}},
          status: {{addresses: [{{type: Hostname, value: {name}.ns.svc.cluster.local}}]}}}}"
    )
}

fn namespace_with(name: &str, labels: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{labels}}}}}}}")
}

fn service(namespace: &str, labels: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service,
          metadata: {{name: a, namespace: {namespace}, labels: {{{labels}}}, annotations: {{{annotations}}}}},
          spec: {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80}}]}}}}"
    )
}

/// The names of the waypoints in front of the service `a` of a namespace.
fn in_front(ambient: bool, namespace: &str, documents: &[String]) -> Vec<String> {
    let origin = Origin::new("Kubernetes", ObjectKey::new(Kind::Service, namespace, "a"));
    let found = world(ambient, documents).get::<WaypointsOf>(&origin).unwrap();
    found.iter().map(|waypoint| waypoint.name.to_string()).collect()
}

const USES: &str = "istio.io/use-waypoint: w";
const NONE: [&str; 0] = [];

#[test]
fn service_attaches_to_the_waypoint_it_names_when_the_mesh_is_ambient() {
    let all = [waypoint("w", "Same", ""), namespace_with("ns", ""), service("ns", USES, "")];
    assert_eq!(in_front(true, "ns", &all), ["w"]);
    assert_eq!(in_front(false, "ns", &all), NONE);
}

#[test]
fn namespace_decides_when_the_service_says_nothing() {
    let home = || namespace_with("ns", USES);
    let said = |labels: &str| [waypoint("w", "Same", ""), home(), service("ns", labels, "")];
    assert_eq!(in_front(true, "ns", &said("")), ["w"]);
    assert_eq!(in_front(true, "ns", &said("istio.io/use-waypoint: none")), NONE);
    // What is named but is not there is not replaced.
    assert_eq!(in_front(true, "ns", &said("istio.io/use-waypoint: missing")), NONE);
}

#[test]
fn other_namespaces_attach_only_when_the_waypoint_allows_them() {
    let labels = format!("{USES}, istio.io/use-waypoint-namespace: ns");
    let from = |from: &str| {
        let other = namespace_with("other", "team: red");
        [waypoint("w", from, ""), other, service("other", &labels, "")]
    };
    assert_eq!(in_front(true, "other", &from("All")), ["w"]);
    assert_eq!(in_front(true, "other", &from("Same")), NONE);
    let selector = |team: &str| format!("Selector, selector: {{matchLabels: {{team: {team}}}}}");
    assert_eq!(in_front(true, "other", &from(&selector("red"))), ["w"]);
    assert_eq!(in_front(true, "other", &from(&selector("blue"))), NONE);
}

#[test]
fn waypoint_takes_the_traffic_of_services_unless_it_says_otherwise() {
    for (traffic, takes) in [("service", true), ("all", true), ("workload", false), ("none", false)] {
        let label = format!("istio.io/waypoint-for: {traffic}");
        let all = [waypoint("w", "Same", &label), namespace_with("ns", ""), service("ns", USES, "")];
        assert_eq!(!in_front(true, "ns", &all).is_empty(), takes, "{traffic}");
    }
}

#[test]
fn waypoint_that_is_tried_out_counts_when_its_weight_is_a_percentage() {
    let labels = format!("{USES}, istio.io/use-waypoint-canary: new");
    let weighted = |weight: &str| {
        let annotation = format!("istio.io/use-waypoint-canary-weight: '{weight}'");
        let service = service("ns", &labels, &annotation);
        [waypoint("w", "Same", ""), waypoint("new", "Same", ""), namespace_with("ns", ""), service]
    };
    assert_eq!(in_front(true, "ns", &weighted("10")), ["w", "new"]);
    assert_eq!(in_front(true, "ns", &weighted("101")), ["w"]);
}

#[test]
fn waypoints_have_no_waypoint_in_front_of_them() {
    let labels = format!("{USES}, gateway.istio.io/managed: istio.io-mesh-controller");
    let all = [waypoint("w", "Same", ""), namespace_with("ns", USES), service("ns", &labels, "")];
    assert_eq!(in_front(true, "ns", &all), NONE);
}

#[test]
fn entry_that_only_its_namespace_sees_stays_with_waypoints_of_its_own() {
    let entry = |namespace: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry,
              metadata: {{name: a, namespace: {namespace}, labels: {{{USES}, istio.io/use-waypoint-namespace: ns}}}},
              spec: {{hosts: [a.com], resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}}}"
        )
    };
    let in_front = |visibility: &str, namespace: &str| {
        let mut settings = MeshSettings {
            flags: Arc::new(Flags::read(&[("PILOT_ENABLE_AMBIENT", "true")])),
            ..MeshSettings::default()
        };
        let mesh = format!("serviceEntryVisibility: {{defaultVisibility: {visibility}}}");
        settings.mesh = canopus_api::mesh_config::apply_usable(&mesh, &settings.mesh).unwrap().value;
        let objects = [
            waypoint("w", "All", ""),
            namespace_with("ns", ""),
            namespace_with("other", ""),
            entry("ns"),
            entry("other"),
        ];
        let world = testing::world(settings, &objects.join("\n---\n"));
        let origin = Origin::new("Kubernetes", ObjectKey::new(Kind::ServiceEntry, namespace, "a"));
        let found = world.get::<WaypointsOf>(&origin).unwrap();
        found.iter().map(|waypoint| waypoint.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(in_front("NAMESPACE", "ns"), ["w"]);
    assert_eq!(in_front("NAMESPACE", "other"), NONE);
    assert_eq!(in_front("PUBLIC", "other"), ["w"]);
}
