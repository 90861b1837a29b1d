//! Resident memory per input, memo and edge; prints a small table.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::fs;

use canopus_engine::{Batch, Ctx, Engine, Input, Query};

const COUNT: u32 = 500_000;

struct Number;
impl Input for Number {
    const NAME: &'static str = "number";
    type Key = u32;
    type Value = u32;
    type Index = u32;
    fn index(key: &u32, _: &u32) -> Vec<u32> {
        vec![key % 10_000]
    }
}

/// One read each.
struct Echo;
impl Query for Echo {
    const NAME: &'static str = "echo";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
        ctx.read::<Number>(key).map_or(0, |number| *number)
    }
}

/// Ten reads each.
struct Ten;
impl Query for Ten {
    const NAME: &'static str = "ten";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
        (0..10).map(|step| *ctx.get::<Echo>(&((key + step * 49_999) % COUNT))).sum()
    }
}

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

fn report(what: &str, count: u32, before: (usize, usize), engine: &Engine) -> (usize, usize) {
    let after = (resident(), engine.stats().bytes);
    let per = |before: usize, after: usize| (after.saturating_sub(before)) / count as usize;
    println!(
        "{what:32} {:>6} B resident, {:>6} B by estimate",
        per(before.0, after.0),
        per(before.1, after.1)
    );
    after
}

fn main() {
    let engine = Engine::new();
    let start = (resident(), 0);
    let mut batch = Batch::new();
    for key in 0..COUNT {
        batch.set::<Number>(key, key);
    }
    engine.apply(batch);
    let start = report("input, in one bucket", COUNT, start, &engine);
    let echoes = engine.watch_all::<Echo>(0..COUNT);
    let start = report("watched memo with 1 read", COUNT, start, &engine);
    let tens = engine.watch_all::<Ten>(0..COUNT / 5);
    let start = report("watched memo with 10 reads", COUNT / 5, start, &engine);
    let fork = engine.fork();
    report("fork", 1, start, &fork);
    drop((echoes, tens));
}
