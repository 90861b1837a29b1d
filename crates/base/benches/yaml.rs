//! Throughput of the document readers and the writer, in bytes per second of text.

use std::fmt::Write;
use std::hint::black_box;

use canopus_base::tree::Node;
use canopus_base::{json, yaml};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A stream of objects such as a mesh has: services with ports and selectors, and routes to them.
fn objects(count: usize) -> String {
    let mut stream = String::new();
    for index in 0..count {
        write!(
            stream,
            r#"---
# Service {index}
apiVersion: v1
kind: Service
metadata:
  name: reviews-{index}
  namespace: bookinfo
  labels: {{app: reviews, version: v{index}}}
  annotations:
    networking.istio.io/exportTo: "*"
spec:
  clusterIP: 10.96.0.10
  ports:
  - name: http
    port: 9080
    protocol: TCP
    targetPort: 9080
  - name: grpc-admin
    port: 15010
    protocol: TCP
  selector:
    app: reviews
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: reviews-{index}
  namespace: bookinfo
spec:
  hosts:
  - reviews-{index}.bookinfo.svc.cluster.local
  - "*.reviews-{index}.example.com"
  http:
  - name: canary
    match:
    - headers:
        end-user:
          exact: jason
      uri:
        prefix: /api/v1
    retries: {{attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error,connect-failure'}}
    timeout: 10s
    route:
    - destination: {{host: reviews-{index}, subset: v2}}
      weight: 25
    - destination:
        host: reviews-{index}
        subset: v1
      weight: 75
"#
        )
        .expect("writing to a string does not fail");
    }
    stream
}

fn read(c: &mut Criterion) {
    let limits = yaml::Limits::default();
    let stream = objects(500);
    let documents: Vec<Node> = yaml::parse_all(&stream, &limits)
        .into_iter()
        .map(|document| document.expect("the objects are well formed").node)
        .collect();
    let list = Node::from(serde_json::Value::Array(documents.iter().map(Node::to_json).collect()));
    let json_text = serde_json::to_vec(&list).expect("a tree is always JSON");

    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    group.bench_function("yaml", |b| b.iter(|| yaml::parse_all(black_box(&stream), &limits)));
    group.throughput(Throughput::Bytes(json_text.len() as u64));
    group.bench_function("json", |b| b.iter(|| json::parse(black_box(&json_text), &limits)));
    group.finish();

    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Bytes(yaml::node_to_string(&list).len() as u64));
    group.bench_function("yaml", |b| b.iter(|| yaml::node_to_string(black_box(&list))));
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
