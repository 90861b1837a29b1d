//! How many admission reviews a core answers in a second: routes, destination rules, policies and Envoy filters mixed.

use std::hint::black_box;

use canopus_admission::validation::{Request, answer};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

/// A review of a new object, as the API server sends it.
fn review(api_version: &str, kind: &str, plural: &str, spec: &Value) -> Vec<u8> {
    let (group, version) = api_version.split_once('/').expect("the kinds here have a group");
    let named = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": plural});
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "7f0b2b74-0f6c-4b3c-9a5d-0000000000aa",
            "kind": named, "resource": resource, "requestKind": named, "requestResource": resource,
            "name": "reviews", "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "object": {
                "apiVersion": api_version, "kind": kind,
                "metadata": {"name": "reviews", "namespace": "shop", "labels": {"app": "reviews"}},
                "spec": spec,
            },
            "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    review.to_string().into_bytes()
}

fn virtual_service() -> Vec<u8> {
    let to = |subset: &str, weight: u32| json!({"destination": {"host": "reviews.shop.svc.cluster.local", "subset": subset}, "weight": weight});
    let spec = json!({
        "hosts": ["reviews.shop.svc.cluster.local", "reviews.example.com"],
        "gateways": ["mesh", "shop/public"],
        "http": [
            {
                "name": "beta", "match": [{"uri": {"prefix": "/beta"}, "headers": {"x-user": {"regex": "test-.*"}}}],
                "route": [to("v2", 100)], "timeout": "10s",
                "retries": {"attempts": 3, "perTryTimeout": "2s", "retryOn": "5xx,connect-failure"},
            },
            {"name": "main", "route": [to("v1", 90), to("v2", 10)], "headers": {"request": {"set": {"x-a": "b"}}}},
        ],
    });
    review("networking.istio.io/v1", "VirtualService", "virtualservices", &spec)
}

fn destination_rule() -> Vec<u8> {
    let spec = json!({
        "host": "reviews.shop.svc.cluster.local",
        "trafficPolicy": {
            "loadBalancer": {"simple": "LEAST_REQUEST"},
            "connectionPool": {"tcp": {"maxConnections": 100, "connectTimeout": "30ms"}, "http": {"http2MaxRequests": 1000}},
            "outlierDetection": {"consecutive5xxErrors": 7, "interval": "5m", "baseEjectionTime": "15m"},
            "tls": {"mode": "ISTIO_MUTUAL"},
        },
        "subsets": [{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}],
    });
    review("networking.istio.io/v1", "DestinationRule", "destinationrules", &spec)
}

fn authorization_policy() -> Vec<u8> {
    let spec = json!({
        "selector": {"matchLabels": {"app": "reviews"}},
        "action": "ALLOW",
        "rules": [{
            "from": [{"source": {"principals": ["cluster.local/ns/shop/sa/productpage"], "ipBlocks": ["10.0.0.0/8"]}}],
            "to": [{"operation": {"methods": ["GET", "HEAD"], "paths": ["/reviews/{*}"], "ports": ["9080"]}}],
            "when": [{"key": "request.auth.claims[iss]", "values": ["https://accounts.example.com"]}],
        }],
    });
    review("security.istio.io/v1", "AuthorizationPolicy", "authorizationpolicies", &spec)
}

fn envoy_filter() -> Vec<u8> {
    let spec = json!({
        "workloadSelector": {"labels": {"app": "reviews"}},
        "configPatches": [{
            "applyTo": "HTTP_FILTER",
            "match": {
                "context": "SIDECAR_INBOUND",
                "listener": {"portNumber": 9080, "filterChain": {"filter": {
                    "name": "envoy.filters.network.http_connection_manager",
                    "subFilter": {"name": "envoy.filters.http.router"},
                }}},
            },
            "patch": {"operation": "INSERT_BEFORE", "value": {
                "name": "envoy.filters.http.lua",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                    "default_source_code": {"inline_string": "function envoy_on_request(handle) end"},
                },
            }},
        }],
    });
    review("networking.istio.io/v1alpha3", "EnvoyFilter", "envoyfilters", &spec)
}

fn admission(c: &mut Criterion) {
    let reviews = [
        ("virtual service", virtual_service()),
        ("destination rule", destination_rule()),
        ("authorization policy", authorization_policy()),
        ("envoy filter", envoy_filter()),
    ];
    let ask = |body: &[u8]| {
        answer(&Request { path: "/validate?timeout=10s", content_type: Some("application/json"), body })
    };
    let mut group = c.benchmark_group("admission");
    group.throughput(Throughput::Elements(1));
    for (name, body) in &reviews {
        let allowed = String::from_utf8_lossy(&ask(body).body).contains(r#""allowed":true"#);
        assert!(allowed, "the {name} is valid");
        group.bench_function(*name, |b| b.iter(|| ask(black_box(body))));
    }
    group.throughput(Throughput::Elements(reviews.len() as u64));
    group.bench_function("mixed", |b| {
        b.iter(|| reviews.iter().map(|(_, body)| ask(black_box(body)).body.len()).sum::<usize>());
    });
    group.finish();
}

criterion_group!(benches, admission);
criterion_main!(benches);
