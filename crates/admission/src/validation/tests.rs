use super::*;
use crate::http::{NO_SNIFFING, TEXT};
use serde_json::{Value, json};

/// A review of an object that a user wants to create.
fn review(object: Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u1", "operation": "CREATE", "namespace": "shop",
            "kind": {"kind": "VirtualService"},
            "resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"},
            "object": object,
        },
    })
}

fn virtual_service(spec: Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "reviews", "namespace": "shop"}, "spec": spec,
    })
}

fn valid() -> Value {
    virtual_service(json!({"hosts": ["a"], "http": [{"route": [{"destination": {"host": "a"}}]}]}))
}

fn ask(body: &[u8]) -> Answer {
    answer(&Request { path: "/validate", content_type: Some("application/json"), body })
}

/// The response to a review, and what it amounts to.
fn response(review: &Value) -> (Value, Outcome) {
    let answer = ask(review.to_string().as_bytes());
    assert_eq!((answer.status, answer.headers), (200, &[TEXT][..]));
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&body["kind"], &body["apiVersion"]), (&review["kind"], &review["apiVersion"]));
    (body["response"].clone(), answer.outcome)
}

fn message(review: &Value) -> String {
    let (response, _) = response(review);
    assert_eq!(response["allowed"], false);
    response["status"]["message"].as_str().unwrap().to_owned()
}

fn resource() -> Resource {
    let part = str::to_owned;
    Resource { group: part("networking.istio.io"), version: part("v1"), resource: part("virtualservices") }
}

#[test]
fn valid_object_is_allowed_in_the_version_of_the_review() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = review(valid());
        review["apiVersion"] = version.into();
        let (response, outcome) = response(&review);
        assert_eq!(response, json!({"uid": "u1", "allowed": true}));
        assert_eq!(outcome, Outcome { count: Some(Count::Passed(resource())), refusal: None });
    }
}

#[test]
fn invalid_object_is_refused_with_all_that_is_wrong() {
    let (response, outcome) = response(&review(virtual_service(json!({"hosts": ["a"]}))));
    let refusal = "configuration is invalid: http, tcp or tls must be provided in virtual service";
    assert_eq!(
        response,
        json!({"uid": "u1", "allowed": false, "status": {"metadata": {}, "message": refusal}})
    );
    let count = Some(Count::Failed(resource(), Reason::Invalid));
    assert_eq!(outcome, Outcome { count, refusal: Some(refusal.into()) });
}

#[test]
fn warnings_do_not_refuse() {
    let unreachable = json!({
        "hosts": ["a"],
        "http": [{"route": [{"destination": {"host": "a"}}]}, {"name": "b", "route": [{"destination": {"host": "a"}}]}],
    });
    let (response, outcome) = response(&review(virtual_service(unreachable)));
    assert_eq!(response["allowed"], true);
    assert_eq!(response["warnings"].as_array().unwrap().len(), 1);
    assert!(matches!(outcome.count, Some(Count::Passed(_))));
}

#[test]
fn dry_run_is_counted_only_when_it_passes() {
    let dry = |object| {
        let mut review = review(object);
        review["request"]["dryRun"] = true.into();
        response(&review).1
    };
    assert!(matches!(dry(valid()).count, Some(Count::Passed(_))));
    let failed = dry(virtual_service(json!({})));
    assert!(failed.count.is_none() && failed.refusal.is_some());
}

#[test]
fn other_operations_are_allowed_and_counted_as_failures() {
    for operation in ["DELETE", "CONNECT", "", "create"] {
        let mut review = review(json!(null));
        review["request"]["operation"] = operation.into();
        let (response, outcome) = response(&review);
        assert_eq!(response, json!({"uid": "u1", "allowed": true}), "{operation}");
        assert_eq!(outcome.count, Some(Count::Failed(resource(), Reason::UnsupportedOperation)));
    }
}

