//! Memory follows what is set and watched: eviction and sweeping.

use super::check::check;
use crate::graph::Totals;
use crate::{Batch, Ctx, Engine, Input, Options, Query};

struct Word;
impl Input for Word {
    const NAME: &'static str = "word";
    type Key = u32;
    type Value = String;
    type Index = char;
    fn index(_: &u32, word: &String) -> Vec<char> {
        word.chars().collect()
    }
}

/// The word of a key, if it is set.
struct Text;
impl Query for Text {
    const NAME: &'static str = "text";
    type Key = u32;
    type Value = Option<String>;
    fn run(ctx: &Ctx<'_>, key: &u32) -> Option<String> {
        ctx.read::<Word>(key).map(|word| word.as_ref().clone())
    }
}

/// The texts of two neighbouring keys, and the number of words with an `a`.
struct Pair;
impl Query for Pair {
    const NAME: &'static str = "pair";
    type Key = u32;
    type Value = (Option<String>, Option<String>, usize);
    fn run(ctx: &Ctx<'_>, key: &u32) -> Self::Value {
        let (one, two) = (ctx.get::<Text>(key), ctx.get::<Text>(&(key + 1)));
        ((*one).clone(), (*two).clone(), ctx.members::<Word>(&'a').len())
    }
}

fn set(engine: &Engine, key: u32, word: Option<&str>) {
    let mut batch = Batch::new();
    match word {
        Some(word) => batch.set::<Word>(key, word.to_owned()),
        None => batch.remove::<Word>(&key),
    };
    engine.apply(batch);
}

fn assert_empty(engine: &Engine) {
    check(engine);
    assert_eq!(engine.core.current().graph.totals, Totals::default());
    let mut nodes = 0;
    engine.core.current().graph.nodes.for_each(|_| nodes += 1);
    assert_eq!(nodes, 0);
    assert_eq!(engine.core.interner.len(), 0);
}

#[test]
fn nothing_is_left_when_everything_is_removed_and_unwatched() {
    let engine = Engine::with_options(Options { idle: 0, ..Options::default() });
    (0..100).for_each(|key| set(&engine, key, Some("abc")));
    let roots = engine.watch_all::<Pair>(50..150);
    check(&engine);
    (0..100).for_each(|key| set(&engine, key, None));
    check(&engine);
    assert_eq!(engine.stats().inputs, 0);
    drop(roots);
    assert_empty(&engine);
}

#[test]
fn memory_is_bounded_when_inputs_and_roots_come_and_go() {
    let engine = Engine::with_options(Options { idle: 10, ..Options::default() });
    let mut peak = 0;
    for round in 0..2_000u32 {
        set(&engine, round, Some(if round % 2 == 0 { "a" } else { "b" }));
        let root = engine.watch::<Pair>(round);
        let _ = engine.get::<Pair>(&(round + 7));
        drop(root);
        set(&engine, round, None);
        peak = peak.max(engine.stats().memos);
        assert!(engine.core.interner.len() < 200, "{} keys", engine.core.interner.len());
    }
    assert!(peak <= 10 * 3, "{peak} memos");
    check(&engine);
}

#[test]
fn memory_is_bounded_when_many_queries_are_asked_for_once() {
    let engine = Engine::with_options(Options { idle: 10, ..Options::default() });
    for key in 0..50_000 {
        let _ = engine.get::<Text>(&key);
    }
    assert!(engine.stats().memos <= 10);
    assert!(engine.core.interner.len() < 5_000, "{} keys", engine.core.interner.len());
    set(&engine, 1, Some("a"));
    set(&engine, 1, None);
    check(&engine);
    assert!(engine.core.interner.len() < 50, "{} keys", engine.core.interner.len());
}

#[test]
fn idle_result_is_reused_until_something_it_read_changes() {
    let engine = Engine::new();
    drop(engine.watch::<Pair>(1));
    set(&engine, 7, Some("x"));
    let before = engine.stats().evaluations;
    drop(engine.watch::<Pair>(1));
    assert_eq!(engine.stats().evaluations, before);
    set(&engine, 1, Some("x"));
    assert_eq!(engine.stats().evaluations, before, "a dirty idle memo is dropped, not evaluated");
    drop(engine.watch::<Pair>(1));
    assert_eq!(engine.stats().evaluations, before + 3, "it was dropped with what only it held");
}

#[test]
fn result_can_be_watched_and_explained_when_a_memo_it_read_was_evicted() {
    let engine = Engine::with_options(Options { idle: 0, ..Options::default() });
    set(&engine, 1, Some("x"));
    let text = engine.watch::<Text>(1);
    set(&engine, 7, Some("y"));
    let pair = engine.get::<Pair>(&1).unwrap();
    drop(text);
    engine.core.try_clean_up();
    let words =
        engine.provenance::<Pair>(&1).into_iter().filter_map(|read| read.subject.input::<Word>().copied());
    assert_eq!(words.collect::<Vec<_>>(), [1, 2]);
    assert_eq!(engine.watch::<Pair>(1).value().unwrap(), pair);
    check(&engine);
}

#[test]
fn unwatched_fork_evaluates_only_what_is_asked_of_it() {
    let engine = Engine::new();
    (0..20).for_each(|key| set(&engine, key, Some("abc")));
    let roots = engine.watch_all::<Pair>(0..20);
    let before = roots[4].value().unwrap();
    let fork = engine.fork_unwatched();
    let evaluated = fork.stats().evaluations;
    (0..20).for_each(|key| set(&fork, key, Some("xyz")));
    assert_eq!(fork.stats().evaluations, evaluated);
    assert_ne!(fork.get::<Pair>(&4).unwrap(), before);
    assert_eq!(roots[4].value().unwrap(), before, "the fork does not affect its origin");
    check(&fork);
}

#[test]
fn forks_give_back_what_only_they_used() {
    let engine = Engine::with_options(Options { idle: 0, ..Options::default() });
    (0..200).for_each(|key| set(&engine, key, Some("abc")));
    let roots = engine.watch_all::<Pair>(0..200);
    let before = (engine.core.interner.len(), engine.stats().bytes);
    for round in 0..5 {
        let fork = engine.fork();
        (0..50).for_each(|key| set(&fork, 10_000 + round * 100 + key, Some("xyz")));
        (0..10).for_each(|key| set(&fork, key, None));
        let own = fork.watch_all::<Pair>(10_000..10_100);
        check(&fork);
        drop(own);
    }
    assert_eq!((engine.core.interner.len(), engine.stats().bytes), before);
    check(&engine);
    drop(roots);
    (0..200).for_each(|key| set(&engine, key, None));
    assert_empty(&engine);
}
