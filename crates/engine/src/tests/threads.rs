//! Many threads at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::check::check;
use super::model::{AnyRoot, Cell, Change, ModelInputs, NAMES, Program, any_change, any_start, batch, get};
use crate::{Applied, Batch, Ctx, Engine, Input, Options, Query, QueryError, RootId, Snapshot};

/// Values drawn from a strategy, the same in every run.
fn draw<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The inputs a snapshot has.
fn model_inputs(snapshot: &Snapshot) -> ModelInputs {
    let cells = snapshot.keys::<Cell>();
    let programs = snapshot.keys::<Program>();
    ModelInputs {
        cells: cells.iter().map(|name| (*name, *snapshot.read::<Cell>(name).unwrap())).collect(),
        programs: programs
            .iter()
            .map(|name| (*name, (*snapshot.read::<Program>(name).unwrap()).clone()))
            .collect(),
    }
}

/// Applies batches over and over until some threads have ended.
fn apply_while(
    engine: &Engine,
    batches: &[Vec<Change>],
    running: &AtomicUsize,
    mut after: impl FnMut(&Applied),
) {
    for changes in batches.iter().cycle() {
        if running.load(Ordering::SeqCst) == 0 {
            return;
        }
        after(&engine.apply(batch(changes)));
    }
}

#[test]
fn snapshots_are_consistent_while_batches_are_applied() {
    let engine = Engine::with_options(Options { threads: 3, idle: 4 });
    engine.apply(batch(&draw(&any_start(), 1)[0]));
    let batches: Vec<Vec<Change>> = draw(&prop::collection::vec(any_change(), 1..4), 600);
    let running = AtomicUsize::new(3);
    thread::scope(|scope| {
        for reader in 0..3u8 {
            let (engine, running) = (&engine, &running);
            scope.spawn(move || {
                let _ended = Ended(running);
                for round in 0..100 {
                    read_everything(engine, reader + round);
                }
            });
        }
        apply_while(&engine, &batches, &running, |_| {});
    });
    check(&engine);
}

/// Counts a thread off however it ends.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn read_everything(engine: &Engine, from: u8) {
    let snapshot = engine.snapshot();
    let results = model_inputs(&snapshot).results();
    for name in (0..NAMES).map(|name| (name + from) % NAMES) {
        assert_eq!(get(&snapshot, name), results.values[&name]);
    }
    drop(AnyRoot::watch(engine, from % NAMES));
}

#[test]
fn no_change_is_missed_when_roots_are_watched_while_batches_are_applied() {
    /// The query of each root, and its value according to the reports so far.
    type KnownValues = BTreeMap<RootId, (u8, Result<i64, QueryError>)>;

    let engine = Engine::with_options(Options { threads: 2, idle: 0 });
    engine.apply(batch(&draw(&any_start(), 1)[0]));
    let batches: Vec<Vec<Change>> = draw(&prop::collection::vec(any_change(), 1..3), 600);
    let known_values: Mutex<KnownValues> = Mutex::default();
    let running = AtomicUsize::new(1);
    let roots = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let _ended = Ended(&running);
            let mut roots = Vec::new();
            for round in 0..800u16 {
                let name = (round % u16::from(NAMES)) as u8;
                // Reports wait until the new root is known, as they would in a queue.
                let mut known_values = known_values.lock();
                let root = AnyRoot::watch(&engine, name);
                known_values.insert(root.id(), (name, root.value()));
                MutexGuard::unlock_fair(known_values);
                roots.push(root);
                roots.truncate(usize::from(NAMES) + 1 - usize::from(name));
            }
            roots
        });
        apply_while(&engine, &batches, &running, |applied| {
            let snapshot = engine.snapshot();
            let mut known_values = known_values.lock();
            for id in &applied.changed {
                if let Some((name, value)) = known_values.get_mut(id) {
                    *value = get(&snapshot, *name);
                }
            }
            MutexGuard::unlock_fair(known_values);
        });
        watcher.join().unwrap()
    });
    for root in &roots {
        assert_eq!(root.value(), known_values.lock()[&root.id()].1);
    }
    assert!(!roots.is_empty());
    check(&engine);
}