#[test]
fn unknown_key_at_the_top_is_refused_and_unknown_fields_below_are_not() {
    let mut object = valid();
    object["spec"]["colour"] = "red".into();
    object["status"] = "nonsense".into();
    let (fine, _) = response(&review(object.clone()));
    assert_eq!(fine["allowed"], true);
    object["specc"] = json!({});
    assert_eq!(message(&review(object)), r#"unknown field "specc" on VirtualService resource shop/reviews"#);
}

#[test]
fn kind_is_found_in_any_version_of_its_group() {
    let mut object = valid();
    object["apiVersion"] = "networking.istio.io/v9".into();
    assert_eq!(response(&review(object.clone())).0["allowed"], true);
    let mut unrecognised = |api_version: &str, kind: &str| {
        (object["apiVersion"], object["kind"]) = (api_version.into(), kind.into());
        message(&review(object.clone()))
    };
    assert_eq!(unrecognised("v1", "Service"), "unrecognized type /v1, Kind=Service");
    assert_eq!(
        unrecognised("networking.istio.io/v1", "A"),
        "unrecognized type networking.istio.io/v1, Kind=A"
    );
    assert_eq!(unrecognised("a/b/c", "VirtualService"), "unrecognized type /, Kind=VirtualService");
    assert_eq!(
        unrecognised("networking.k8s.io/v1", "Ingress"),
        "unrecognized type networking.k8s.io/v1, Kind=Ingress"
    );
    assert_eq!(message(&review(json!({"metadata": {}}))), "unrecognized type /, Kind=");
}

#[test]
fn gateway_api_objects_are_read_and_only_their_metadata_is_checked() {
    let gateway = |spec: Value, annotations: Value| {
        review(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "a", "namespace": "b", "annotations": annotations}, "spec": spec,
        }))
    };
    assert_eq!(response(&gateway(json!({}), json!({}))).0["allowed"], true);
    let rejected = gateway(json!({}), json!({"internal.istio.io/webhook-always-reject": "true"}));
    assert!(message(&rejected).ends_with("annotation found, rejecting"));
    let wrong = gateway(json!({"listeners": "none"}), json!({}));
    assert!(message(&wrong).starts_with("error decoding configuration: spec.listeners: "));
}

#[test]
fn fields_of_wrong_types_are_refused_in_istios_words() {
    let said = |spec: Value| message(&review(virtual_service(spec)));
    assert_eq!(
        said(json!({"hosts": "a"})),
        "error decoding configuration: json: cannot unmarshal string into Go value of type []json.RawMessage"
    );
    let enumerated =
        json!({"hosts": ["a"], "http": [{"route": [], "corsPolicy": {"unmatchedPreflights": "NEVER"}}]});
    assert!(
        said(enumerated).starts_with(r#"error decoding configuration: unknown value "\"NEVER\"" for enum "#)
    );
    assert!(said(json!("text")).starts_with("error decoding configuration: json: cannot unmarshal string"));
}

fn object(api: &str, kind: &str, spec: Value) -> Value {
    let metadata = json!({"name": "a", "namespace": "shop"});
    review(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}))
}

#[test]
fn ports_of_peer_authentications_are_not_empty_when_they_are_given() {
    let policy = |ports: Value| {
        let selector = json!({"matchLabels": {"app": "cart"}});
        object(
            "security.istio.io/v1",
            "PeerAuthentication",
            json!({"selector": selector, "portLevelMtls": ports}),
        )
    };
    assert_eq!(
        message(&policy(json!({}))),
        "configuration is invalid: port level mTLS, if defined, must have at least one element"
    );
    for accepted in [json!({"80": {"mode": "DISABLE"}}), json!(null)] {
        assert_eq!(response(&policy(accepted)).0["allowed"], true);
    }
}

#[test]
fn ports_of_extensions_have_numbers() {
    for port in [json!(null), json!({}), json!({"number": 65536})] {
        let spec = json!({"lua": {"inlineCode": "-- nothing"}, "match": [{"ports": [{"number": 80}, port]}]});
        let said = message(&object("extensions.istio.io/v1alpha1", "TrafficExtension", spec));
        assert!(said.contains("spec.Match[0].Ports[1] is out of range"), "{port}: {said}");
    }
}

#[test]
fn bad_telemetry_is_refused_and_odd_telemetry_is_warned_of() {
    let telemetry = |spec: Value| object("telemetry.istio.io/v1", "Telemetry", spec);
    let bad = telemetry(json!({"tracing": [{"randomSamplingPercentage": 101}]}));
    let (refused, outcome) = response(&bad);
    assert_eq!(refused["allowed"], false);
    assert_eq!(outcome.count, Some(Count::Failed(resource(), Reason::Invalid)));
    assert!(message(&bad).starts_with("configuration is invalid: "), "{refused}");
    let undecodable = telemetry(json!({"tracing": [{"customTags": {"a": {"literal": "text"}}}]}));
    assert!(message(&undecodable).starts_with("error decoding configuration: "));
    let (odd, _) = response(&telemetry(json!({"tracing": [{"providers": [{"name": "a"}, {"name": "b"}]}]})));
    assert_eq!((&odd["allowed"], odd["warnings"].as_array().map(Vec::len)), (&json!(true), Some(1)), "{odd}");
}

