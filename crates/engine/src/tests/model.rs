//! A model of the engine: queries whose behaviour is data, and an evaluator for them that keeps no memos.
//!
//! Programs are inputs, so a random batch changes what a query reads as well as what it finds. Queries of both layers run
//! programs; those of the eager layer can reach each other only.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::resume_unwind;

use proptest::prelude::*;

use crate::{Batch, Ctx, EagerCtx, EagerQuery, Engine, Input, Query, QueryError, Root, RootId, Snapshot};

/// Queries and cells are named by small numbers, so that random programs meet. There are this many of each.
pub(super) const NAMES: u8 = 12;
/// Queries with this name or a greater one are eager.
pub(super) const FIRST_EAGER: u8 = 8;

/// Whether the query of a name is eager.
pub(super) fn is_eager(name: u8) -> bool {
    name >= FIRST_EAGER
}

/// The queries that one may read which is eager or not.
fn readable(by_eager: bool) -> Range<u8> {
    if by_eager { FIRST_EAGER..NAMES } else { 0..NAMES }
}

/// A number.
pub(super) struct Cell;
impl Input for Cell {
    const NAME: &'static str = "cell";
    type Key = u8;
    type Value = i64;
    type Index = bool;
    /// Positive cells are in the bucket of their parity, multiples of three in both.
    fn index(_: &u8, value: &i64) -> Vec<bool> {
        match value {
            0.. if value % 3 == 0 => vec![true, false, true],
            0.. => vec![value % 2 == 0],
            _ => vec![],
        }
    }
}

/// What a query does.
pub(super) struct Program;
impl Input for Program {
    const NAME: &'static str = "program";
    type Key = u8;
    type Value = Vec<Op>;
    type Index = ();
}

/// A step on a running sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Read(u8),
    SumOf(bool),
    NamesOf(bool),
    Count,
    Get(u8),
    /// Of so many queries, from this one on.
    GetAll(u8, u8),
    TryGet(u8),
    GetBySum,
    SkipIfOdd,
    Parity,
    FailIfThree,
}

/// Runs its program on demand.
pub(super) struct Run;
impl Query for Run {
    const NAME: &'static str = "run";
    type Key = u8;
    type Value = i64;
    fn run(ctx: &Ctx<'_>, name: &u8) -> i64 {
        let program = ctx.read::<Program>(name);
        let program = program.as_deref().map(Vec::as_slice).unwrap_or_default();
        interpret(program, ctx).unwrap_or_else(|_| unreachable!("a context stops by unwinding"))
    }
}

/// Runs its program as part of the eager layer.
pub(super) struct EagerRun;
impl EagerQuery for EagerRun {
    const NAME: &'static str = "eager_run";
    type Key = u8;
    type Value = i64;
    fn run(ctx: &EagerCtx<'_>, name: &u8) -> i64 {
        let program = ctx.read::<Program>(name);
        let program = program.as_deref().map(Vec::as_slice).unwrap_or_default();
        interpret(program, ctx).unwrap_or_else(|_| unreachable!("a context stops by unwinding"))
    }
}

/// `name(key)` as errors show the query of a name.
fn shown(name: u8) -> String {
    format!("{}({name})", family(name))
}

fn family(name: u8) -> &'static str {
    if is_eager(name) { <EagerRun as Query>::NAME } else { Run::NAME }
}

/// The result of the query of a name.
pub(super) fn get(snapshot: &Snapshot, name: u8) -> Result<i64, QueryError> {
    match is_eager(name) {
        true => snapshot.get::<EagerRun>(&name),
        false => snapshot.get::<Run>(&name),
    }
    .map(|value| *value)
}

/// A watched query of either layer.
pub(super) enum AnyRoot {
    Lazy(Root<Run>),
    Eager(Root<EagerRun>),
}

impl AnyRoot {
    pub(super) fn watch(engine: &Engine, name: u8) -> Self {
        match is_eager(name) {
            true => Self::Eager(engine.watch::<EagerRun>(name)),
            false => Self::Lazy(engine.watch::<Run>(name)),
        }
    }

    /// Watches the queries of some names, those of a layer at once.
    pub(super) fn watch_all(engine: &Engine, names: &BTreeSet<u8>) -> Vec<(u8, Self)> {
        let (eager, lazy): (Vec<u8>, Vec<u8>) = names.iter().partition(|name| is_eager(**name));
        let lazy_roots = engine.watch_all::<Run>(lazy.iter().copied()).into_iter().map(Self::Lazy);
        let eager_roots = engine.watch_all::<EagerRun>(eager.iter().copied()).into_iter().map(Self::Eager);
        lazy.iter().copied().zip(lazy_roots).chain(eager.iter().copied().zip(eager_roots)).collect()
    }

