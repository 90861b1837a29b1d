//! Queries, keys and values that panic or form cycles.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use canopus_engine::{Batch, Ctx, Engine, Input, Query, QueryError};

/// Like a panic, but without a message on the terminal.
fn fail(message: &'static str) -> ! {
    resume_unwind(Box::new(message))
}

/// Cannot be indexed where it is 13, nor compared where it is 14.
struct Odd;

#[derive(Debug)]
struct Number(u32);

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == 14 {
            fail("not comparable")
        }
        self.0 == other.0
    }
}

impl Input for Odd {
    const NAME: &'static str = "odd";
    type Key = u32;
    type Value = Number;
    type Index = u32;
    fn index(_: &u32, number: &Number) -> Vec<u32> {
        if number.0 == 13 {
            fail("unlucky")
        }
        vec![number.0]
    }
}

struct Show;
impl Query for Show {
    const NAME: &'static str = "show";
    type Key = u32;
    type Value = Number;
    fn run(ctx: &Ctx<'_>, key: &u32) -> Number {
        Number(ctx.read::<Odd>(key).map_or(0, |number| number.0))
    }
}

fn set(engine: &Engine, cells: &[(u32, u32)]) -> Vec<canopus_engine::RootId> {
    let mut batch = Batch::new();
    for (key, value) in cells {
        batch.set::<Odd>(*key, Number(*value));
    }
    engine.apply(batch).changed
}

#[test]
fn batch_that_panics_changes_nothing() {
    let engine = Engine::new();
    let roots = engine.watch_all::<Show>([1, 2]);
    set(&engine, &[(1, 1), (2, 2)]);
    assert!(catch_unwind(AssertUnwindSafe(|| set(&engine, &[(1, 5), (2, 13)]))).is_err());
    assert_eq!(engine.revision().number(), 1);
    assert_eq!((roots[0].value().unwrap().0, roots[1].value().unwrap().0), (1, 2));
    assert_eq!(*engine.members::<Odd>(&5), []);
    assert_eq!(set(&engine, &[(1, 5)]), [roots[0].id()]);
    assert_eq!(*engine.members::<Odd>(&5), [1]);
}

#[test]
fn value_that_cannot_be_compared_is_a_failed_query() {
    let engine = Engine::new();
    let root = engine.watch::<Show>(1);
    set(&engine, &[(1, 14)]);
    assert_eq!(root.value().unwrap().0, 14, "compared the other way round");
    let mut batch = Batch::new();
    batch.remove::<Odd>(&1);
    assert_eq!(engine.apply(batch).changed, [root.id()]);
    let message = "not comparable".to_owned();
    assert_eq!(
        root.value().unwrap_err(),
        QueryError::Panicked { query: "show", key: "1".to_owned(), message }
    );
}

/// A key that cannot be printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Shy;

impl std::fmt::Debug for Shy {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fail("shy")
    }
}

struct Secret;
impl Query for Secret {
    const NAME: &'static str = "secret";
    type Key = Shy;
    type Value = ();
    fn run(_: &Ctx<'_>, _: &Shy) {
        fail("told")
    }
}

struct SecretCycle;
impl Query for SecretCycle {
    const NAME: &'static str = "secret-cycle";
    type Key = Shy;
    type Value = ();
    fn run(ctx: &Ctx<'_>, key: &Shy) {
        ctx.get::<SecretCycle>(key);
    }
}

#[test]
fn error_is_reported_when_its_key_cannot_be_printed() {
    let engine = Engine::new();
    let (key, message) = ("?".to_owned(), "told".to_owned());
    assert_eq!(engine.get::<Secret>(&Shy), Err(QueryError::Panicked { query: "secret", key, message }));
    assert_eq!(engine.get::<SecretCycle>(&Shy), Err(QueryError::Cycle { path: vec!["?".to_owned()] }));
}

/// Two queries that need each other and pretend not to notice.
struct Deaf;
impl Query for Deaf {
    const NAME: &'static str = "deaf";
    type Key = u32;
    type Value = u32;
    fn run(ctx: &Ctx<'_>, key: &u32) -> u32 {
        catch_unwind(AssertUnwindSafe(|| *ctx.get::<Deaf>(&(1 - key)))).unwrap_or(7)
    }
}

#[test]
fn member_of_a_cycle_has_no_value_whatever_it_does() {
    for first in [0, 1] {
        let engine = Engine::new();
        let _ = engine.get::<Deaf>(&first);
        for key in [0, 1] {
            assert!(matches!(engine.get::<Deaf>(&key), Err(QueryError::Cycle { .. })));
        }
    }
}

/// A text whose fingerprint decides.
struct Print;
impl Query for Print {
    const NAME: &'static str = "print";
    type Key = u32;
    type Value = (u32, String);
    fn run(ctx: &Ctx<'_>, key: &u32) -> (u32, String) {
        let number = ctx.get::<Show>(key).0;
        (number / 10, format!("{number}"))
    }
    fn unchanged(old: &(u32, String), new: &(u32, String)) -> bool {
        old.0 == new.0
    }
}

#[test]
fn value_is_kept_when_its_fingerprint_is_the_same() {
    let engine = Engine::new();
    set(&engine, &[(1, 20)]);
    let root = engine.watch::<Print>(1);
    assert_eq!(set(&engine, &[(1, 21)]), []);
    assert_eq!(root.value().unwrap().1, "20");
    assert_eq!(set(&engine, &[(1, 30)]), [root.id()]);
    assert_eq!(root.value().unwrap().1, "30");
}

#[test]
fn snapshot_stays_as_it_was() {
    let engine = Engine::new();
    set(&engine, &[(1, 1), (2, 1)]);
    let before = engine.snapshot();
    set(&engine, &[(1, 2), (2, 1), (3, 1)]);
    assert_eq!(before.get::<Show>(&1).unwrap().0, 1);
    assert_eq!((before.read::<Odd>(&3), &*before.members::<Odd>(&1)), (None, &[1, 2][..]));
    assert_eq!((&*engine.members::<Odd>(&1), &*engine.keys::<Odd>()), (&[2, 3][..], &[1, 2, 3][..]));
    assert_eq!((before.revision().number(), engine.revision().number()), (1, 2));
}