#[test]
fn dynamic_names_inside_the_mesh_have_no_waypoint() {
    let entry = |location: &str, waypoint: &str| {
        let metadata =
            json!({"name": "a", "namespace": "shop", "labels": {"istio.io/use-waypoint": waypoint}});
        let ports = json!([{"number": 443, "name": "tls", "protocol": "TLS"}]);
        let spec = json!({
            "hosts": ["*.example.com"], "ports": ports, "resolution": "DYNAMIC_DNS", "location": location,
        });
        let api = "networking.istio.io/v1";
        review(json!({"apiVersion": api, "kind": "ServiceEntry", "metadata": metadata, "spec": spec}))
    };
    let said = message(&entry("MESH_INTERNAL", "waypoint"));
    assert!(said.contains("is not supported when using waypoints"), "{said}");
    for (location, waypoint) in [("MESH_INTERNAL", "none"), ("MESH_EXTERNAL", "waypoint")] {
        assert_eq!(response(&entry(location, waypoint)).0["allowed"], true, "{location} {waypoint}");
    }
}

#[test]
fn object_that_is_none_is_refused() {
    let undecodable = "cannot decode configuration: ";
    assert_eq!(message(&review(json!(null))), format!("{undecodable}unexpected end of JSON input"));
    assert!(message(&review(json!("text"))).starts_with(undecodable));
    assert!(message(&review(json!({"kind": 1}))).starts_with(undecodable));
}

#[test]
fn body_that_is_no_review_gets_a_review_of_its_own() {
    let refusal = |body: &[u8]| {
        let answer = ask(body);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, body["response"]["allowed"].clone()), (200, Value::Bool(false)));
        assert!(
            body.get("kind").is_none() && body["response"]["uid"] == "" && answer.outcome.count.is_none()
        );
        body["response"]["status"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(refusal(b"{}"), "could not decode body: Object 'Kind' is missing in '{}'");
    assert_eq!(
        refusal(br#"{"kind":"A"}"#),
        r#"could not decode body: Object 'apiVersion' is missing in '{"kind":"A"}'"#
    );
    assert_eq!(
        refusal(br#"{"kind":"Pod","apiVersion":"v1"}"#),
        r#"could not decode body: no kind "Pod" is registered for version "v1""#
    );
    for garbage in [&b"hello"[..], b"{", b"[1]", b"\xff", br#"{"kind":1}"#] {
        assert!(refusal(garbage).starts_with("could not decode body: couldn't get version/kind; "));
    }
}

#[test]
fn review_without_a_request_is_a_bad_request() {
    let answer = ask(br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.outcome.count, Some(Count::HttpError(400)));
}

#[test]
fn last_of_two_equal_keys_counts() {
    let body = review(valid()).to_string();
    let twice = format!(r#"{{"kind":"Pod",{}"#, &body[1..]);
    let answer = ask(twice.as_bytes());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["response"]["allowed"], true);
}

#[test]
fn request_that_is_no_review_at_all_is_a_plain_error() {
    let check = |request: &Request<'_>, status: u16, text: &str, counted: bool| {
        let answer = answer(request);
        assert_eq!((answer.status, answer.body.as_slice()), (status, text.as_bytes()));
        assert_eq!(answer.headers, [TEXT, NO_SNIFFING]);
        assert_eq!(answer.outcome.count, counted.then_some(Count::HttpError(status)));
    };
    let json = Some("application/json");
    let request = Request { path: "/validate/x?y=z", content_type: json, body: b"" };
    check(&request, 400, "no body found\n", true);
    let wanted = "invalid Content-Type, want `application/json`\n";
    for content_type in [None, Some("text/plain"), Some("application/json; charset=utf-8")] {
        check(&Request { content_type, body: b"{}", ..request }, 415, wanted, true);
    }
    let huge = vec![b' '; MAX_BODY + 1];
    let too_large = "Request entity too large: limit is 6291456\n";
    check(&Request { body: &huge, ..request }, 400, too_large, false);
    for path in ["/", "/validatex", "/inject", ""] {
        check(&Request { path, body: b"{}", ..request }, 404, "404 page not found\n", false);
    }
}
