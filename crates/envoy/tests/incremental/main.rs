//! Worlds that change at random: what is kept up to date is what would be computed anew.
//!
//! The worlds are small, and everything in them refers to everything else: short names, subsets, delegates, selectors,
//! duplicate hosts and addresses, references to what is not there. After every batch the engine must have named exactly the
//! results that are no longer what they were, and every result must equal that of an engine that was given the same world at
//! once. A failure prints the smallest sequence of changes that shows it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audience;
mod change;
mod objects;
mod subject;

use std::env;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use change::{Change, World, changes};
use subject::{Proxies, Watched, engine};

/// Sequences of batches: together some ten thousand changes.
const SEQUENCES: u32 = 90;
const BATCHES: usize = 6;

/// How many changes a long run makes; more can be asked for in the environment.
const CHURN: usize = 3000;
const MORE_CHURN: &str = "CANOPUS_CHURN_CHANGES";

/// Single changes, as an idle mesh has them, and many at once, as a busy one has.
fn batch() -> impl Strategy<Value = Vec<Change>> {
    prop_oneof![changes(1..=2), changes(20..=60)]
}

fn config() -> Config {
    Config { cases: SEQUENCES, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn results_are_as_from_scratch_and_notices_are_exact(
        batches in proptest::collection::vec(batch(), BATCHES)
    ) {
        let mut world = World::default();
        let engine = engine();
        let proxies = Proxies::new();
        let mut watched = Watched::new(&engine, &proxies);
        for batch in &batches {
            let before = watched.values();
            let applied = engine.apply(world.change(batch));
            let differing = watched.differing(&before);
            prop_assert_eq!(&applied.changed, &differing, "after {:#?}", batch);
            watched.follow(&engine);
        }
        let scratch = subject::engine();
        scratch.apply(world.all());
        prop_assert_eq!(watched.unlike(&scratch), Vec::<String>::new());
        prop_assert_eq!(watched.overlong(), Vec::<String>::new());
    }
}

/// The changes of a long run, the same in every run.
fn long_run() -> impl Iterator<Item = Vec<Change>> {
    let mut runner = TestRunner::deterministic();
    let batches = batch();
    std::iter::from_fn(move || Some(batches.new_tree(&mut runner).unwrap().current()))
}

#[test]
fn memory_stays_that_of_the_world_however_much_it_changes() {
    #[expect(clippy::disallowed_methods, reason = "whoever starts the test may want a longer one")]
    let wanted = env::var(MORE_CHURN).ok().map_or(CHURN, |text| text.parse().unwrap());
    let mut world = World::default();
    let engine = engine();
    let proxies = Proxies::new();
    let mut watched = Watched::new(&engine, &proxies);
    let mut made = 0;
    for batch in long_run() {
        made += batch.len();
        engine.apply(world.change(&batch));
        watched.follow(&engine);
        if made >= wanted {
            break;
        }
    }
    let fresh = subject::engine();
    fresh.apply(world.all());
    assert_eq!(watched.unlike(&fresh), [""; 0]);
    let fresh_watched = Watched::new(&fresh, &proxies);
    let (kept, anew) = (engine.stats(), fresh.stats());
    assert_eq!((kept.inputs, kept.roots), (anew.inputs, anew.roots));
    assert!(kept.memos <= anew.memos + subject::IDLE, "{kept:?} but {anew:?}");
    drop((watched, fresh_watched));
    engine.apply(world.clear());
    let left = engine.stats();
    assert_eq!((left.inputs, left.roots), (0, 0));
    assert!(left.memos <= subject::IDLE, "{left:?}");
}
