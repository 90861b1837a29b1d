//! How long one changed endpoint takes to be acknowledged by a thousand proxies, and what an idle proxy costs.
//!
//! The server is this process, the proxies are another one: `cargo bench -p canopus-xds --bench fanout [-- PROXIES]`.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use canopus_base::FastMap;
use canopus_base::hash::ContentHash;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_xds::client::AdsClient;
use canopus_xds::server::{Options, serve};
use canopus_xds::session::Protocol;
use canopus_xds::types::{CLUSTER, ENDPOINT, LISTENER, Types};
use canopus_xds::{
    ControlPlane, Interest, Mailboxes, Names, Peer, Refusal, Resource, ResourceSet, SessionEvent,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Endpoint;

const SERVICES: usize = 1000;
const ROUNDS: usize = 50;

struct World {
    resources: Mutex<BTreeMap<&'static str, BTreeMap<String, Resource>>>,
    memo: Mutex<FastMap<(String, ContentHash), (u64, ResourceSet)>>,
    revision: AtomicU64,
    mailboxes: Mailboxes,
    acked: AtomicUsize,
    settled: AtomicUsize,
}

impl World {
    fn new() -> Self {
        let mut resources: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for n in 0..SERVICES {
            let name = service(n);
            for (type_url, size) in [(CLUSTER, 1200), (ENDPOINT, 300), (LISTENER, 3000)] {
                let resource = Resource::new(name.as_str(), vec![b'x'; size]);
                resources.entry(type_url).or_default().insert(name.clone(), resource);
            }
        }
        Self {
            resources: Mutex::new(resources),
            memo: Mutex::default(),
            revision: AtomicU64::new(0),
            mailboxes: Mailboxes::default(),
            acked: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
        }
    }

    fn change_endpoint(&self, round: usize) {
        let name = service(round % SERVICES);
        let resource = Resource::new(name.as_str(), format!("{round:300}"));
        self.resources.lock().entry(ENDPOINT).or_default().insert(name, resource);
        let revision = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
        self.mailboxes.revise(revision, Types::only(ENDPOINT));
    }
}

impl ControlPlane for World {
    type Client = ();

    async fn connect(&self, peer: &Peer, _node: Node) -> Result<Arc<()>, Refusal> {
        self.mailboxes.add(&peer.mailbox);
        Ok(Arc::new(()))
    }

    fn resources(&self, (): &(), type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let revision = self.revision.load(Ordering::SeqCst);
        let digest = interest.names().map(Names::digest).unwrap_or_default();
        let mut memo = self.memo.lock();
        let entry = memo.entry((type_url.to_owned(), digest));
        let (at, set) = entry.or_insert_with(|| (u64::MAX, ResourceSet::default()));
        if *at != revision {
            let resources = self.resources.lock();
            let all = resources.get(type_url).into_iter().flat_map(BTreeMap::values);
            *set = all.filter(|resource| interest.covers(&resource.name)).cloned().collect();
            *at = revision;
        }
        Ok(set.clone())
    }

    fn observe(&self, (): &(), event: SessionEvent) {
        match event {
            SessionEvent::Acked { .. } => self.acked.fetch_add(1, Ordering::Relaxed),
            SessionEvent::Settled { .. } => self.settled.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

fn service(n: usize) -> String {
    format!("outbound|80||service-{n}.namespace-{}.svc.cluster.local", n % 50)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match arguments.as_slice() {
        [address, proxies] => runtime.block_on(be_proxies(address.clone(), proxies.parse().unwrap())),
        [proxies] => runtime.block_on(be_server(proxies.parse().unwrap())),
        _ => runtime.block_on(be_server(1000)),
    }
}

async fn be_server(proxies: usize) {
    let world = Arc::new(World::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(serve(incoming, world.clone(), Options::default(), std::future::pending()));
    let before = resident_kib();
    let started = Instant::now();
    let this = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(this).args([address, proxies.to_string()]).spawn().unwrap();
    reach(&world.settled, proxies).await;
    let connected = started.elapsed();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = resident_kib();
    println!("{proxies} proxies with {SERVICES} services connected and settled in {connected:.2?}");
    println!("{:.1} KiB of memory for each idle proxy", (idle - before) as f64 / proxies as f64);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let goal = world.acked.load(Ordering::Relaxed) + proxies;
        let started = Instant::now();
        world.change_endpoint(round);
        reach(&world.acked, goal).await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    println!("one endpoint to all ACKs: median {:.2?}, slowest {:.2?}", times[ROUNDS / 2], times[ROUNDS - 1]);
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn reach(counter: &AtomicUsize, goal: usize) {
    while counter.load(Ordering::Relaxed) < goal {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}

async fn be_proxies(address: String, proxies: usize) {
    for n in 0..proxies {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let node = Node { id: format!("proxy-{n}"), ..Default::default() };
        let mut client = AdsClient::new(channel, Protocol::Delta, node);
        client.follower_mut().watch_everything(CLUSTER);
        client.follower_mut().watch(ENDPOINT, (0..SERVICES).map(service));
        client.follower_mut().watch_everything(LISTENER);
        tokio::spawn(async move { while let Ok(Some(_)) = client.step().await {} });
    }
    std::future::pending::<()>().await;
}

/// Resident memory of this process.
fn resident_kib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
}