    pub(super) fn id(&self) -> RootId {
        match self {
            Self::Lazy(root) => root.id(),
            Self::Eager(root) => root.id(),
        }
    }

    pub(super) fn value(&self) -> Result<i64, QueryError> {
        match self {
            Self::Lazy(root) => root.value(),
            Self::Eager(root) => root.value(),
        }
        .map(|value| *value)
    }
}

/// Ends a program that cannot go on.
pub(super) struct Stop(QueryError);

trait Env {
    /// Whether the running query is eager.
    fn is_eager(&self) -> bool;
    fn cell(&self, name: u8) -> Option<i64>;
    fn members(&self, bucket: bool) -> Vec<u8>;
    fn count(&self) -> usize;
    fn get(&self, query: u8) -> Result<i64, Stop>;
    fn get_all(&self, queries: &[u8]) -> Result<Vec<i64>, Stop> {
        queries.iter().map(|query| self.get(*query)).collect()
    }
    fn try_get(&self, query: u8) -> Result<Option<i64>, Stop>;
    fn fail(&self) -> Stop;
}

fn interpret(program: &[Op], env: &impl Env) -> Result<i64, Stop> {
    let mut sum: i64 = 0;
    let readable = readable(env.is_eager());
    // The query that a number stands for, of those that the running one may read.
    let query = |number: i64| readable.start + number.rem_euclid(readable.len() as i64) as u8;
    let mut ops = program.iter();
    while let Some(op) = ops.next() {
        match op {
            Op::Read(cell) => sum += env.cell(*cell).unwrap_or(7),
            Op::SumOf(bucket) => {
                sum += env.members(*bucket).into_iter().filter_map(|cell| env.cell(cell)).sum::<i64>();
            }
            Op::NamesOf(bucket) => sum += env.members(*bucket).into_iter().map(i64::from).sum::<i64>(),
            Op::Count => sum += env.count() as i64,
            Op::Get(number) => sum += env.get(query((*number).into()))?,
            Op::GetAll(first, count) => {
                let queries: Vec<u8> = (0..*count).map(|step| query((first + step).into())).collect();
                sum += env.get_all(&queries)?.into_iter().sum::<i64>();
            }
            Op::TryGet(number) => sum += env.try_get(query((*number).into()))?.unwrap_or(100),
            Op::GetBySum => sum += env.get(query(sum))?,
            Op::SkipIfOdd if sum % 2 != 0 => {
                ops.next();
            }
            Op::SkipIfOdd => {}
            Op::Parity => sum %= 2,
            Op::FailIfThree if sum.rem_euclid(5) == 3 => return Err(env.fail()),
            Op::FailIfThree => {}
        }
        // Programs can double a sum in every step.
        sum %= 1000;
    }
    Ok(sum)
}

impl Env for Ctx<'_> {
    fn is_eager(&self) -> bool {
        false
    }
    fn cell(&self, name: u8) -> Option<i64> {
        self.read::<Cell>(&name).map(|value| *value)
    }
    fn members(&self, bucket: bool) -> Vec<u8> {
        EagerCtx::members::<Cell>(self, &bucket).to_vec()
    }
    fn count(&self) -> usize {
        self.keys::<Cell>().len()
    }
    fn get(&self, query: u8) -> Result<i64, Stop> {
        Ok(match is_eager(query) {
            true => *Ctx::get::<EagerRun>(self, &query),
            false => *Ctx::get::<Run>(self, &query),
        })
    }
    fn get_all(&self, queries: &[u8]) -> Result<Vec<i64>, Stop> {
        let mut values = Vec::new();
        for same_layer in queries.chunk_by(|one, other| is_eager(*one) == is_eager(*other)) {
            values.extend(match is_eager(same_layer[0]) {
                true => Ctx::get_all::<EagerRun>(self, same_layer),
                false => Ctx::get_all::<Run>(self, same_layer),
            });
        }
        Ok(values.into_iter().map(|value| *value).collect())
    }
    fn try_get(&self, query: u8) -> Result<Option<i64>, Stop> {
        let value = match is_eager(query) {
            true => Ctx::try_get::<EagerRun>(self, &query),
            false => Ctx::try_get::<Run>(self, &query),
        };
        Ok(value.ok().map(|value| *value))
    }
    fn fail(&self) -> Stop {
        // Like a panic, but without a message on the terminal.
        resume_unwind(Box::new("three"))
    }
}

