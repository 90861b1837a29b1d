//! What changes, reads, watches and forks cost with 100 000 inputs and 10 000 roots.

#![allow(missing_docs, reason = "criterion's macros make public functions without any")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use canopus_engine::{Batch, Ctx, Engine, Input, Options, Query, Root};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const ENDPOINTS: u32 = 100_000;
const SERVICES: u32 = 10_000;

/// Addresses, ten to a service.
struct Endpoint;
impl Input for Endpoint {
    const NAME: &'static str = "endpoint";
    type Key = u32;
    type Value = (u32, u32);
    type Index = u32;
    fn index(key: &u32, _: &(u32, u32)) -> Vec<u32> {
        vec![key % SERVICES]
    }
}

/// One setting that everything reads.
struct Setting;
impl Input for Setting {
    const NAME: &'static str = "setting";
    type Key = ();
    type Value = u32;
    type Index = ();
}

/// Part of the setting that everything goes by.
struct Factor;
impl Query for Factor {
    const NAME: &'static str = "factor";
    type Key = ();
    type Value = u32;
    fn run(ctx: &Ctx<'_>, (): &()) -> u32 {
        ctx.read::<Setting>(&()).map_or(0, |setting| *setting / 10)
    }
}

/// The endpoints of a service.
struct Endpoints;
impl Query for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = u32;
    type Value = Vec<(u32, u32)>;
    fn run(ctx: &Ctx<'_>, service: &u32) -> Vec<(u32, u32)> {
        let factor = *ctx.get::<Factor>(&());
        let keys = ctx.members::<Endpoint>(service);
        keys.iter()
            .filter_map(|key| ctx.read::<Endpoint>(key))
            .map(|at| (at.0, at.1.wrapping_mul(factor)))
            .collect()
    }
}

fn engine_with_inputs() -> Engine {
    let engine = Engine::new();
    let mut batch = Batch::new();
    for key in 0..ENDPOINTS {
        batch.set::<Endpoint>(key, (key, 1));
    }
    batch.set::<Setting>((), 10);
    engine.apply(batch);
    engine
}

fn engine_with_roots() -> (Engine, Vec<Root<Endpoints>>) {
    let engine = engine_with_inputs();
    let roots = engine.watch_all::<Endpoints>(0..SERVICES);
    (engine, roots)
}

fn set_endpoint(engine: &Engine, key: u32, port: u32) -> usize {
    let mut batch = Batch::new();
    batch.set::<Endpoint>(key, (key, port));
    engine.apply(batch).changed.len()
}

fn set_setting(engine: &Engine, setting: u32) -> usize {
    let mut batch = Batch::new();
    batch.set::<Setting>((), setting);
    engine.apply(batch).changed.len()
}

fn changes(criterion: &mut Criterion) {
    let (engine, _roots) = engine_with_roots();
    let mut next = 10u32;
    let mut step = move || {
        next = next.wrapping_add(1);
        next
    };
    let mut group = criterion.benchmark_group("apply");
    group.bench_function("one_changed_input", |bencher| {
        bencher.iter(|| {
            let step = step();
            assert_eq!(set_endpoint(&engine, step.wrapping_mul(7919) % ENDPOINTS, step), 1);
        });
    });
    group.bench_function("one_equal_input", |bencher| {
        set_endpoint(&engine, 1, 1);
        bencher.iter(|| assert_eq!(set_endpoint(&engine, 1, 1), 0));
    });
    group.bench_function("one_new_and_one_removed_member", |bencher| {
        bencher.iter(|| {
            assert_eq!(set_endpoint(&engine, ENDPOINTS + 5, 1), 1);
            let mut batch = Batch::new();
            batch.remove::<Endpoint>(&(ENDPOINTS + 5));
            assert_eq!(engine.apply(batch).changed.len(), 1);
        });
    });
    group.sample_size(10);
    group.bench_function("shared_input_cut_off_for_10000_roots", |bencher| {
        bencher.iter(|| assert_eq!(set_setting(&engine, 10 + step() % 10), 0));
    });
    group.bench_function("shared_input_changed_for_10000_roots", |bencher| {
        bencher.iter(|| assert_eq!(set_setting(&engine, 10 * step()), SERVICES as usize));
    });
    group.finish();
}

