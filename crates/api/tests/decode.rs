//! Reading objects, good and bad, through the public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use canopus_api::decode::Reason;
use canopus_api::istio::{DestinationRule, VirtualService};
use canopus_api::kube::{Pod, PodPhase, Secret, Service, ServiceType};
use canopus_api::value::IntOrString;
use canopus_api::{
    DecodeError, Decoded, Kind, Object, ObjectKey, Options, Outcome, Typed, decode_documents, gateway_api,
};
use canopus_base::tree::{Limits, Node, Pos};

fn read_all(text: &str, options: Options) -> Vec<Outcome> {
    decode_documents(text, &Limits::default(), options)
}

fn read(text: &str, options: Options) -> Outcome {
    let mut outcomes = read_all(text, options);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

fn good(text: &str) -> Decoded<Object> {
    read(text, Options::lenient()).unwrap_or_else(|error| panic!("{error}"))
}

fn bad(text: &str) -> DecodeError {
    read(text, Options::strict()).unwrap_err()
}

const ROUTE: &str = "
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata:
  name: reviews
  namespace: shop
  labels: {team: a}
  creationTimestamp: 2026-01-31T12:00:00Z
spec:
  hosts: [reviews]
  http:
  - route:
    - destination: {host: reviews}
      weight: 100
    timeout: 1m
";

#[test]
fn object_is_read_in_any_served_version_and_written_in_the_first() {
    let decoded = good(ROUTE);
    assert!(decoded.ignored.is_empty());
    let object = decoded.value;
    assert_eq!(object.key(), ObjectKey::new(Kind::VirtualService, "shop", "reviews"));
    assert_eq!(object.key().to_string(), "VirtualService shop/reviews");
    let route = object.get::<VirtualService>().unwrap();
    assert_eq!(route.spec.http[0].timeout.unwrap().seconds, 60);
    assert_eq!(route.meta.label("team"), Some("a"));
    assert!(object.get::<DestinationRule>().is_none());
    let node = object.to_node();
    assert_eq!(node.get("apiVersion").and_then(Node::as_str), Some("networking.istio.io/v1"));
    assert_eq!(Object::decode(&node, Options::strict()).unwrap().value, object);
}

#[test]
fn unknown_kind_is_told_from_a_mistake() {
    let error = bad("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: b}");
    assert!(error.is_unknown_kind());
    assert_eq!((&*error.object.api_version, &*error.object.kind), ("batch/v1", "Job"));
    assert_eq!(
        error.to_string(),
        "document 1, batch/v1 Job b/a at line 1, column 1: the mesh does not read this kind"
    );
}

#[test]
fn version_that_nobody_serves_is_refused_with_those_that_are() {
    let error = bad("apiVersion: security.istio.io/v9\nkind: PeerAuthentication\nmetadata: {name: a}");
    assert_eq!(error.reason, Reason::UnknownVersion { served: &["v1", "v1beta1"] });
    assert!(error.to_string().ends_with("this version is not served; use v1 or v1beta1"), "{error}");
}

#[test]
fn document_that_is_no_object_says_what_is_missing() {
    for (text, path) in
        [("kind: Pod", "apiVersion"), ("apiVersion: v1", "kind"), ("apiVersion: 1\nkind: Pod", "apiVersion")]
    {
        let error = bad(text);
        assert!(matches!(error.reason, Reason::NotAnObject(_)), "{error}");
        assert_eq!(error.problems()[0].path, path);
    }
    assert!(matches!(bad("just text").reason, Reason::NotAnObject(_)));
}

#[test]
fn every_wrong_field_is_reported_with_its_place() {
    let error = bad("
apiVersion: v1
kind: Service
metadata:
  name: 7
spec:
  ports:
  - port: many
    protocol: TCP
  - port: 70000
  selector: app
");
    let Reason::Invalid(problems) = &error.reason else { panic!("{error}") };
    let places: Vec<_> = problems.iter().map(|problem| (problem.path.as_str(), problem.at)).collect();
    assert_eq!(
        places,
        [
            ("metadata.name", Pos::new(5, 9)),
            ("spec.ports[0].port", Pos::new(8, 11)),
            ("spec.ports[1].port", Pos::new(10, 11)),
            ("spec.selector", Pos::new(11, 13)),
        ]
    );
    assert!(error.to_string().starts_with("document 1, v1 Service: metadata.name: "), "{error}");
}

#[test]
fn wrong_fields_of_protobuf_specs_are_all_reported() {
    let error = bad("
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a}
spec:
  hosts: b
  http:
  - timeout: soon
");
    let paths: Vec<_> = error.problems().iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["spec.hosts", "spec.http[0].timeout"]);
    assert_eq!(error.problems()[1].at, Pos::new(8, 14));
}

#[test]
fn broken_document_does_not_take_the_others_along() {
    let stream = format!(
        "{ROUTE}---\napiVersion: v1\nkind: [Pod\n---\n# nothing\n---\n{ROUTE}---\napiVersion: v1\nkind: Nothing\n"
    );
    let outcomes = read_all(&stream, Options::watch());
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    let broken = outcomes[1].as_ref().unwrap_err();
    assert!(matches!(broken.reason, Reason::Syntax(_)));
    assert_eq!(broken.document, Some(1));
    assert!(broken.at.is_known(), "{broken}");
    assert!(outcomes[3].as_ref().unwrap_err().is_unknown_kind());
    assert_eq!(outcomes[3].as_ref().unwrap_err().document, Some(4));
}

#[test]
fn truncated_json_is_a_located_syntax_error() {
    let error = bad(r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"#);
    assert!(matches!(error.reason, Reason::Syntax(_)), "{error}");
    assert!(error.at.is_known());
}

#[test]
fn list_is_its_items() {
    let outcomes = read_all(
        "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: a}}
- {apiVersion: example.com/v1, kind: Thing}
- {apiVersion: v1, kind: Namespace, metadata: {name: b}}
",
        Options::watch(),
    );
    let names: Vec<_> = outcomes.iter().flatten().map(|decoded| &*decoded.value.meta().name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(outcomes[1].as_ref().unwrap_err().is_unknown_kind());
    assert_eq!(outcomes[1].as_ref().unwrap_err().at.line, 6);
    assert!(read_all("apiVersion: v1\nkind: List\nitems:", Options::watch()).is_empty());
    assert_eq!(bad("apiVersion: v1\nkind: List\nitems: 1").problems()[0].path, "items");
}

#[test]
fn unknown_field_is_refused_or_listed_but_never_silent() {
    let istio = ROUTE.replace("  http:", "  htp: []\n  http:");
    let gateway_api = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec:
  rules:
  - matchs: []
";
    for (text, path, at) in
        [(istio.as_str(), "spec", Pos::new(11, 3)), (gateway_api, "spec.rules[0].matchs", Pos::new(7, 5))]
    {
        let error = bad(text);
        assert_eq!((error.problems()[0].path.as_str(), error.problems()[0].at), (path, at), "{error}");
        let decoded = good(text);
        assert_eq!(decoded.ignored.len(), 1);
        assert_eq!(decoded.ignored[0].at, at);
    }
    assert!(bad(gateway_api).to_string().contains("spelling"), "the problem says what to do");
}

#[test]
fn unknown_enum_value_does_not_make_an_object_unreadable() {
    let text = "
apiVersion: v1
kind: Service
metadata: {name: a}
spec: {type: Quantum, ports: [{port: 80, protocol: QUIC, targetPort: web}]}
";
    let object = good(text).value;
    let service = object.get::<Service>().unwrap();
    assert_eq!(service.spec.r#type, ServiceType::Other("Quantum".into()));
    assert_eq!(service.spec.ports[0].protocol.as_str(), "QUIC");
    assert_eq!(service.spec.ports[0].target_port, Some(IntOrString::String("web".into())));
    let round = Object::decode(&object.to_node(), Options::strict()).unwrap().value;
    assert_eq!(round, object, "and is kept");

    let rule = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a}
spec: {host: b, trafficPolicy: {tls: {mode: QUANTUM, sni: c}}}
";
    let decoded = good(rule);
    assert_eq!(decoded.ignored[0].path, "spec.trafficPolicy.tls.mode");
    let rule = decoded.value.get::<DestinationRule>().unwrap().clone();
    assert_eq!(rule.spec.traffic_policy.as_ref().unwrap().tls.as_ref().unwrap().sni, "c");
}

#[test]
fn nonsense_in_a_status_hides_no_spec_on_watch() {
    let text = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: a}
spec: {gatewayClassName: istio}
status: {conditions: no}
";
    let decoded = read(text, Options::watch()).unwrap();
    assert_eq!(decoded.ignored[0].path, "status.conditions");
    let gateway = decoded.value.get::<gateway_api::Gateway>().unwrap().clone();
    assert_eq!(&*gateway.spec.gateway_class_name, "istio");
    assert_eq!(bad(text).problems()[0].path, "status.conditions");
}

#[test]
fn null_means_not_given() {
    let text = "
apiVersion: v1
kind: Pod
metadata: {name: a, labels: null, creationTimestamp: null}
spec: {containers: null, hostNetwork: null}
status: null
";
    let object = read(text, Options::strict()).unwrap().value;
    let pod = object.get::<Pod>().unwrap();
    assert_eq!(pod.status.phase, PodPhase::Pending);
    assert!(pod.meta.creation_timestamp.is_none());
}

#[test]
fn secret_shows_its_values_nowhere() {
    let text = "
apiVersion: v1
kind: Secret
metadata: {name: a}
type: Opaque
data: {key: aHVudGVyMg==}
stringData: {plain: hunter2}
";
    let object = good(text).value;
    let secret = object.get::<Secret>().unwrap();
    assert_eq!(secret.spec.get("key").unwrap(), secret.spec.get("plain").unwrap());
    assert_eq!(&secret.spec.get("key").unwrap()[..], b"hunter2");
    let shown = format!("{object:?} {secret:#?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("aHVudGVyMg") && !shown.contains("104, 117"),
        "{shown}"
    );
    for wrong in [
        "data: hunter2",
        "data: {a: hunter2}",
        "stringData: hunter2",
        "stringData: {a: [hunter2]}",
        "data: {a: {hunter2: 1}}",
    ] {
        let error = bad(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\n{wrong}"));
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(error.problems()[0].at.line, 4);
    }
}

#[test]
fn copy_that_kubectl_keeps_is_dropped_on_watch_only() {
    let text = "
apiVersion: v1
kind: Namespace
metadata:
  name: a
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', other: b}
";
    assert_eq!(read(text, Options::watch()).unwrap().value.meta().annotations.len(), 1);
    assert_eq!(read(text, Options::strict()).unwrap().value.meta().annotations.len(), 2);
}

#[test]
fn defaults_of_gateway_api_are_filled_in() {
    let text = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec:
  parentRefs: [{name: gw}]
  rules:
  - backendRefs: [{name: b, port: 80}]
  - matches: []
";
    let object = good(text).value;
    let route = object.get::<gateway_api::HttpRoute>().unwrap();
    assert_eq!(&*route.spec.parent_refs[0].kind, "Gateway");
    assert_eq!(route.spec.rules[0].backend_refs[0].backend().weight, 1);
    assert_eq!(&*route.spec.rules[0].matches[0].path.value, "/");
    assert!(route.spec.rules[1].matches.is_empty(), "given, though empty");
    assert_eq!(Object::decode(&object.to_node(), Options::strict()).unwrap().value, object);
}

#[test]
fn typed_object_is_read_without_asking_for_its_kind() {
    let node = Node::from(serde_json::json!({"metadata": {"name": "a"}, "spec": {"hosts": ["b"]}}));
    let route = VirtualService::read(&node, Options::watch()).unwrap().value;
    assert_eq!(route.spec.hosts, ["b"]);
    assert_eq!(Object::from(route).kind(), VirtualService::KIND);
}

proptest::proptest! {
    #[test]
    fn damaged_text_never_panics(cuts in proptest::collection::vec((0_usize..400, ".{0,3}"), 1..4)) {
        let mut text = ROUTE.to_owned();
        for (at, piece) in cuts {
            let at = at.min(text.len());
            let end = (at + piece.len()).min(text.len());
            text.replace_range(at..end, &piece.chars().filter(char::is_ascii).collect::<String>());
        }
        for outcome in read_all(&text, Options::strict()) {
            if let Err(error) = outcome {
                proptest::prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn read_object_reads_again_as_itself(port in 1_u16.., weight in 0_i32..100, hosts in proptest::collection::vec("[a-z]{1,8}", 0..3)) {
        let json = serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "a"},
            "spec": {"hostnames": hosts, "rules": [{"backendRefs": [{"name": "b", "port": port, "weight": weight}]}]},
        });
        let object = Object::decode(&Node::from(json), Options::strict()).unwrap().value;
        proptest::prop_assert_eq!(&Object::decode(&object.to_node(), Options::strict()).unwrap().value, &object);
    }
}
