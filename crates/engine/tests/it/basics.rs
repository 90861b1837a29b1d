//! What users of the engine rely on, one small example each.

use crate::cells::{Cell, Group, set};
use canopus_engine::{Batch, Ctx, Engine, Query, QueryError, ReadKind, SubjectKind};

/// The cell's value, or 0.
struct Echo;
impl Query for Echo {
    const NAME: &'static str = "echo";
    type Key = u32;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, key: &u32) -> i64 {
        ctx.read::<Cell>(key).map_or(0, |cell| cell.number)
    }
}

/// Whether the echoed number is even.
struct Even;
impl Query for Even {
    const NAME: &'static str = "even";
    type Key = u32;
    type Value = bool;
    fn run(ctx: &Ctx<'_>, key: &u32) -> bool {
        *ctx.get::<Echo>(key) % 2 == 0
    }
}

/// A text made from `Even`.
struct Label;
impl Query for Label {
    const NAME: &'static str = "label";
    type Key = u32;
    type Value = String;
    fn run(ctx: &Ctx<'_>, key: &u32) -> String {
        if *ctx.get::<Even>(key) { "even".to_owned() } else { "odd".to_owned() }
    }
}

/// Sum over a group.
struct Sum;
impl Query for Sum {
    const NAME: &'static str = "sum";
    type Key = Group;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, group: &Group) -> i64 {
        ctx.members::<Cell>(group).iter().map(|key| *ctx.get::<Echo>(key)).sum()
    }
}

/// Number of cells.
struct Count;
impl Query for Count {
    const NAME: &'static str = "count";
    type Key = ();
    type Value = usize;
    fn run(ctx: &Ctx<'_>, (): &()) -> usize {
        ctx.keys::<Cell>().len()
    }
}

/// Cell 0 names the cell to follow.
struct Follow;
impl Query for Follow {
    const NAME: &'static str = "follow";
    type Key = ();
    type Value = i64;
    fn run(ctx: &Ctx<'_>, (): &()) -> i64 {
        let to = *ctx.get::<Echo>(&0);
        *ctx.get::<Echo>(&(to as u32))
    }
}

/// Panics where the cell is negative.
struct Fragile;
impl Query for Fragile {
    const NAME: &'static str = "fragile";
    type Key = u32;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, key: &u32) -> i64 {
        let number = *ctx.get::<Echo>(key);
        assert!(number >= 0, "negative: {number}");
        number
    }
}

/// Needs `Fragile`.
struct NeedsFragile;
impl Query for NeedsFragile {
    const NAME: &'static str = "needs-fragile";
    type Key = u32;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, key: &u32) -> i64 {
        *ctx.get::<Fragile>(key) + 1
    }
}

/// Makes do without `Fragile`.
struct Tolerant;
impl Query for Tolerant {
    const NAME: &'static str = "tolerant";
    type Key = u32;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, key: &u32) -> i64 {
        ctx.try_get::<Fragile>(key).map_or(-1, |value| *value)
    }
}

/// Reads the link its cell names; links can form a cycle.
struct Link;
impl Query for Link {
    const NAME: &'static str = "link";
    type Key = u32;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, key: &u32) -> i64 {
        match ctx.read::<Cell>(key) {
            Some(cell) => ctx.try_get::<Link>(&(cell.number as u32)).map_or(-1, |depth| *depth + 1),
            None => 0,
        }
    }
}

#[test]
fn root_is_reported_when_its_input_changes() {
    let engine = Engine::new();
    let one = engine.watch::<Echo>(1);
    let two = engine.watch::<Echo>(2);
    assert_eq!(*one.value().unwrap(), 0);
    let applied = set(&engine, [(1, 5)]);
    assert_eq!(applied.changed, [one.id()]);
    assert_eq!(*one.value().unwrap(), 5);
    assert_eq!(*two.value().unwrap(), 0);
}

#[test]
fn nothing_happens_when_the_value_is_equal() {
    let engine = Engine::new();
    let _root = engine.watch::<Label>(1);
    let first = set(&engine, [(1, 5)]);
    let before = engine.stats();
    let second = set(&engine, [(1, 5)]);
    assert_eq!(second.revision, first.revision);
    assert_eq!(second.changed, []);
    assert_eq!(engine.stats().evaluations, before.evaluations);
}

#[test]
fn nothing_happens_when_a_batch_nets_to_nothing() {
    let engine = Engine::new();
    let _roots = [engine.watch::<Count>(())];
    let before = engine.stats();
    let mut batch = Batch::new();
    batch.set::<Cell>(1, 5.into()).remove::<Cell>(&1).remove::<Cell>(&2);
    let applied = engine.apply(batch);
    assert_eq!(applied.revision.number(), 0);
    assert_eq!(applied.changed, []);
    assert_eq!(engine.stats().evaluations, before.evaluations);
}

