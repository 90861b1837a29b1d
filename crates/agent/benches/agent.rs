//! What the agent does most: name look-ups, in the sizes of a mesh with 1,000 services.

use std::hint::black_box;
use std::time::Duration;

use canopus_agent::dns::index::{NameIndex, NameScope};
use canopus_agent::dns::{DnsSettings, NameServer, Reaction, Resolvers, Transport};
use canopus_proto::Message as _;
use canopus_proto::istio::networking::nds::v1::NameTable;
use canopus_proto::istio::networking::nds::v1::name_table::NameInfo;
use canopus_runtime::metrics::Registry;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};

const SERVICES: usize = 1000;

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

criterion_group!(benches, names);
criterion_main!(benches);
