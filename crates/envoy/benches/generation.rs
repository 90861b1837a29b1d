//! What it takes to generate everything of one type for one proxy, with nothing of it at hand, on the inputs of Istio's own
//! benchmarks; and what a second proxy of the same view takes after that.
//!
//! What the world is known to be is at hand, as it is in Istio's benchmarks: services, endpoints, what a proxy may see. The
//! inputs are looked for in the conformance corpus beside the repository; without it there is nothing to do.
#![expect(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot build its world has failed")]

#[path = "generation/case.rs"]
mod case;
#[path = "generation/peer.rs"]
mod peer;
#[path = "generation/template.rs"]
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use canopus_engine::{Batch, Ctx, Engine, Input, Query, Snapshot};
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::route_config::Routes;
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::endpoint::{Endpoints, ServiceAccounts};
use canopus_mesh::gateway::Merged;
use canopus_mesh::proxy::{Proxy, View, ViewOf, proxy_config};
use canopus_mesh::service::ServicesByHost;
use canopus_mesh::target::Targets;
use canopus_mesh::waypoint::ServicesBehind;
use canopus_mesh::{scope, virtual_service};
use canopus_proto::resource::Resource;
use tikv_jemallocator::Jemalloc;

use case::Case;

/// That of canopusd.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How long a figure is measured for at most.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Generations that a figure is the median of, unless they take too long.
const REPEATS: usize = 101;

/// What a control plane knows before it generates anything: what Istio has in tables that its benchmarks do not time
/// either, as they belong to no proxy or to its connection.
struct Facts;

impl Query for Facts {
    const NAME: &'static str = "facts";
    type Key = Proxy;
    type Value = ();

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) {
        let view = ctx.get::<ViewOf>(proxy);
        ctx.get::<Targets>(proxy);
        ctx.get::<ServicesBehind>(&view);
        proxy_config(ctx, &view);
        let scope = scope::scope(ctx, &view);
        for service in &scope::services(ctx, &view) {
            know(ctx, &view, &service.host);
            let key = service.key();
            ctx.get::<Endpoints>(&key);
            ctx.get::<ServiceAccounts>(&key);
            outbound_rule(ctx, &view, &key);
        }
        let of_gateways = ctx.get::<Merged>(&view).gateway_names().into_iter();
        let of_gateways =
            of_gateways.flat_map(|gateway| virtual_service::for_gateway(ctx, &view.namespace, &gateway));
        let of_mesh = scope.listeners.iter().flat_map(|listener| listener.virtual_services.iter().cloned());
        for route in of_mesh.chain(of_gateways) {
            for host in virtual_service::destinations(&route.spec, None).keys() {
                know(ctx, &view, host);
            }
        }
    }
}

/// Looks up what a host means: a name in a table of Istio's.
fn know(ctx: &Ctx<'_>, view: &View, host: &str) {
    scope::scoped_service(ctx, view, host);
    ctx.get::<ServicesByHost>(&host.into());
}

/// Something that changes and that nobody reads.
struct Tick;

impl Input for Tick {
    const NAME: &'static str = "tick";
    type Key = ();
    type Value = usize;
    type Index = ();
}

/// A type of resource, and the names a proxy asks for of those it has to ask for.
enum Wanted {
    Clusters,
    Listeners,
    Routes(BTreeSet<String>),
    Endpoints(BTreeSet<String>),
    Names,
}

impl Wanted {
    // A name of its own in profiles.
    #[inline(never)]
    fn generate(&self, world: &Snapshot, proxy: &Proxy) -> Vec<Resource> {
        let view = world.get::<ViewOf>(proxy).unwrap();
        let named = |name: &String| (view.as_ref().clone(), name.clone());
        match self {
            Self::Clusters => world.get::<Clusters>(proxy).unwrap().iter().cloned().collect(),
            Self::Listeners => world.get::<Listeners>(proxy).unwrap().iter().cloned().collect(),
            Self::Routes(names) => names
                .iter()
                .filter_map(|name| world.get::<Routes>(&named(name)).unwrap().as_ref().clone())
                .collect(),
            Self::Endpoints(names) => {
                let found = names.iter().map(|name| world.get::<Assignment>(&named(name)).unwrap());
                found.filter_map(|found| found.as_ref().clone()).collect()
            }
            Self::Names => vec![world.get::<NameTables>(&view).unwrap().as_ref().clone()],
        }
    }
}

/// The figures of one benchmark.
struct Measured {
    median: Duration,
    best: Duration,
    /// Processor time of one generation, on average: what others do to the machine counts less.
    processor: Duration,
    bytes: usize,
    resources: usize,
}

