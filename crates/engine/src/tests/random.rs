//! Incremental results equal results from scratch, for random programs and histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::check::check;
use super::model::{
    AnyRoot, Cell, Change, ModelInputs, ModelResults, NAMES, any_change, any_start, batch, get,
};
use crate::{Engine, Options, QueryError, RootId};

/// One step in the life of an engine.
#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Change>),
    Watch(BTreeSet<u8>),
    Unwatch(u8),
    Get(u8),
    Fork(Vec<Change>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop::collection::vec(any_change(), 0..4).prop_map(Step::Apply),
        2 => prop::collection::btree_set(0..NAMES, 1..4).prop_map(Step::Watch),
        1 => (0..NAMES).prop_map(Step::Unwatch),
        1 => (0..NAMES).prop_map(Step::Get),
        1 => prop::collection::vec(any_change(), 1..4).prop_map(Step::Fork),
    ]
}

/// An engine, and the model of what it should give.
struct Pair {
    engine: Engine,
    facts: ModelInputs,
    results: ModelResults,
    roots: BTreeMap<u8, AnyRoot>,
}

impl Pair {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(changes) => self.apply(changes),
            Step::Watch(names) => self.roots.extend(AnyRoot::watch_all(&self.engine, names)),
            Step::Unwatch(name) => drop(self.roots.remove(name)),
            Step::Get(name) => assert_eq!(self.get(*name), self.results.values[name]),
            Step::Fork(changes) => self.fork(changes),
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        let before = self.results.values.clone();
        changes.iter().for_each(|change| self.facts.change(change));
        self.results = self.facts.results();
        let applied = self.engine.apply(batch(changes));
        assert_eq!(applied.changed, changed(&self.roots, &before, &self.results.values));
    }

    /// A fork sees its own changes, and only those.
    fn fork(&self, changes: &[Change]) {
        let fork = self.engine.fork();
        let mut facts = self.facts.clone();
        changes.iter().for_each(|change| facts.change(change));
        let results = facts.results();
        let applied = fork.apply(batch(changes));
        assert_eq!(applied.changed, changed(&self.roots, &self.results.values, &results.values));
        check(&fork);
        for (name, value) in &results.values {
            assert_eq!(get(&fork.snapshot(), *name), *value);
        }
        check(&fork);
    }

    fn verify(&self) {
        check(&self.engine);
        for (name, root) in &self.roots {
            assert_eq!(root.value(), self.results.values[name]);
        }
        for bucket in [true, false] {
            assert_eq!(*self.engine.members::<Cell>(&bucket), self.facts.members(bucket));
        }
    }

    fn get(&self, name: u8) -> Result<i64, QueryError> {
        get(&self.engine.snapshot(), name)
    }
}

type Values = BTreeMap<u8, Result<i64, QueryError>>;

fn changed(roots: &BTreeMap<u8, AnyRoot>, before: &Values, after: &Values) -> Vec<RootId> {
    let changed = roots.iter().filter(|(name, _)| before[name] != after[name]);
    let mut ids: Vec<RootId> = changed.map(|(_, root)| root.id()).collect();
    ids.sort_unstable();
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40 * ProptestConfig::default().cases))]

    #[test]
    fn results_and_changed_roots_equal_those_from_scratch(
        start in any_start(),
        steps in prop::collection::vec(any_step(), 1..25),
        idle in prop_oneof![Just(0usize), Just(2), Just(100)],
        threads in 1usize..3,
    ) {
        let engine = Engine::with_options(Options { threads, idle });
        let facts = ModelInputs::default();
        let mut pair = Pair { engine, results: facts.results(), facts, roots: BTreeMap::new() };
        pair.apply(&start);
        for step in &steps {
            pair.step(step);
            pair.verify();
        }
        for name in 0..NAMES {
            prop_assert_eq!(pair.get(name), pair.results.values[&name].clone());
        }
    }
}
