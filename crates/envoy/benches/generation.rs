//! What it takes to generate everything of one type for one proxy, with nothing of it at hand, on the inputs of Istio's own
//! benchmarks; and what a second proxy of the same audiences takes after that.
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

use canopus_engine::{Batch, Ctx, Engine, Input, Options, Query, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::route_config::Routes;
use canopus_mesh::audience::Caller;
use canopus_mesh::audience::View;
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::endpoint::{Endpoints, ServersOf};
use canopus_mesh::gateway::MergedGateways;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::service::ServicesByHost;
use canopus_mesh::target::Targets;
use canopus_mesh::waypoint::ServicesBehind;
use canopus_mesh::{scope, virtual_service};
use canopus_proto::resource::Resource;
use tikv_jemallocator::Jemalloc;

use case::Case;
use peer::{Figure, Peers};

/// The allocator of canopusd.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How long a figure is measured for at most.
const PATIENCE: Duration = Duration::from_millis(1000);
/// Generations that a figure is the median of, unless they take too long. Istio's are as warm.
const REPEATS: usize = 2001;

/// What a control plane knows before it generates anything: what Istio has in tables that its benchmarks do not time
/// either, as they belong to no proxy or to its connection.
struct Facts;

impl Query for Facts {
    const NAME: &'static str = "facts";
    type Key = Proxy;
    type Value = ();

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) {
        ctx.get::<AudiencesOf>(proxy);
        ctx.get::<Targets>(proxy);
        let view = View::new(ctx, proxy);
        if let Some(waypoint) = view.waypoint_runner() {
            ctx.get::<ServicesBehind>(&waypoint);
        }
        let caller = Caller::new(ctx, &view);
        let scope = scope::scope(ctx, &caller.scope);
        for service in &scope::services(ctx, &caller.scope) {
            know(ctx, &caller, &service.host);
            let key = service.key();
            ctx.get::<Endpoints>(&key);
            ctx.get::<ServersOf>(&key);
            outbound_rule(ctx, &caller, &key);
        }
        let of_gateways = ctx.get::<MergedGateways>(&view.gateway_runner(ctx)).gateway_names().into_iter();
        let of_gateways = of_gateways
            .flat_map(|gateway| virtual_service::for_gateway(ctx, &view.namespace, &gateway).to_vec());
        let of_mesh = scope.listeners.iter().flat_map(|listener| listener.virtual_services.iter().cloned());
        for route in of_mesh.chain(of_gateways) {
            for host in virtual_service::destinations(&route.spec, None).keys() {
                know(ctx, &caller, host);
            }
        }
    }
}

/// Looks up what a host means: a name in a table of Istio's.
fn know(ctx: &Ctx<'_>, caller: &Caller, host: &str) {
    scope::scoped_service(ctx, &caller.scope, host);
    ctx.get::<ServicesByHost>(&host.into());
}

/// An input that changes and that no query reads.
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
        let audiences = world.get::<AudiencesOf>(proxy).unwrap();
        match self {
            Self::Clusters => world.get::<Clusters>(proxy).unwrap().iter().cloned().collect(),
            Self::Listeners => world.get::<Listeners>(proxy).unwrap().iter().cloned().collect(),
            Self::Routes(names) => {
                let found = world
                    .get_all::<Routes>(names.iter().map(|name| (audiences.routes.clone(), name.clone())))
                    .unwrap();
                found.iter().filter_map(|found| found.as_ref().clone()).collect()
            }
            Self::Endpoints(names) => {
                let named = |name: &String| (audiences.endpoints.clone(), name.clone());
                let found = world.get_all::<Assignment>(names.iter().map(named)).unwrap();
                found.iter().filter_map(|found| found.as_ref().clone()).collect()
            }
            Self::Names => vec![world.get::<NameTables>(&audiences.names).unwrap().as_ref().clone()],
        }
    }
}

/// The figures of one benchmark.
struct Measured {
    /// The median on one core.
    alone: Duration,
    /// The best on one core.
    best: Duration,
    /// The median where all cores may help.
    together: Duration,
    bytes: usize,
    resources: usize,
}

impl Measured {
    fn new(case: &Case, wanted: &Wanted) -> Self {
        let alone = Run::new(case, wanted, 1);
        let together = Run::new(case, wanted, Options::default().threads);
        let bytes = alone.generated.iter().map(|resource| resource.body.len()).sum();
        Self {
            alone: alone.median(),
            best: alone.times[0],
            together: together.median(),
            bytes,
            resources: alone.generated.len(),
        }
    }
}

