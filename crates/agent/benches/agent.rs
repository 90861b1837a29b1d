//! What the agent does most: name look-ups, and passing responses of the control plane on.
//!
//! Sizes are those of a mesh with 1,000 services. Throughput is per core: the agent has one thread.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use canopus_agent::address::HostPort;
use canopus_agent::dns::index::{NameIndex, NameScope};
use canopus_agent::dns::{DnsSettings, NameServer, Reaction, Resolvers, Transport};
use canopus_agent::upstream::Upstream;
use canopus_agent::xds_proxy::{Patience, XdsProxy, XdsProxyParts, XdsProxySettings};
use canopus_proto::Message as _;
use canopus_proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_proto::istio::networking::nds::v1::name_table::NameInfo;
use canopus_runtime::metrics::Registry;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, UnixListener, UnixStream};

const SERVICES: usize = 1000;
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

fn table() -> NameTable {
    let entry = |number: usize| {
        let info = NameInfo {
            ips: vec![format!("10.96.{}.{}", number / 250, number % 250)],
            registry: "Kubernetes".to_owned(),
            shortname: format!("service-{number}"),
            namespace: format!("namespace-{}", number % 20),
            ..Default::default()
        };
        (format!("service-{number}.namespace-{}.svc.cluster.local", number % 20), info)
    };
    NameTable { table: (0..SERVICES).map(entry).collect() }
}

fn query(name: &str) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), RecordType::A));
    message.to_vec().expect("a message")
}

fn names(criterion: &mut Criterion) {
    let settings = DnsSettings {
        address: String::new(),
        namespace: "namespace-1".to_owned(),
        domain: "namespace-1.svc.cluster.local".to_owned(),
        parallel: false,
        timeout: Duration::from_secs(5),
        is_root: false,
    };
    let search = "namespace-1.svc.cluster.local".to_owned();
    let resolvers = Resolvers { servers: Vec::new(), search: vec![search.clone()] };
    let server = NameServer::new(&settings, resolvers, false, &Registry::new());
    server.set_table(table().encode_to_vec().into()).expect("a table");
    let mut group = criterion.benchmark_group("dns");
    group.throughput(Throughput::Elements(1));
    for (case, name) in [
        ("full name", "service-501.namespace-1.svc.cluster.local."),
        ("search domain", "service-502.namespace-2.namespace-1.svc.cluster.local."),
        ("unknown name", "www.example.com."),
    ] {
        let packet = query(name);
        group.bench_function(case, |bencher| {
            bencher.iter(|| match server.react(black_box(&packet), Transport::Udp) {
                Reaction::Answer(answer) => answer.len(),
                Reaction::Forward(query) => query.name().len(),
                Reaction::Ignore => 0,
            });
        });
    }
    group.throughput(Throughput::Elements(SERVICES as u64));
    let scope = NameScope::new("namespace-1", "svc.cluster.local", Some(&search));
    group.bench_function("index of 1000 services", |bencher| {
        bencher.iter(|| NameIndex::new(black_box(table()), &scope).map(|index| index.len()));
    });
    group.finish();
}

/// A response of about `bytes` bytes, with its gRPC prefix.
fn response(bytes: usize) -> Bytes {
    let resource = |number: usize| Resource {
        name: format!("outbound|80||service-{number}.namespace-1.svc.cluster.local"),
        version: "0123456789abcdef".to_owned(),
        resource: Some(canopus_proto::Any {
            type_url: canopus_xds::types::CLUSTER.to_owned(),
            value: vec![7; 2000].into(),
        }),
        ..Default::default()
    };
    let message = DeltaDiscoveryResponse {
        type_url: canopus_xds::types::CLUSTER.to_owned(),
        resources: (0..bytes / 2100).map(resource).collect(),
        ..Default::default()
    };
    let body = message.encode_to_vec();
    let mut framed = BytesMut::with_capacity(body.len() + 5);
    framed.extend_from_slice(&[0]);
    framed.extend_from_slice(&u32::try_from(body.len()).expect("a length").to_be_bytes());
    framed.extend_from_slice(&body);
    framed.freeze()
}

/// A control plane that sends `count` responses on every stream, and then ends it.
async fn plane(message: Bytes, count: usize) -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let message = message.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let frame = || Ok::<_, Infallible>(Frame::data(message.clone()));
                let frames: Vec<_> = std::iter::repeat_with(frame).take(count).collect();
                async move { Ok::<_, Infallible>(Response::new(StreamBody::new(tokio_stream::iter(frames)))) }
            });
            tokio::spawn(
                server::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    HostPort { host: "127.0.0.1".to_owned(), port }
}

/// The time that `count` responses take from the control plane through the agent to a client that drops them.
async fn transfer(socket: &std::path::Path) -> (Duration, usize) {
    let stream = UnixStream::connect(socket).await.expect("the agent's socket");
    let (mut sender, connection) =
        client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let request = Request::post(format!("http://agent{DELTA}")).body(body).expect("a request");
    let started = Instant::now();
    let mut answer = sender.send_request(request).await.expect("an answer").into_body();
    let mut received = 0;
    while let Some(Ok(frame)) = answer.frame().await {
        received += frame.data_ref().map_or(0, Bytes::len);
    }
    (started.elapsed(), received)
}

/// Prints how much passes in a second of the agent's processor time, whatever else the machine does.
#[allow(clippy::print_stdout, reason = "a bench prints its figures")]
fn per_core(others: &tokio::runtime::Runtime, socket: &std::path::Path, size: usize, thread: i32) {
    let busy = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or_default()
    };
    let (before, rounds) = (busy(), 10);
    for _ in 0..rounds {
        assert_eq!(others.block_on(transfer(socket)).1, size, "all of it came through");
    }
    let rate = (size * rounds) as f64 / (busy() - before).max(1) as f64;
    println!("xds: {rate:.2} GB per second of the agent's processor time");
}

fn streams(criterion: &mut Criterion) {
    // The control plane and the client have threads of their own; the agent has one, as it always has.
    let others = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let message = response(1 << 20);
    let count = 64;
    let size = message.len() * count;
    let upstream = Upstream { address: others.block_on(plane(message, count)), tls: None, token: None };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("XDS");
    let listener_path = socket.clone();
    let (thread, agent) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = thread.send(nix::unistd::gettid());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let settings = XdsProxySettings {
                socket: listener_path.clone(),
                upstream,
                cluster: String::new(),
                headers: Vec::new(),
                patience: Patience::default(),
            };
            let proxy = XdsProxy::new(settings, XdsProxyParts::default(), &Registry::new());
            let listener = UnixListener::bind(&listener_path).expect("a socket");
            Arc::clone(&proxy).serve(listener).await;
        });
    });
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    per_core(&others, &socket, size, agent.recv().expect("the agent's thread").as_raw());
    let mut group = criterion.benchmark_group("xds");
    group.throughput(Throughput::Bytes(size as u64));
    group.sample_size(10);
    group.bench_function("64 responses of 1 MiB", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                let (took, received) = others.block_on(transfer(&socket));
                assert_eq!(received, size, "all of it came through");
                total += took;
            }
            total
        });
    });
    group.finish();
}

criterion_group!(benches, names, streams);
criterion_main!(benches);