fn measure(case: &Case, wanted: &Wanted) -> Measured {
    // Nothing that nobody watches is kept, so every generation is the first.
    let engine = case.engine(0);
    let proxy = case.proxy(0);
    let _facts = engine.watch::<Facts>(proxy.clone());
    let started = Instant::now();
    let mut times = Vec::new();
    let mut processor = Duration::ZERO;
    let mut generated = Vec::new();
    while times.is_empty() || (times.len() < REPEATS && started.elapsed() < PATIENCE) {
        forget(&engine, times.len());
        let world = engine.snapshot();
        let (started, ran) = (Instant::now(), processor_time());
        generated = wanted.generate(&world, &proxy);
        times.push(started.elapsed());
        processor += processor_time().saturating_sub(ran);
    }
    times.sort_unstable();
    let bytes = generated.iter().map(|resource| resource.body.len()).sum();
    let processor = processor / u32::try_from(times.len()).unwrap();
    Measured { median: times[times.len() / 2], best: times[0], processor, bytes, resources: generated.len() }
}

/// How long this thread has run. The kernel keeps account in steps of some milliseconds, so only sums mean something.
fn processor_time() -> Duration {
    let account = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = account.split_whitespace().next().and_then(|ran| ran.parse().ok());
    Duration::from_nanos(ran.unwrap_or_default())
}

/// Starts a revision at which nothing has been evaluated.
fn forget(engine: &Engine, tick: usize) {
    let mut batch = Batch::new();
    batch.set::<Tick>((), tick);
    engine.apply(batch);
}

fn row(name: &str, figures: &Measured) {
    let Measured { median, best, processor, bytes, resources } = figures;
    let (kilobytes, took) = (*bytes as f64 / 1000.0, processor.as_secs_f64());
    let compared = match peer::figure(name) {
        Some(peer) => {
            let times = peer.seconds / took;
            format!("| {} | {times:.1} × | {} | {} |", shown(peer.seconds), peer.kilobytes, peer.resources)
        }
        None => "| | | | |".to_owned(),
    };
    println!(
        "| {name} | {} | {} | {} | {kilobytes:.1} | {resources} {compared}",
        shown(median.as_secs_f64()),
        shown(best.as_secs_f64()),
        shown(took)
    );
}

fn shown(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.0} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

/// What each query family did for a second proxy of a view.
fn second_proxy(case: &Case) {
    let engine = case.engine(1000);
    let watch = |proxy: &Proxy| {
        let world = engine.snapshot();
        let view = world.get::<ViewOf>(proxy).unwrap().as_ref().clone();
        let clusters = engine.watch::<Clusters>(proxy.clone());
        let listeners = engine.watch::<Listeners>(proxy.clone());
        let all =
            |resources: &canopus_envoy::resources::Resources| resources.iter().cloned().collect::<Vec<_>>();
        let references = References::of(&all(&clusters.value().unwrap()), &all(&listeners.value().unwrap()));
        let named =
            |names: BTreeSet<String>| names.into_iter().map(|name| (view.clone(), name)).collect::<Vec<_>>();
        let routes = engine.watch_all::<Routes>(named(references.routes));
        let endpoints = engine.watch_all::<Assignment>(named(references.assignments));
        (clusters, listeners, routes, endpoints)
    };
    let _first = watch(&case.proxy(0));
    let before = engine.evaluations();
    let _second = watch(&case.proxy(1));
    let after = engine.evaluations();
    let ran = |counts: &BTreeMap<&'static str, u64>| counts.values().sum::<u64>();
    let more: Vec<_> = after
        .iter()
        .filter_map(|(name, count)| {
            let more = count - before.get(name).copied().unwrap_or_default();
            (more > 0).then(|| format!("{name} {more}"))
        })
        .collect();
    println!("| {} | {} | {} | {} |", case.name, ran(&before), ran(&after) - ran(&before), more.join(", "));
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let Some(cases) = case::read_all() else {
        println!("the inputs of Istio's benchmarks are not there: skipped");
        return;
    };
    println!("| benchmark | median | best | processor | kB | resources | Istio | ratio | kB | resources |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for case in &cases {
        for kind in case.types {
            let name = format!("{kind}/{}", case.name);
            if is_wanted(&name) {
                row(&name, &measure(case, &case.wanted(kind)));
            }
        }
    }
    println!("\n| case | queries run for the first proxy | for a second one of its view | which |");
    println!("|---|---|---|---|");
    for case in cases.iter().filter(|case| case.is_general() && is_wanted(&case.name)) {
        second_proxy(case);
    }
}
