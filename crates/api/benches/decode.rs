//! What an object costs from the bytes of a watch to its type.

use std::hint::black_box;

use canopus_api::{Object, Options};
use canopus_base::json;
use canopus_base::tree::Limits;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};

/// A route table of about two kilobytes, as the API server sends it.
fn virtual_service() -> Value {
    let route = |index: usize| {
        json!({
            "name": format!("route-{index}"),
            "match": [{"uri": {"prefix": format!("/api/v{index}")}, "headers": {"x-user": {"exact": "test"}}}],
            "route": [
                {"destination": {"host": "reviews.shop.svc.cluster.local", "subset": "v1", "port": {"number": 9080}}, "weight": 90},
                {"destination": {"host": "reviews.shop.svc.cluster.local", "subset": "v2", "port": {"number": 9080}}, "weight": 10},
            ],
            "timeout": "10s",
            "retries": {"attempts": 3, "perTryTimeout": "2s", "retryOn": "5xx,connect-failure"},
        })
    };
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {
            "name": "reviews", "namespace": "shop", "uid": "6f1c7f0e-6d0b-4f5c-9d3c-0c5bb3f4b0aa",
            "resourceVersion": "123456", "generation": 3, "creationTimestamp": "2026-01-31T12:00:00Z",
            "labels": {"app": "reviews", "team": "shop"},
        },
        "spec": {
            "hosts": ["reviews.shop.svc.cluster.local"],
            "gateways": ["mesh", "shop/public"],
            "http": (0..4).map(route).collect::<Vec<_>>(),
        },
    })
}

/// A slice of a hundred endpoints.
fn endpoint_slice() -> Value {
    let endpoint = |index: usize| {
        json!({
            "addresses": [format!("10.0.{}.{}", index / 250, index % 250)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", index % 10),
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": format!("reviews-{index}"), "uid": "0"},
            "zone": "zone-a",
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "reviews-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "reviews"}},
        "addressType": "IPv4",
        "endpoints": (0..100).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 9080, "protocol": "TCP"}],
    })
}

fn decode(criterion: &mut Criterion) {
    let limits = Limits::default();
    for (name, object) in [("virtual_service", virtual_service()), ("endpoint_slice_100", endpoint_slice())] {
        let bytes = object.to_string().into_bytes();
        criterion.bench_function(&format!("decode/{name}/{}B", bytes.len()), |bencher| {
            bencher.iter(|| {
                let node = json::parse(black_box(&bytes), &limits).expect("the sample is JSON");
                Object::decode(&node, Options::watch()).expect("the sample is an object")
            });
        });
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
