//! Encoding and decoding of the messages the control plane handles most.

use std::hint::black_box;

use canopus_base::tree::Node;
use canopus_proto::Message as _;
use canopus_proto::istio::networking::v1alpha3::VirtualService;
use canopus_proto::json::{self, Unknown};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// About 2 kB of JSON: what a route with a few matches and a split costs.
fn virtual_service() -> serde_json::Value {
    let route = |i: usize| {
        serde_json::json!({
            "name": format!("route-{i}"),
            "match": [{"uri": {"prefix": format!("/api/v{i}/items")}, "headers": {"x-user": {"exact": "tester"}, "x-env": {"regex": "prod-.*"}}}],
            "rewrite": {"uri": "/items"},
            "timeout": "5s",
            "retries": {"attempts": 3, "perTryTimeout": "1.500s", "retryOn": "gateway-error,connect-failure"},
            "route": [
                {"destination": {"host": "items.shop.svc.cluster.local", "subset": "v1", "port": {"number": 8080}}, "weight": 90},
                {"destination": {"host": "items.shop.svc.cluster.local", "subset": "v2", "port": {"number": 8080}}, "weight": 10},
            ],
        })
    };
    serde_json::json!({
        "hosts": ["items.example.com"],
        "gateways": ["mesh", "istio-system/public"],
        "http": (0..4).map(route).collect::<Vec<_>>(),
    })
}

fn codec(c: &mut Criterion) {
    let json = virtual_service();
    let size = json.to_string().len();
    let node = Node::from(json);
    let message: VirtualService = json::read(&node, Unknown::Reject).expect("the fixture is valid").value;
    let wire = message.encode_to_vec();

    let mut group = c.benchmark_group("virtual_service");
    group.throughput(Throughput::Bytes(size as u64));
    group.bench_function("json_read", |b| {
        b.iter(|| json::read::<VirtualService>(black_box(&node), Unknown::Report).expect("valid"));
    });
    group.bench_function("json_write", |b| b.iter(|| json::write(black_box(&message))));
    group.bench_function("encode", |b| b.iter(|| black_box(&message).encode_to_vec()));
    group.bench_function("decode", |b| {
        b.iter(|| VirtualService::decode(black_box(wire.as_slice())).expect("valid"));
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