impl Env for EagerCtx<'_> {
    fn is_eager(&self) -> bool {
        true
    }
    fn cell(&self, name: u8) -> Option<i64> {
        self.read::<Cell>(&name).map(|value| *value)
    }
    fn members(&self, bucket: bool) -> Vec<u8> {
        EagerCtx::members::<Cell>(self, &bucket).to_vec()
    }
    fn count(&self) -> usize {
        self.keys::<Cell>().len()
    }
    fn get(&self, query: u8) -> Result<i64, Stop> {
        Ok(*EagerCtx::get::<EagerRun>(self, &query))
    }
    fn get_all(&self, queries: &[u8]) -> Result<Vec<i64>, Stop> {
        Ok(EagerCtx::get_all::<EagerRun>(self, queries).into_iter().map(|value| *value).collect())
    }
    fn try_get(&self, query: u8) -> Result<Option<i64>, Stop> {
        Ok(EagerCtx::try_get::<EagerRun>(self, &query).ok().map(|value| *value))
    }
    fn fail(&self) -> Stop {
        resume_unwind(Box::new("three"))
    }
}

/// A change to one input.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Cell(u8, Option<i64>),
    Program(u8, Option<Vec<Op>>),
}

/// The inputs of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelInputs {
    pub(super) cells: BTreeMap<u8, i64>,
    pub(super) programs: BTreeMap<u8, Vec<Op>>,
}

/// The results of all queries and, for each, what it read.
pub(super) struct ModelResults {
    pub(super) values: BTreeMap<u8, Result<i64, QueryError>>,
    pub(super) reads: BTreeMap<u8, BTreeSet<Fact>>,
}

/// Something a query can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
    Cell(u8),
    Program(u8),
    Bucket(bool),
    Keys,
    Query(u8),
}

impl ModelInputs {
    pub(super) fn change(&mut self, change: &Change) {
        match change {
            Change::Cell(name, Some(value)) => drop(self.cells.insert(*name, *value)),
            Change::Cell(name, None) => drop(self.cells.remove(name)),
            Change::Program(name, Some(program)) => drop(self.programs.insert(*name, program.clone())),
            Change::Program(name, None) => drop(self.programs.remove(name)),
        }
    }

    pub(super) fn members(&self, bucket: bool) -> Vec<u8> {
        let inside = |name: &u8, value: &i64| Cell::index(name, value).contains(&bucket);
        self.cells.iter().filter(|(name, value)| inside(name, value)).map(|(name, _)| *name).collect()
    }

    /// Evaluates every query.
    pub(super) fn results(&self) -> ModelResults {
        let plain = Plain {
            facts: self,
            values: RefCell::default(),
            reads: RefCell::default(),
            stack: RefCell::default(),
        };
        for name in 0..NAMES {
            let _ = plain.value(name);
        }
        ModelResults { values: plain.values.into_inner(), reads: plain.reads.into_inner() }
    }

    /// Whether two sets of inputs give the same answer to a read.
    pub(super) fn agree(
        &self,
        results: &ModelResults,
        other: &Self,
        others: &ModelResults,
        fact: Fact,
    ) -> bool {
        match fact {
            Fact::Cell(name) => self.cells.get(&name) == other.cells.get(&name),
            Fact::Program(name) => self.programs.get(&name) == other.programs.get(&name),
            Fact::Bucket(bucket) => self.members(bucket) == other.members(bucket),
            Fact::Keys => self.cells.keys().eq(other.cells.keys()),
            Fact::Query(name) => results.values[&name] == others.values[&name],
        }
    }
}

impl ModelResults {
    /// The queries that some queries depend on, themselves included.
    pub(super) fn closure(&self, queries: impl IntoIterator<Item = u8>) -> BTreeSet<u8> {
        let mut closure = BTreeSet::new();
        let mut open: Vec<u8> = queries.into_iter().collect();
        while let Some(name) = open.pop() {
            if closure.insert(name) {
                open.extend(self.queries_read(name));
            }
        }
        closure
    }

    /// The queries that a query read.
    pub(super) fn queries_read(&self, name: u8) -> impl Iterator<Item = u8> {
        self.reads[&name].iter().filter_map(|fact| match fact {
            Fact::Query(query) => Some(*query),
            _ => None,
        })
    }

    pub(super) fn has_cycle(&self) -> bool {
        self.values.values().any(|value| matches!(value, Err(QueryError::Cycle { .. })))
    }
}

