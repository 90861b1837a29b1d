//! What authorization costs: the filters of a workload whose policies name many principals, and one changed policy of many.
#![expect(clippy::print_stdout, reason = "its table is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot build its world has failed")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_envoy::authorization::{AuthorizationFilters, Guard, Layer, Peer, Stage};
use canopus_envoy::listener::Listeners;
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::audience::SelectorLabels;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

const PRINCIPALS: usize = 1000;
const POLICIES: usize = 1000;
const NAMESPACES: usize = 100;
/// Workloads of a namespace; each policy selects one.
const WORKLOADS: usize = 5;
const REPEATS: usize = 50;

fn set(batch: &mut Batch, documents: &str) {
    for outcome in decode_documents(documents, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The time to write the filters of one policy that names many principals.
fn many_principals() -> Duration {
    let principals: Vec<_> =
        (0..PRINCIPALS).map(|at| format!("cluster.local/ns/team-{}/sa/service-{at}", at % 50)).collect();
    let policy = format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a, namespace: ns}}, \
         spec: {{rules: [{{from: [{{source: {{principals: [{}]}}}}]}}]}}}}",
        principals.join(", ")
    );
    let protected = PolicyTarget {
        namespace: "ns".into(),
        gateway: None,
        labels: SelectorLabels::unreduced(&[("app", "a")].into_iter().collect()),
        is_waypoint: false,
        service: None,
    };
    let guard = Guard { protected, stage: Stage::Own, peer: Peer::Certificate, layer: Layer::Http };
    let times = (0..REPEATS).map(|_| {
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        set(&mut batch, &policy);
        let engine = Engine::new();
        engine.apply(batch);
        let world = engine.snapshot();
        let started = Instant::now();
        world.get::<AuthorizationFilters>(&guard).unwrap();
        started.elapsed()
    });
    median(times.collect())
}

fn policy(at: usize, path: usize) -> String {
    format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: p-{at}, namespace: team-{}}}, \
         spec: {{selector: {{matchLabels: {{app: a-{}}}}}, rules: [{{to: [{{operation: {{paths: [/{path}]}}}}]}}]}}}}",
        at % NAMESPACES,
        at / NAMESPACES % WORKLOADS
    )
}

fn proxy(namespace: usize, workload: usize) -> Proxy {
    let labels =
        Struct::from(BTreeMap::from([("app".to_owned(), Value::from(format!("a-{workload}").as_str()))]));
    let metadata = BTreeMap::from([
        ("NAMESPACE".to_owned(), Value::from(format!("team-{namespace}").as_str())),
        ("CLUSTER_ID".to_owned(), Value::from("Kubernetes")),
        ("LABELS".to_owned(), Value::from(labels)),
    ]);
    let node = Node {
        id: format!(
            "sidecar~10.{namespace}.{workload}.1~a-{workload}.team-{namespace}~team-{namespace}.svc.cluster.local"
        ),
        metadata: Some(Struct::from(metadata)),
        ..Default::default()
    };
    Proxy::new(&node, None).unwrap()
}

/// One changed policy of many: the time, the listeners of how many proxies changed, and what ran.
fn one_of_many() -> (Duration, usize, Vec<String>) {
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    for namespace in 0..NAMESPACES {
        for workload in 0..WORKLOADS {
            set(
                &mut batch,
                &format!(
                    "{{apiVersion: v1, kind: Service, metadata: {{name: a-{workload}, namespace: team-{namespace}}}, \
                     spec: {{clusterIP: 10.96.{namespace}.{workload}, selector: {{app: a-{workload}}}, \
                     ports: [{{name: http, port: 80}}]}}}}"
                ),
            );
        }
    }
    (0..POLICIES).for_each(|at| set(&mut batch, &policy(at, 0)));
    engine.apply(batch);
    let proxies = (0..NAMESPACES).flat_map(|n| (0..WORKLOADS).map(move |w| proxy(n, w)));
    let _roots = engine.watch_all::<Listeners>(proxies);
    let before = engine.evaluations();
    let mut times = Vec::new();
    let mut changed = 0;
    for repeat in 1..=REPEATS {
        let mut batch = Batch::new();
        set(&mut batch, &policy(repeat, repeat));
        let started = Instant::now();
        changed = changed.max(engine.apply(batch).changed.len());
        times.push(started.elapsed());
    }
    let after = engine.evaluations();
    let ran = after.iter().filter_map(|(name, count)| {
        let more = (count - before.get(name).copied().unwrap_or_default()) as f64 / REPEATS as f64;
        (more > 0.0).then(|| format!("{name} {more:.0}"))
    });
    (median(times), changed, ran.collect())
}

fn main() {
    println!("| what | figure | budget |\n|---|---|---|");
    println!(
        "| authorization filters of {PRINCIPALS} principals | {:.2} ms | ≤ 2 ms |",
        many_principals().as_secs_f64() * 1e3
    );
    let (took, changed, ran) = one_of_many();
    println!(
        "| one changed policy of {POLICIES} in {NAMESPACES} namespaces, {} sidecars connected | {:.2} ms | |",
        NAMESPACES * WORKLOADS,
        took.as_secs_f64() * 1e3
    );
    println!("| sidecars whose listeners it changes | {changed} | those it selects: 1 |");
    println!("\nQueries run for a change: {}.", ran.join(", "));
}
