//! What a change costs the engine while a real fleet is connected.
//!
//! Prints one row for each kind of change: the time to apply it, how many memos it marks, how many queries it runs and how
//! many watched results it changes. `--proxies N`, `--services N` and `--repeats N` choose sizes, `--only TEXT` one kind of change,
//! and `--queries` prints which queries it runs.
#![expect(clippy::print_stdout, reason = "its table is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot build its world has failed")]

#[path = "fleet/world.rs"]
mod world;

use std::time::{Duration, Instant};

use canopus_engine::Batch;
use canopus_mesh::world::Objects;
use tikv_jemallocator::Jemalloc;

use world::{Fleet, Size, decode, kube_node, set};

/// The allocator of canopusd.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A kind of change, and the batch that makes it for the n-th time.
struct Change {
    name: &'static str,
    batch: Box<dyn Fn(Size, usize) -> Batch>,
}

fn changes() -> Vec<Change> {
    let change = |name, batch: fn(Size, usize) -> Batch| Change { name, batch: Box::new(batch) };
    vec![
        change("an annotation of a Service", |size, step| {
            let note = format!(", annotations: {{example.com/note: '{step}'}}");
            set(&size.service(7 + step % 5, &note))
        }),
        change("the resource version of a VirtualService", |size, step| {
            set(&size.route(10, &format!(", resourceVersion: '{step}'"), 5))
        }),
        change("a label of a VirtualService that nothing reads", |size, step| {
            set(&size.route(10, &format!(", labels: {{team: t-{step}}}"), 5))
        }),
        change("a heartbeat of a Node", |_, step| set(&kube_node(3, step))),
        change("the status of a Pod", |size, step| set(&size.pod(3, "", step))),
        change("an annotation of a Pod", |size, step| {
            set(&size.pod(3, &format!(", annotations: {{example.com/note: '{step}'}}"), 0))
        }),
        change("an endpoint becomes ready or not", |size, step| set(&size.slice(5, step % 2 == 0))),
        change("a VirtualService changes", |size, step| set(&size.route(20, "", 5 + step % 50))),
        change("a Service appears or disappears", |size, step| {
            let extra = size.services + 3;
            let (origin, object) = decode(&size.service(extra, ""));
            let mut batch = Batch::new();
            match step % 2 {
                0 => batch.set::<Objects>(origin, object),
                _ => batch.remove::<Objects>(&origin),
            };
            batch
        }),
    ]
}

fn measure(fleet: &Fleet, size: Size, change: &Change, repeats: usize) {
    // The first change of a kind sets what the next ones repeat.
    fleet.engine.apply((change.batch)(size, 0));
    let (before, ran) = (fleet.engine.stats(), fleet.engine.evaluations());
    let mut times = Vec::new();
    let mut changed = 0;
    for step in 1..=repeats {
        let batch = (change.batch)(size, step);
        let started = Instant::now();
        changed += fleet.engine.apply(batch).changed.len();
        times.push(started.elapsed());
    }
    let after = fleet.engine.stats();
    times.sort_unstable();
    let per = |count: u64| count as f64 / repeats as f64;
    println!(
        "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
        change.name,
        shown(times[repeats / 2]),
        per(after.marks - before.marks),
        per(after.evaluations - before.evaluations),
        per(after.validations - before.validations),
        per(changed as u64)
    );
    if has_flag("--queries") {
        for (name, count) in fleet.engine.evaluations() {
            let more = count - ran.get(name).copied().unwrap_or_default();
            if more > 0 {
                println!("    {name} {:.1}", per(more));
            }
        }
    }
}

fn shown(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        seconds => format!("{:.2} ms", seconds * 1e3),
    }
}

fn text_after(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number_after(name: &str) -> Option<usize> {
    text_after(name)?.parse().ok()
}

fn has_flag(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn main() {
    let services = number_after("--services").unwrap_or(1000);
    let fleets = number_after("--proxies").map_or_else(|| vec![100, 1000], |one| vec![one]);
    let repeats = number_after("--repeats").unwrap_or(50);
    for proxies in fleets {
        let size = Size { services, proxies };
        let started = Instant::now();
        let fleet = Fleet::new(size);
        let stats = fleet.engine.stats();
        let watched: Vec<_> = fleet.watched().iter().map(|(name, count)| format!("{count} {name}")).collect();
        println!(
            "\n{proxies} proxies, {services} services: {} memos, {} reads, {} watched ({}), built in {:.1} s.\n",
            stats.memos,
            stats.edges,
            stats.roots,
            watched.join(", "),
            started.elapsed().as_secs_f64()
        );
        println!(
            "| change | median | marked | run | verified | results changed |\n|---|---|---|---|---|---|"
        );
        for change in changes() {
            if text_after("--only").is_none_or(|only| change.name.contains(&only)) {
                measure(&fleet, size, &change, repeats);
            }
        }
    }
}