struct Plain<'a> {
    facts: &'a ModelInputs,
    values: RefCell<BTreeMap<u8, Result<i64, QueryError>>>,
    reads: RefCell<BTreeMap<u8, BTreeSet<Fact>>>,
    stack: RefCell<Vec<u8>>,
}

impl Plain<'_> {
    fn value(&self, name: u8) -> Result<i64, QueryError> {
        if let Some(value) = self.values.borrow().get(&name) {
            return value.clone();
        }
        if let Some(at) = self.stack.borrow().iter().position(|running| *running == name) {
            let mut path: Vec<String> = self.stack.borrow()[at..].iter().map(|name| shown(*name)).collect();
            let first = (0..path.len()).min_by_key(|&at| &path[at]).unwrap();
            path.rotate_left(first);
            return Err(QueryError::Cycle { path });
        }
        self.stack.borrow_mut().push(name);
        self.read(Fact::Program(name));
        let program = self.facts.programs.get(&name).map(Vec::as_slice).unwrap_or_default();
        let value = interpret(program, self).map_err(|Stop(error)| error);
        self.stack.borrow_mut().pop();
        self.values.borrow_mut().insert(name, value.clone());
        value
    }

    fn current(&self) -> u8 {
        *self.stack.borrow().last().unwrap()
    }

    fn read(&self, fact: Fact) {
        self.reads.borrow_mut().entry(self.current()).or_default().insert(fact);
    }
}

impl Env for Plain<'_> {
    fn is_eager(&self) -> bool {
        is_eager(self.current())
    }
    fn cell(&self, name: u8) -> Option<i64> {
        self.read(Fact::Cell(name));
        self.facts.cells.get(&name).copied()
    }
    fn members(&self, bucket: bool) -> Vec<u8> {
        self.read(Fact::Bucket(bucket));
        self.facts.members(bucket)
    }
    fn count(&self) -> usize {
        self.read(Fact::Keys);
        self.facts.cells.len()
    }
    fn get(&self, query: u8) -> Result<i64, Stop> {
        self.read(Fact::Query(query));
        self.value(query).map_err(Stop)
    }
    fn try_get(&self, query: u8) -> Result<Option<i64>, Stop> {
        self.read(Fact::Query(query));
        match self.value(query) {
            Ok(value) => Ok(Some(value)),
            Err(error @ QueryError::Cycle { .. }) => {
                let QueryError::Cycle { path } = &error else { unreachable!() };
                if path.contains(&shown(self.current())) { Err(Stop(error)) } else { Ok(None) }
            }
            Err(_) => Ok(None),
        }
    }
    fn fail(&self) -> Stop {
        Stop(QueryError::Panicked {
            query: family(self.current()),
            key: self.current().to_string(),
            message: "three".to_owned(),
        })
    }
}

/// Makes the changes of a batch.
pub(super) fn batch(changes: &[Change]) -> Batch {
    let mut batch = Batch::new();
    for change in changes {
        match change.clone() {
            Change::Cell(name, Some(value)) => batch.set::<Cell>(name, value),
            Change::Cell(name, None) => batch.remove::<Cell>(&name),
            Change::Program(name, Some(program)) => batch.set::<Program>(name, program),
            Change::Program(name, None) => batch.remove::<Program>(&name),
        };
    }
    batch
}

pub(super) fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..NAMES).prop_map(Op::Read),
        1 => any::<bool>().prop_map(Op::SumOf),
        1 => any::<bool>().prop_map(Op::NamesOf),
        1 => Just(Op::Count),
        4 => (0..NAMES).prop_map(Op::Get),
        1 => (0..NAMES, 0..4u8).prop_map(|(first, count)| Op::GetAll(first, count)),
        2 => (0..NAMES).prop_map(Op::TryGet),
        1 => Just(Op::GetBySum),
        1 => Just(Op::SkipIfOdd),
        2 => Just(Op::Parity),
        1 => Just(Op::FailIfThree),
    ]
}

pub(super) fn any_change() -> impl Strategy<Value = Change> {
    let cell =
        (0..NAMES, prop::option::weighted(0.8, -2i64..8)).prop_map(|(name, value)| Change::Cell(name, value));
    let program = (0..NAMES, prop::option::weighted(0.9, prop::collection::vec(any_op(), 0..5)))
        .prop_map(|(name, program)| Change::Program(name, program));
    prop_oneof![3 => cell, 1 => program]
}

/// Programs that make most queries depend on others.
pub(super) fn any_start() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(prop::collection::vec(any_op(), 0..5), usize::from(NAMES)).prop_map(|programs| {
        (0..).zip(programs).map(|(name, program)| Change::Program(name, Some(program))).collect()
    })
}