/// Where a query goes next.
struct Next;
impl Input for Next {
    const NAME: &'static str = "next";
    type Key = u32;
    type Value = u32;
    type Index = ();
}

/// Steps to the end of the line.
struct Steps;
impl Query for Steps {
    const NAME: &'static str = "steps";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
        // Mixes threads up where there are some; the long line has but one.
        if *key < 100 {
            thread::yield_now();
        }
        ctx.read::<Next>(key).map_or(0, |next| *ctx.get::<Steps>(&next) + 1)
    }
}

fn line(engine: &Engine, length: u32, closed: bool) {
    let mut batch = Batch::new();
    for key in 0..length {
        batch.set::<Next>(key, key + 1);
    }
    if closed {
        batch.set::<Next>(length, 0);
    }
    engine.apply(batch);
}

#[test]
fn cycle_is_found_when_threads_enter_it_at_different_places() {
    for round in 0..200 {
        let length = 2 + round % 5;
        let engine = Engine::new();
        line(&engine, length, true);
        let expected: Vec<String> = (0..=length).map(|key| format!("steps({key})")).collect();
        thread::scope(|scope| {
            for entry in 0..=length {
                let (engine, expected) = (&engine, &expected);
                scope.spawn(move || {
                    let error = engine.get::<Steps>(&entry).unwrap_err();
                    assert_eq!(error, QueryError::Cycle { path: expected.clone() });
                });
            }
        });
        check(&engine);
    }
}

#[test]
fn query_runs_once_when_many_threads_want_it() {
    let engine = Engine::new();
    line(&engine, 50, false);
    thread::scope(|scope| {
        for entry in 0..8 {
            let engine = &engine;
            scope.spawn(move || assert_eq!(*engine.get::<Steps>(&entry).unwrap(), 50 - entry));
        }
    });
    assert_eq!(engine.stats().evaluations, 51);
}

#[test]
fn depth_is_not_bounded_by_the_stack() {
    let engine = Engine::new();
    let depth = 20_000;
    line(&engine, depth, false);
    let root = engine.watch::<Steps>(0);
    assert_eq!(*root.value().unwrap(), depth);
    let mut batch = Batch::new();
    batch.remove::<Next>(&(depth - 1));
    assert_eq!(engine.apply(batch).changed, [root.id()]);
    assert_eq!(*root.value().unwrap(), depth - 1);
    drop(root);
    check(&engine);
}

#[test]
fn readers_see_the_revision_before_while_a_batch_is_applied() {
    /// Waits for a reader whenever its input is 1.
    struct Slow;
    impl Query for Slow {
        const NAME: &'static str = "slow";
        type Key = u32;
        type Value = u32;
        fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
            let value = ctx.read::<Next>(key).map_or(0, |value| *value);
            if value == 1 {
                ENTERED.store(true, Ordering::SeqCst);
                while !READ.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            }
            value
        }
    }
    static ENTERED: AtomicBool = AtomicBool::new(false);
    static READ: AtomicBool = AtomicBool::new(false);

    let engine = Engine::new();
    let root = Arc::new(engine.watch::<Slow>(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Batch::new();
            batch.set::<Next>(0, 1);
            engine.apply(batch);
        });
        while !ENTERED.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert_eq!(*root.value().unwrap(), 0);
        assert_eq!(*engine.get::<Steps>(&5).unwrap(), 0, "evaluated while the batch is applied");
        assert_eq!(engine.fork().revision().number(), 0);
        drop(engine.clone());
        READ.store(true, Ordering::SeqCst);
    });
    assert_eq!(*root.value().unwrap(), 1);
    assert_eq!(engine.revision().number(), 1);
}
