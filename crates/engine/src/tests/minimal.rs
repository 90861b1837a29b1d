//! Work follows the change: only memos that depend on a change are marked, and only queries that must run do.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::{AnyRoot, ModelInputs, NAMES, any_change, any_start, batch, is_eager};
use crate::{Batch, Ctx, EagerCtx, EagerQuery, Engine, Input, Options, Query};

/// A number among many.
struct Number;
impl Input for Number {
    const NAME: &'static str = "number";
    type Key = u32;
    type Value = u32;
    type Index = u32;
    fn index(key: &u32, _: &u32) -> Vec<u32> {
        vec![key / 10]
    }
}

/// Sum of ten numbers.
struct Ten;
impl Query for Ten {
    const NAME: &'static str = "ten";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, ten: &u32) -> u32 {
        ctx.members::<Number>(ten)
            .iter()
            .filter_map(|key| ctx.read::<Number>(key))
            .map(|number| *number)
            .sum()
    }
}

/// Sum of a hundred numbers, rounded.
struct Hundred;
impl Query for Hundred {
    const NAME: &'static str = "hundred";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, hundred: &u32) -> u32 {
        (0..10).map(|ten| *ctx.get::<Ten>(&(hundred * 10 + ten))).sum::<u32>() / 1000
    }
}

fn set(engine: &Engine, key: u32, value: u32) -> usize {
    let mut batch = Batch::new();
    batch.set::<Number>(key, value);
    engine.apply(batch).changed.len()
}

#[test]
fn one_change_runs_a_constant_number_of_queries_whatever_the_size_of_the_graph() {
    for size in [1_000, 100_000] {
        let engine = Engine::new();
        let mut batch = Batch::new();
        for key in 0..size {
            batch.set::<Number>(key, 1000);
        }
        engine.apply(batch);
        let roots = engine.watch_all::<Hundred>(0..size / 100);
        let before = engine.stats();
        assert_eq!(before.evaluations, u64::from(size / 10 + size / 100));

        assert_eq!(set(&engine, 7, 2000), 1);
        let after = engine.stats();
        assert_eq!(after.evaluations - before.evaluations, 2, "one ten and one hundred");
        assert_eq!(after.validations, before.validations);

        assert_eq!(set(&engine, 7, 2001), 0, "rounded away");
        assert_eq!(engine.stats().evaluations - after.evaluations, 2);
        assert_eq!((after.memos, after.edges), (before.memos, before.edges));
        assert_eq!(roots.len(), size as usize / 100);
    }
}

/// How many tens of a number there are, in the eager layer.
struct WholeTens;
impl EagerQuery for WholeTens {
    const NAME: &'static str = "whole_tens";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &EagerCtx<'_>, key: &u32) -> u32 {
        ctx.read::<Number>(key).map_or(0, |number| *number / 10)
    }
}

/// Depends on one number that all others of its family depend on too.
struct Dependent;
impl Query for Dependent {
    const NAME: &'static str = "dependent";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
        *ctx.get::<WholeTens>(&0) + key
    }
}

#[test]
fn change_marks_no_dependents_when_an_eager_query_keeps_its_value() {
    for dependents in [10, 5_000] {
        let engine = Engine::new();
        set(&engine, 0, 40);
        let roots = engine.watch_all::<Dependent>(0..dependents);
        let before = engine.stats();
        assert_eq!(set(&engine, 0, 41), 0);
        let after = engine.stats();
        assert_eq!((after.marks - before.marks, after.evaluations - before.evaluations), (1, 1));
        assert_eq!(after.validations, before.validations);
        assert_eq!(set(&engine, 0, 50), roots.len());
        assert_eq!(engine.stats().marks - after.marks, 1 + u64::from(dependents));
    }
}

#[test]
fn eager_query_is_reported_when_it_is_watched() {
    let engine = Engine::new();
    let root = engine.watch::<WholeTens>(3);
    let mut batch = Batch::new();
    batch.set::<Number>(3, 30);
    assert_eq!(engine.apply(batch).changed, [root.id()]);
    assert_eq!(*root.value().unwrap(), 3);
    assert_eq!(set(&engine, 3, 31), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40 * ProptestConfig::default().cases))]

    /// A query runs if and only if it is needed and new, or needed and something it read has changed. An eager query that a
    /// lazy memo read before the change counts as needed, even if nothing reads it after.
    #[test]
    fn exactly_the_queries_that_must_run_do(
        start in any_start(),
        watched in prop::collection::btree_set(0..NAMES, 1..5),
        batches in prop::collection::vec(prop::collection::vec(any_change(), 1..4), 1..8),
    ) {
        let engine = Engine::with_options(Options { threads: 1, idle: 0 });
        let mut facts = ModelInputs::default();
        start.iter().for_each(|change| facts.change(change));
        engine.apply(batch(&start));
        let roots = AnyRoot::watch_all(&engine, &watched);
        let mut results = facts.results();
        for changes in &batches {
            let before = (facts.clone(), results, engine.stats());
            changes.iter().for_each(|change| facts.change(change));
            results = facts.results();
            engine.apply(batch(changes));
            // The members of a cycle are looked at again when anything any of them read changes.
            if before.1.has_cycle() || results.has_cycle() {
                continue;
            }
            let known = before.1.closure(watched.iter().copied());
            let read_lazily = known.iter().filter(|name| !is_eager(**name)).flat_map(|name| before.1.queries_read(*name));
            let eager = read_lazily.filter(|name| is_eager(*name));
            let needed = results.closure(watched.iter().copied().chain(eager));
            let touched = |name: &u8| {
                before.1.reads[name].iter().any(|fact| !facts.agree(&results, &before.0, &before.1, *fact))
            };
            let expected: BTreeSet<u8> =
                needed.into_iter().filter(|name| !known.contains(name) || touched(name)).collect();
            prop_assert_eq!(engine.stats().evaluations - before.2.evaluations, expected.len() as u64);
        }
        drop(roots);
    }
}
