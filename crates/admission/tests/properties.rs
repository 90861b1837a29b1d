//! The webhook answers whatever it is sent.

use canopus_admission::validation::{Answer, MAX_BODY, Request, answer};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// Specs that use much of what their kinds have.
fn specs() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        (
            "networking.istio.io/v1",
            "VirtualService",
            json!({
                "hosts": ["a.example.com"], "gateways": ["mesh"],
                "http": [{
                    "match": [{"uri": {"prefix": "/a"}, "headers": {"x": {"regex": "a.*"}}}],
                    "route": [{"destination": {"host": "a", "port": {"number": 80}}, "weight": 1}],
                    "timeout": "1m", "retries": {"attempts": 3, "retryOn": "5xx"},
                }],
            }),
        ),
        (
            "networking.istio.io/v1",
            "DestinationRule",
            json!({
                "host": "a", "subsets": [{"name": "v1", "labels": {"a": "b"}}],
                "trafficPolicy": {"outlierDetection": {"interval": "5m"}, "tls": {"mode": "SIMPLE"}},
            }),
        ),
        (
            "security.istio.io/v1",
            "AuthorizationPolicy",
            json!({
                "action": "DENY",
                "rules": [{
                    "from": [{"source": {"ipBlocks": ["10.0.0.0/8", "::1"], "serviceAccounts": ["a/b"]}}],
                    "to": [{"operation": {"ports": ["80"], "paths": ["/{*}/a"]}}],
                    "when": [{"key": "source.ip", "values": ["1.2.3.4"]}],
                }],
            }),
        ),
        (
            "security.istio.io/v1",
            "RequestAuthentication",
            json!({"jwtRules": [{
                "issuer": "a", "jwksUri": "https://a.example:8443/keys",
                "jwks": r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#,
            }]}),
        ),
        (
            "networking.istio.io/v1alpha3",
            "EnvoyFilter",
            json!({"configPatches": [{
                "applyTo": "HTTP_FILTER", "match": {"proxy": {"proxyVersion": "^1.*"}},
                "patch": {"operation": "ADD", "value": {
                    "name": "a",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                        "default_source_code": {"inline_string": "x"},
                    },
                }},
            }]}),
        ),
        (
            "telemetry.istio.io/v1",
            "Telemetry",
            json!({"accessLogging": [{"filter": {"expression": "response.code >= 400"}}]}),
        ),
        (
            "extensions.istio.io/v1alpha1",
            "WasmPlugin",
            json!({"url": "oci://a.example/b:c", "match": [{"ports": [{"number": 1}]}]}),
        ),
        (
            "gateway.networking.k8s.io/v1",
            "Gateway",
            json!({"gatewayClassName": "istio", "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}]}),
        ),
    ]
}

fn review((api_version, kind, spec): &(&str, &str, Value)) -> String {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "ns", "dryRun": false,
            "kind": {"kind": kind}, "resource": {"group": "g", "version": "v", "resource": "r"},
            "object": {
                "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "ns"}, "spec": spec,
            },
        },
    });
    review.to_string()
}

/// Asks, and holds the answer to what every answer is.
fn ask(body: &[u8]) -> Answer {
    let answer = answer(&Request { path: "/validate", content_type: Some("application/json"), body });
    let text = std::str::from_utf8(&answer.body).expect("answers are text");
    if answer.status == 200 {
        let review: Value = serde_json::from_str(text).expect("reviews are JSON");
        let response = &review["response"];
        let refused = response["allowed"] == false;
        assert!(response["uid"].is_string() && response["allowed"].is_boolean());
        assert_eq!(refused, response["status"]["message"].is_string());
        assert_eq!(refused, answer.outcome.refusal.is_some());
    } else {
        assert!(answer.status >= 400 && text.ends_with('\n'));
    }
    answer
}

/// Replaces the `place`-th value in a tree, counted from its top.
fn replace(tree: &mut Value, place: &mut usize, new: &Value) {
    if *place == 0 {
        *tree = new.clone();
    }
    *place = place.wrapping_sub(1);
    match tree {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place, new)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, place, new)),
        _ => {}
    }
}

fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, null])),
        Just(json!({"": ""})),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        select(vec!["", "*", "1h", "-1s", "%", "http://[::1", "kubernetes://", "((((", "é", "a/b/c"])
            .prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_answered(body in vec(any::<u8>(), 0..256)) {
        ask(&body);
    }

    #[test]
    fn review_with_changed_bytes_is_answered(
        spec in select(specs()),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut body = review(&spec).into_bytes();
        for (place, byte) in changes {
            let place = place.index(body.len());
            body[place] = byte;
        }
        ask(&body);
    }

    #[test]
    fn review_with_other_values_is_answered(
        spec in select(specs()),
        changes in vec((any::<Index>(), values()), 1..4),
    ) {
        let mut review: Value = serde_json::from_str(&review(&spec)).expect("it was just written");
        for (place, value) in &changes {
            let mut place = place.index(count(&review));
            replace(&mut review, &mut place, value);
        }
        ask(review.to_string().as_bytes());
    }
}

#[test]
fn every_spec_here_is_admitted_as_it_is() {
    for spec in specs() {
        let answer = ask(review(&spec).as_bytes());
        assert_eq!(answer.outcome.refusal, None, "{}", spec.1);
    }
}

#[test]
fn deep_and_large_bodies_are_answered() {
    let half = MAX_BODY / 2;
    for body in
        ["[".repeat(half), "{\"a\":".repeat(half / 5), "- ".repeat(half / 64), "a: &a [*a]".to_owned()]
    {
        ask(body.as_bytes());
    }
    let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let object = review(&specs()[4]).replace("\"x\"", &nested);
    ask(object.as_bytes());
}