#[test]
fn change_stops_where_a_value_stays_equal() {
    let engine = Engine::new();
    let label = engine.watch::<Label>(1);
    set(&engine, [(1, 2)]);
    let before = engine.stats();
    assert_eq!(set(&engine, [(1, 4)]).changed, []);
    let after = engine.stats();
    assert_eq!(after.evaluations - before.evaluations, 2, "echo and even run, label does not");
    assert_eq!(after.validations - before.validations, 1, "label is checked");
    assert_eq!(set(&engine, [(1, 5)]).changed, [label.id()]);
}

#[test]
fn absence_is_a_read() {
    let engine = Engine::new();
    let root = engine.watch::<Echo>(9);
    assert_eq!(engine.provenance::<Echo>(&9)[0].kind, ReadKind::Absent);
    assert_eq!(set(&engine, [(9, 1)]).changed, [root.id()]);
    assert_eq!(engine.provenance::<Echo>(&9)[0].kind, ReadKind::Value);
    let mut batch = Batch::new();
    batch.remove::<Cell>(&9);
    assert_eq!(engine.apply(batch).changed, [root.id()]);
    assert_eq!(engine.stats().inputs, 0);
}

#[test]
fn membership_is_a_read_of_its_own() {
    let engine = Engine::new();
    let count = engine.watch::<Count>(());
    let odd = engine.watch::<Sum>(Group::Odd);
    let even = engine.watch::<Sum>(Group::Even);
    assert_eq!(set(&engine, [(1, 3), (2, 4)]).changed, [count.id(), odd.id(), even.id()]);
    assert_eq!(set(&engine, [(1, 5)]).changed, [odd.id()], "same bucket, other value");
    assert_eq!(set(&engine, [(1, 6)]).changed, [odd.id(), even.id()], "moved from one bucket to the other");
    assert_eq!((*odd.value().unwrap(), *even.value().unwrap()), (0, 10));
}

#[test]
fn members_are_sorted() {
    let engine = Engine::new();
    set(&engine, [(9, 1), (3, 1), (7, 1), (4, 2), (5, 1)]);
    assert_eq!(*engine.members::<Cell>(&Group::Odd), [3, 5, 7, 9]);
    set(&engine, [(6, 1), (7, 2)]);
    assert_eq!(*engine.members::<Cell>(&Group::Odd), [3, 5, 6, 9]);
    assert_eq!(*engine.keys::<Cell>(), [3, 4, 5, 6, 7, 9]);
}

#[test]
fn dependencies_follow_the_latest_run() {
    let engine = Engine::new();
    set(&engine, [(0, 1), (1, 10), (2, 20)]);
    let root = engine.watch::<Follow>(());
    assert_eq!(set(&engine, [(2, 21)]).changed, []);
    assert_eq!(set(&engine, [(0, 2)]).changed, [root.id()]);
    assert_eq!(*root.value().unwrap(), 21);
    assert_eq!(set(&engine, [(1, 11)]).changed, [], "no longer followed");
    assert_eq!(set(&engine, [(2, 22)]).changed, [root.id()]);
}

#[test]
fn panic_is_contained_and_cured_by_the_next_change() {
    let engine = Engine::new();
    set(&engine, [(1, -1)]);
    let root = engine.watch::<NeedsFragile>(1);
    let tolerant = engine.watch::<Tolerant>(1);
    let expected =
        QueryError::Panicked { query: "fragile", key: "1".to_owned(), message: "negative: -1".to_owned() };
    assert_eq!(root.value().unwrap_err(), expected);
    assert_eq!(engine.get::<Fragile>(&1).unwrap_err(), expected);
    assert_eq!(*tolerant.value().unwrap(), -1);
    assert_eq!(set(&engine, [(1, 1)]).changed, [root.id(), tolerant.id()]);
    assert_eq!(*root.value().unwrap(), 2);
    assert_eq!(set(&engine, [(1, -2)]).changed, [root.id(), tolerant.id()]);
    assert!(root.value().is_err());
}

#[test]
fn cycle_is_the_same_error_from_wherever_it_is_entered() {
    let entries: Vec<_> = (1..=4)
        .map(|entry| {
            let engine = Engine::new();
            // 4 -> 1 -> 2 -> 3 -> 1
            set(&engine, [(1, 2), (2, 3), (3, 1), (4, 1)]);
            let _ = engine.get::<Link>(&entry);
            (1..=4).map(|key| engine.get::<Link>(&key)).collect::<Vec<_>>()
        })
        .collect();
    let path = ["link(1)", "link(2)", "link(3)"].map(str::to_owned).to_vec();
    let cycle = Err(QueryError::Cycle { path });
    let outcome =
        |value: &Result<std::sync::Arc<i64>, QueryError>| value.as_ref().map(|v| **v).map_err(Clone::clone);
    for values in entries {
        assert_eq!(outcome(&values[0]), cycle);
        assert_eq!(outcome(&values[1]), cycle);
        assert_eq!(outcome(&values[2]), cycle);
        assert_eq!(outcome(&values[3]), Ok(-1), "outside the cycle its error can be handled");
    }
}

