//! What a world costs: to build, to keep, and to change.
//!
//! Prints three tables: building (time on one core, memory), the same edits in worlds of growing size, and a soak of random
//! edits whose result is compared with a world built from scratch. `--services N` makes one size, `--only TEXT` one kind of edit,
//! `--repeats N` more of each, `--edits N` a longer soak, and `--queries` says which queries an edit runs.
#![expect(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot build its world has failed")]

#[path = "world/edit.rs"]
mod edit;
#[path = "world/objects.rs"]
mod objects;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use canopus_engine::{Engine, Options, Root};
use canopus_mesh::endpoint::Endpoints;
use canopus_mesh::scope::{ScopeKey, Scopes};
use canopus_mesh::service::ServicesByHost;
use tikv_jemallocator::Jemalloc;

use edit::{EDITS, Edit, Random, SEEN_BY_ALL};
use objects::{Model, SIDECARS_PER_NAMESPACE};

/// The allocator of canopusd.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The size whose build has a budget.
const BUDGETED: usize = 10_000;
/// Edits of a kind that a figure is the median of.
const REPEATS: usize = 200;
/// Namespaces with proxies that no Sidecar narrows, for the edits that are made once more with them.
const UNLIMITED: usize = 10;

/// How often each query has run.
type Evaluations = BTreeMap<&'static str, u64>;

/// What a control plane with connected proxies keeps up to date.
struct Watched {
    endpoints: Vec<Root<Endpoints>>,
    hosts: Vec<Root<ServicesByHost>>,
    scopes: Vec<Root<Scopes>>,
}

impl Watched {
    fn start(engine: &Engine, model: &Model) -> Self {
        let keys = || (0..model.services()).map(|at| model.service_key(at));
        let sidecars = (0..model.namespaces())
            .flat_map(|namespace| (0..SIDECARS_PER_NAMESPACE).map(move |at| (namespace, at)));
        let scope = |(namespace, at): (usize, usize)| {
            let origin = model.sidecar_origin(namespace, at);
            ScopeKey::Sidecars(origin.namespace().into(), Some(origin))
        };
        Self {
            endpoints: engine.watch_all::<Endpoints>(keys()),
            hosts: engine.watch_all::<ServicesByHost>(keys().map(|key| key.host)),
            scopes: engine.watch_all::<Scopes>(sidecars.map(scope)),
        }
    }

    fn agrees_with(&self, other: &Self) -> bool {
        same(&self.endpoints, &other.endpoints)
            && same(&self.hosts, &other.hosts)
            && same(&self.scopes, &other.scopes)
    }
}

fn same<Q: canopus_engine::Query>(one: &[Root<Q>], other: &[Root<Q>]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(one, other)| one.value().unwrap() == other.value().unwrap())
}

/// The scopes of proxies that see the whole mesh.
fn unlimited(engine: &Engine) -> Vec<Root<Scopes>> {
    let namespaces = (0..UNLIMITED).map(|at| format!("edge-{at}"));
    engine.watch_all::<Scopes>(namespaces.map(|namespace| ScopeKey::Sidecars(namespace.into(), None)))
}

fn build(model: &Model) -> (Engine, Watched, Duration) {
    let batch = model.batch();
    let started = processor_time();
    let engine = Engine::with_options(Options { threads: 1, idle: 1000 });
    engine.apply(batch);
    let watched = Watched::start(&engine, model);
    (engine, watched, processor_time().saturating_sub(started))
}

/// How long this thread has run: what others do to the machine does not count.
fn processor_time() -> Duration {
    // The account is brought up to date when the scheduler is asked.
    std::thread::yield_now();
    let account = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(
        account.split_whitespace().next().and_then(|run| run.parse().ok()).unwrap_or_default(),
    )
}