fn reads(criterion: &mut Criterion) {
    let (engine, roots) = engine_with_roots();
    let mut group = criterion.benchmark_group("read");
    group.bench_function("get_of_a_memo", |bencher| bencher.iter(|| black_box(engine.get::<Endpoints>(&77))));
    group.bench_function("value_of_a_root", |bencher| bencher.iter(|| black_box(roots[77].value())));
    group.bench_function("watch_of_a_memo", |bencher| {
        bencher.iter(|| black_box(engine.watch::<Endpoints>(77)));
    });
    group.bench_function("provenance", |bencher| {
        bencher.iter(|| black_box(engine.provenance::<Endpoints>(&77)));
    });
    group.bench_function("fork", |bencher| bencher.iter(|| black_box(engine.fork())));
    group.bench_function("fork_and_apply", |bencher| {
        bencher.iter(|| assert_eq!(set_endpoint(&engine.fork(), 77, 5), 1));
    });
    group.finish();
}

/// A number, made of nothing.
struct Double;
impl Query for Double {
    const NAME: &'static str = "double";
    type Key = u64;
    type Value = u64;
    fn run(_: &Ctx<'_>, key: &u64) -> u64 {
        key * 2
    }
}

/// Queries that a [`Sum`] needs.
const PARTS: u64 = 1000;

/// The sum of some doubles; the second part of the key makes it one that has not been asked for.
struct Sum;
impl Query for Sum {
    const NAME: &'static str = "sum";
    type Key = (u64, u64);
    type Value = u64;
    fn run(ctx: &Ctx<'_>, (from, _): &(u64, u64)) -> u64 {
        (*from..from + PARTS).map(|key| *ctx.get::<Double>(&key)).sum()
    }
}

/// The time that one query of many takes which another one asks for: the fixed cost of a query.
fn queries(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("query");
    group.throughput(Throughput::Elements(PARTS));
    let time_sums = |engine: &Engine, count: u64, key: &mut dyn FnMut(u64) -> (u64, u64)| {
        (0..count).map(|step| time_sum(engine, step, key(step))).sum::<Duration>()
    };
    group.bench_function("1000_hits", |bencher| {
        let engine = Engine::with_options(Options { idle: 4 * PARTS as usize, ..Options::default() });
        let _doubles = engine.watch_all::<Double>(0..PARTS);
        bencher.iter_custom(|count| time_sums(&engine, count, &mut |step| (0, step)));
    });
    group.bench_function("1000_misses", |bencher| {
        let engine = Engine::with_options(Options { idle: 4 * PARTS as usize, ..Options::default() });
        let mut next = 0;
        let mut fresh = |_| {
            next += PARTS;
            (next, 0)
        };
        bencher.iter_custom(|count| time_sums(&engine, count, &mut fresh));
    });
    group.finish();
}

/// How long a sum takes, and starts a revision without what was evaluated for it.
fn time_sum(engine: &Engine, step: u64, key: (u64, u64)) -> Duration {
    let snapshot = engine.snapshot();
    let started = Instant::now();
    let sum = black_box(snapshot.get::<Sum>(&key));
    let took = started.elapsed();
    drop((sum, snapshot));
    set_setting(engine, step as u32);
    took
}

fn cold(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cold");
    group.sample_size(10);
    group.bench_function("set_100000_inputs", |bencher| bencher.iter_with_large_drop(engine_with_inputs));
    group.bench_function("watch_10000_queries_at_once", |bencher| {
        bencher.iter_batched(
            engine_with_inputs,
            |engine| (engine.watch_all::<Endpoints>(0..SERVICES), engine),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("watch_10000_queries_one_by_one", |bencher| {
        let one_by_one = |engine: Engine| {
            let roots: Vec<_> = (0..SERVICES).map(|service| engine.watch::<Endpoints>(service)).collect();
            (roots, engine)
        };
        bencher.iter_batched(engine_with_inputs, one_by_one, BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, changes, queries, reads, cold);
criterion_main!(benches);
