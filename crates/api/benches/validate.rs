//! What validation costs: of objects that are read already, and with reading, as admission does it.

use std::hint::black_box;

use canopus_api::validate::validate;
use canopus_api::{Object, Options};
use canopus_base::json;
use canopus_base::tree::Limits;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

fn resource(kind: &str, index: usize, spec: Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": format!("case-{index}"), "namespace": "shop", "labels": {"team": "shop"}},
        "spec": spec,
    })
}

/// A route table of a few kilobytes.
fn virtual_service(index: usize) -> Value {
    let route = |n: usize| {
        json!({
            "name": format!("route-{n}"),
            "match": [
                {"uri": {"prefix": format!("/api/v{n}")}, "headers": {"x-user": {"exact": "test"}}},
                {"uri": {"regex": format!("^/v{n}/[a-z]+/(items|orders)$")}, "method": {"exact": "GET"}},
            ],
            "route": [
                {"destination": {"host": "reviews.shop.svc.cluster.local", "subset": "v1", "port": {"number": 9080}}, "weight": 90},
                {"destination": {"host": "reviews.shop.svc.cluster.local", "subset": "v2", "port": {"number": 9080}}, "weight": 10},
            ],
            "headers": {"request": {"set": {"x-forwarded-by": "%HOSTNAME%"}}},
            "timeout": "10s",
            "retries": {"attempts": 3, "perTryTimeout": "2s", "retryOn": "5xx,connect-failure"},
        })
    };
    let spec = json!({
        "hosts": ["reviews.shop.svc.cluster.local", "reviews.example.com"],
        "gateways": ["shop/public"],
        "http": (0..4).map(route).collect::<Vec<_>>(),
    });
    resource("VirtualService", index, spec)
}

fn destination_rule(index: usize) -> Value {
    let subset = |n: usize| json!({"name": format!("v{n}"), "labels": {"version": format!("v{n}")}});
    let spec = json!({
        "host": "reviews.shop.svc.cluster.local",
        "trafficPolicy": {
            "loadBalancer": {"simple": "LEAST_REQUEST"},
            "connectionPool": {"tcp": {"maxConnections": 100, "connectTimeout": "1s"}, "http": {"maxRetries": 3}},
            "outlierDetection": {"consecutive5xxErrors": 5, "interval": "10s", "baseEjectionTime": "30s"},
            "tls": {"mode": "ISTIO_MUTUAL"},
        },
        "subsets": (0..3).map(subset).collect::<Vec<_>>(),
    });
    resource("DestinationRule", index, spec)
}

/// One in ten is refused.
fn broken(index: usize) -> Value {
    let spec =
        json!({"hosts": ["bad host"], "http": [{"route": [{"destination": {"host": ""}, "weight": -1}]}]});
    resource("VirtualService", index, spec)
}

fn mixed() -> Vec<Vec<u8>> {
    let document = |index: usize| match index % 10 {
        9 => broken(index),
        n if n % 2 == 0 => virtual_service(index),
        _ => destination_rule(index),
    };
    (0..100).map(|index| serde_json::to_vec(&document(index)).expect("it is JSON")).collect()
}

fn read(document: &[u8]) -> Object {
    let node = json::parse(document, &Limits::default()).expect("it is JSON");
    Object::decode(&node, Options::strict()).expect("it is an object").value
}

fn benches(criterion: &mut Criterion) {
    let documents = mixed();
    let objects: Vec<_> = documents.iter().map(|document| read(document)).collect();
    assert_eq!(objects.iter().filter(|object| !validate(object).is_valid()).count(), 10);

    let mut group = criterion.benchmark_group("validate");
    group.throughput(Throughput::Elements(objects.len().try_into().expect("a hundred")));
    group.bench_function("objects", |bencher| {
        bencher.iter(|| objects.iter().map(|object| black_box(validate(object)).errors.len()).sum::<usize>());
    });
    group.bench_function("documents", |bencher| {
        bencher.iter(|| {
            let validated =
                documents.iter().map(|document| black_box(validate(&read(document))).errors.len());
            validated.sum::<usize>()
        });
    });
    let large = json!({
        "hosts": ["a"],
        "http": (0..1000).map(|n| json!({
            "match": [{"uri": {"prefix": format!("/service-{n}/")}}],
            "route": [{"destination": {"host": format!("service-{n}")}}],
        })).collect::<Vec<_>>(),
    });
    let large = read(&serde_json::to_vec(&resource("VirtualService", 0, large)).expect("it is JSON"));
    group.throughput(Throughput::Elements(1));
    group.bench_function("thousand-routes", |bencher| {
        bencher.iter(|| black_box(validate(&large)).warnings.len());
    });
    group.finish();
}

criterion_group!(validation, benches);
criterion_main!(validation);