/// A line of the kernel's account of this process, in megabytes.
fn memory(line: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kilobytes = found.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1024.0
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// What an edit of a kind costs.
struct Cost {
    /// Time that passes, the median.
    median: f64,
    /// Processor time, the mean.
    processor: f64,
    /// How many roots one changes.
    roots: usize,
}

/// Makes edits of a kind, unless others are asked for.
fn measure(engine: &Engine, model: &mut Model, edit: Edit, random: &mut Random) -> Option<Cost> {
    if text_after("--only").is_some_and(|only| !edit.name().contains(&only)) {
        return None;
    }
    let repeats = flag("--repeats").unwrap_or(REPEATS);
    let batches: Vec<_> = (0..repeats).map(|_| edit.make(model, random)).collect();
    let mut times = Vec::with_capacity(repeats);
    let mut roots = 0;
    let ran = engine.evaluations();
    let before = processor_time();
    for batch in batches {
        let started = Instant::now();
        let applied = engine.apply(batch);
        times.push(micros(started.elapsed()));
        roots = roots.max(applied.changed.len());
    }
    let processor = micros(processor_time().saturating_sub(before)) / repeats as f64;
    times.sort_by(f64::total_cmp);
    if has_flag("--queries") {
        print_queries(edit, repeats, &ran, &engine.evaluations());
    }
    Some(Cost { median: times[times.len() / 2], processor, roots })
}

/// How often one edit makes each query run.
fn print_queries(edit: Edit, repeats: usize, before: &Evaluations, after: &Evaluations) {
    println!("{}:", edit.name());
    for (name, count) in after {
        let ran = count - before.get(name).copied().unwrap_or_default();
        if ran > 0 {
            println!("  {name} {:.2}", ran as f64 / repeats as f64);
        }
    }
}

/// Builds worlds of these sizes, and makes the same edits in each.
fn tables(sizes: &[usize]) {
    let mut columns = Vec::new();
    println!("| services | objects | build, one core | resident | peak | memos | reads |");
    println!("|---|---|---|---|---|---|---|");
    for &size in sizes {
        let mut model = Model::new(size);
        let (engine, watched, took) = build(&model);
        let stats = engine.stats();
        println!(
            "| {size} | {} | {:.2} s | {:.0} MB | {:.0} MB | {} | {} |",
            stats.inputs,
            took.as_secs_f64(),
            memory("VmRSS"),
            memory("VmHWM"),
            stats.memos,
            stats.edges
        );
        let mut random = Random::new(1);
        let mut column: Vec<_> =
            EDITS.iter().map(|edit| measure(&engine, &mut model, *edit, &mut random)).collect();
        let whole = unlimited(&engine);
        column.extend(SEEN_BY_ALL.iter().map(|edit| measure(&engine, &mut model, *edit, &mut random)));
        columns.push(column);
        let (fresh, scratch, _) = build(&model);
        assert!(watched.agrees_with(&scratch), "a world of {size} services is not what its edits lead to");
        assert!(same(&whole, &unlimited(&fresh)), "a mesh of {size} services is not seen as it is");
    }
    println!();
    let heads: Vec<_> = sizes.iter().map(|size| format!("{size} services")).collect();
    println!("| edit, median (processor time, mean) | {} | roots changed |", heads.join(" | "));
    println!("|---|{}---|", "---|".repeat(sizes.len()));
    let beside = SEEN_BY_ALL.iter().map(|edit| {
        format!("{}, with proxies of {UNLIMITED} namespaces that no Sidecar narrows", edit.name())
    });
    let names = EDITS.iter().map(|edit| edit.name().to_owned()).chain(beside);
    for (row, name) in names.enumerate() {
        let costs: Vec<_> =
            columns.iter().filter_map(|column: &Vec<Option<Cost>>| column[row].as_ref()).collect();
        let Some(last) = costs.last() else { continue };
        let roots = last.roots;
        let times: Vec<_> =
            costs.iter().map(|cost| format!("{:.0} µs ({:.0})", cost.median, cost.processor)).collect();
        println!("| {name} | {} | {roots} |", times.join(" | "));
    }
}

/// Makes random edits for a long time.
fn soak(size: usize, count: usize) {
    let mut model = Model::new(size);
    let (engine, watched, _) = build(&model);
    let mut random = Random::new(7);
    println!("\n| random edits of {size} services | resident | keys and memos | a second |");
    println!("|---|---|---|---|");
    for quarter in 1..=4 {
        let started = Instant::now();
        for _ in 0..count / 4 {
            let edit = EDITS[random.below(EDITS.len())];
            engine.apply(edit.make(&mut model, &mut random));
        }
        let (rate, stats) = ((count / 4) as f64 / started.elapsed().as_secs_f64(), engine.stats());
        let done = count / 4 * quarter;
        println!("| {done} | {:.0} MB | {} | {rate:.0} |", memory("VmRSS"), stats.inputs + stats.memos);
    }
    let (_, scratch, _) = build(&model);
    assert!(watched.agrees_with(&scratch), "the world is not what its edits lead to");
    println!("\nEvery watched fact equals that of a world built from scratch.");
}

/// What follows a flag.
fn text_after(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// The number after a flag.
fn flag(name: &str) -> Option<usize> {
    text_after(name)?.parse().ok()
}

fn has_flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn main() {
    match flag("--services") {
        Some(size) => tables(&[size]),
        None => tables(&[1000, BUDGETED, 50_000]),
    }
    soak(flag("--services").unwrap_or(1000), flag("--edits").unwrap_or(20_000));
}