#[test]
fn cycle_is_cured_by_the_next_change() {
    let engine = Engine::new();
    set(&engine, [(1, 2), (2, 1)]);
    let root = engine.watch::<Link>(1);
    assert!(matches!(root.value(), Err(QueryError::Cycle { .. })));
    assert_eq!(set(&engine, [(2, 3)]).changed, [root.id()]);
    assert_eq!(*root.value().unwrap(), 2);
    assert_eq!(set(&engine, [(3, 1)]).changed, [root.id()]);
    assert!(matches!(root.value(), Err(QueryError::Cycle { .. })));
    assert_eq!(set(&engine, [(7, 1)]).changed, []);
}

#[test]
fn guards_of_one_query_share_a_root() {
    let engine = Engine::new();
    let first = engine.watch::<Echo>(1);
    let second = engine.watch::<Echo>(1);
    assert_eq!(first.id(), second.id());
    drop(first);
    assert_eq!(set(&engine, [(1, 1)]).changed, [second.id()]);
    drop(second);
    assert_eq!(set(&engine, [(1, 2)]).changed, []);
    assert_eq!(engine.stats().roots, 0);
}

#[test]
fn provenance_leads_down_to_inputs() {
    let engine = Engine::new();
    set(&engine, [(1, 3), (2, 4), (3, 5)]);
    let reads = engine.provenance::<Sum>(&Group::Odd);
    let shown: Vec<_> =
        reads.iter().map(|read| (read.subject.to_string(), read.kind, read.depth, read.via)).collect();
    let row = |text: &str, kind, depth, via| (text.to_owned(), kind, depth, via);
    assert_eq!(
        shown,
        [
            row("cell[Odd]", ReadKind::Members, 1, None),
            row("echo(1)", ReadKind::Query, 1, None),
            row("echo(3)", ReadKind::Query, 1, None),
            row("cell(1)", ReadKind::Value, 2, Some(1)),
            row("cell(3)", ReadKind::Value, 2, Some(2)),
        ]
    );
    assert_eq!(reads[0].subject.members::<Cell>(), Some(&Group::Odd));
    assert_eq!(reads[1].subject.query::<Echo>(), Some(&1));
    assert_eq!(reads[1].subject.query::<Even>(), None);
    assert_eq!(reads[3].subject.input::<Cell>(), Some(&1));
    assert_eq!(reads[3].subject.kind(), SubjectKind::Input);
}

#[test]
fn dependents_lead_up_to_roots() {
    let engine = Engine::new();
    set(&engine, [(1, 3), (3, 5)]);
    let sum = engine.watch::<Sum>(Group::Odd);
    let label = engine.watch::<Label>(1);
    let count = engine.watch::<Count>(());
    let mut shown: Vec<_> = engine
        .dependents::<Cell>(&1)
        .iter()
        .map(|found| (found.subject.to_string(), found.root, found.depth, found.value))
        .collect();
    shown.sort();
    let row = |text: &str, root, depth, value| (text.to_owned(), root, depth, value);
    assert_eq!(
        shown,
        [
            row("count(())", Some(count.id()), 1, false),
            row("echo(1)", None, 1, true),
            row("even(1)", None, 2, true),
            row("label(1)", Some(label.id()), 3, true),
            row("sum(Odd)", Some(sum.id()), 1, true),
        ]
    );
}

#[test]
fn fork_and_parent_do_not_see_each_other() {
    let engine = Engine::new();
    set(&engine, [(1, 1), (2, 2)]);
    let one = engine.watch::<Label>(1);
    let fork = engine.fork();
    assert_eq!(set(&fork, [(1, 2)]).changed, [one.id()], "roots keep their names in the fork");
    assert_eq!(*fork.get::<Label>(&1).unwrap(), "even");
    assert_eq!(*one.value().unwrap(), "odd");
    assert_eq!(*engine.get::<Count>(&()).unwrap(), 2);
    assert_eq!(set(&engine, [(3, 3)]).changed, []);
    assert_eq!(fork.read::<Cell>(&3), None);
    let second = fork.fork();
    drop(fork);
    assert_eq!(*second.get::<Label>(&1).unwrap(), "even");
    assert_eq!(second.revision().number(), 2);
}