/// Generations of the same, one after another.
struct Run {
    /// How long each took, the shortest first.
    times: Vec<Duration>,
    generated: Vec<Resource>,
}

impl Run {
    fn new(case: &Case, wanted: &Wanted, threads: usize) -> Self {
        // Nothing that nobody watches is kept, so every generation is the first.
        let engine = case.engine(Options { threads, idle: 0 });
        let proxy = case.proxy(0);
        let _facts = engine.watch::<Facts>(proxy.clone());
        let began = Instant::now();
        let mut times = Vec::new();
        let mut generated = Vec::new();
        while times.is_empty() || (times.len() < REPEATS && began.elapsed() < PATIENCE) {
            forget(&engine, times.len());
            let world = engine.snapshot();
            let started = Instant::now();
            let made = wanted.generate(&world, &proxy);
            times.push(started.elapsed());
            generated = made;
        }
        times.sort_unstable();
        Self { times, generated }
    }

    fn median(&self) -> Duration {
        self.times[self.times.len() / 2]
    }
}

/// Starts a revision at which nothing has been evaluated.
fn forget(engine: &Engine, tick: usize) {
    let mut batch = Batch::new();
    batch.set::<Tick>((), tick);
    engine.apply(batch);
}

fn row(name: &str, figures: &Measured, peers: &Peers) -> Option<[f64; 2]> {
    let Measured { alone, best, together, bytes, resources } = figures;
    let kilobytes = *bytes as f64 / 1000.0;
    let peer = peers.figure(name);
    let ratios = peer.as_ref().map(|peer| [alone, together].map(|took| peer.seconds / took.as_secs_f64()));
    let compared = match (&peer, ratios) {
        (Some(peer), Some([alone, together])) => {
            let Figure { seconds, kilobytes, resources } = peer;
            format!("{} | {alone:.1} × | {together:.1} × | {kilobytes} | {resources}", shown(*seconds))
        }
        _ => "| | | |".to_owned(),
    };
    let [alone, best, together] = [alone, best, together].map(|took| shown(took.as_secs_f64()));
    println!("| {name} | {alone} | {best} | {together} | {kilobytes:.1} | {resources} | {compared} |");
    ratios
}

/// How many times faster on the whole: the geometric mean of ratios.
fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

fn shown(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.0} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

/// What each query family did for a second proxy of the same audiences.
fn second_proxy(case: &Case) {
    let engine = case.engine(Options { threads: 1, idle: 1000 });
    let watch = |proxy: &Proxy| {
        let world = engine.snapshot();
        let audiences = world.get::<AudiencesOf>(proxy).unwrap();
        let clusters = engine.watch::<Clusters>(proxy.clone());
        let listeners = engine.watch::<Listeners>(proxy.clone());
        let all =
            |resources: &canopus_envoy::resources::Resources| resources.iter().cloned().collect::<Vec<_>>();
        let references =
            References::find(&all(&clusters.value().unwrap()), &all(&listeners.value().unwrap()));
        let tables = references.routes.into_iter().map(|name| (audiences.routes.clone(), name));
        let assignments = references.assignments.into_iter().map(|name| (audiences.endpoints.clone(), name));
        let routes = engine.watch_all::<Routes>(tables);
        let endpoints = engine.watch_all::<Assignment>(assignments);
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
    let mut only: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let peers = match only.iter().position(|argument| argument == "--istio") {
        Some(at) => {
            let path = only.drain(at..).nth(1).expect("the file with what Istio's benchmarks printed");
            Peers::printed(&fs::read_to_string(path).unwrap())
        }
        None => Peers::recorded(),
    };
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let Some(cases) = case::read_all() else {
        println!("the inputs of Istio's benchmarks are not there: skipped");
        return;
    };
    println!(
        "| benchmark | one core | best | all cores | kB | resources | Istio | ratio | all cores | kB | resources |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut ratios = Vec::new();
    for case in &cases {
        for kind in case.types {
            let name = format!("{kind}/{}", case.name);
            if is_wanted(&name) {
                ratios.extend(row(&name, &Measured::new(case, &case.wanted(kind)), &peers));
            }
        }
    }
    let of = |which: usize| mean(&ratios.iter().map(|pair| pair[which]).collect::<Vec<_>>());
    println!("\ngeometric mean of {} ratios: {:.2} on one core, {:.2} on all", ratios.len(), of(0), of(1));
    println!("\n| case | queries run for the first proxy | for a second one of its audiences | which |");
    println!("|---|---|---|---|");
    for case in cases.iter().filter(|case| case.is_general() && is_wanted(&case.name)) {
        second_proxy(case);
    }
}
