//! Queries whose behaviour is data, and a plain evaluator for them that knows nothing of memos.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;

use proptest::prelude::*;

use crate::{Batch, Ctx, Input, Query, QueryError};

/// Queries and cells are named by small numbers, so that random programs meet.
pub(super) const NAMES: u8 = 8;

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

/// Runs its program.
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

/// Ends a program that cannot go on.
pub(super) struct Stop(QueryError);

trait Env {
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
    let mut ops = program.iter();
    while let Some(op) = ops.next() {
        match op {
            Op::Read(cell) => sum += env.cell(*cell).unwrap_or(7),
            Op::SumOf(bucket) => {
                sum += env.members(*bucket).into_iter().filter_map(|cell| env.cell(cell)).sum::<i64>();
            }
            Op::NamesOf(bucket) => sum += env.members(*bucket).into_iter().map(i64::from).sum::<i64>(),
            Op::Count => sum += env.count() as i64,
            Op::Get(query) => sum += env.get(*query)?,
            Op::GetAll(first, count) => {
                let queries: Vec<u8> = (0..*count).map(|step| (first + step) % NAMES).collect();
                sum += env.get_all(&queries)?.into_iter().sum::<i64>();
            }
            Op::TryGet(query) => sum += env.try_get(*query)?.unwrap_or(100),
            Op::GetBySum => sum += env.get(sum.rem_euclid(NAMES.into()) as u8)?,
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
    fn cell(&self, name: u8) -> Option<i64> {
        self.read::<Cell>(&name).map(|value| *value)
    }
    fn members(&self, bucket: bool) -> Vec<u8> {
        Ctx::members::<Cell>(self, &bucket).to_vec()
    }
    fn count(&self) -> usize {
        self.keys::<Cell>().len()
    }
    fn get(&self, query: u8) -> Result<i64, Stop> {
        Ok(*Ctx::get::<Run>(self, &query))
    }
    fn get_all(&self, queries: &[u8]) -> Result<Vec<i64>, Stop> {
        Ok(Ctx::get_all::<Run>(self, queries).into_iter().map(|value| *value).collect())
    }
    fn try_get(&self, query: u8) -> Result<Option<i64>, Stop> {
        Ok(Ctx::try_get::<Run>(self, &query).ok().map(|value| *value))
    }
    fn fail(&self) -> Stop {
        // Like a panic, but without a message on the terminal.
        resume_unwind(Box::new("three"))
    }
}

/// A change to a random world.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Cell(u8, Option<i64>),
    Program(u8, Option<Vec<Op>>),
}

/// All inputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) cells: BTreeMap<u8, i64>,
    pub(super) programs: BTreeMap<u8, Vec<Op>>,
}

/// What the queries of a world come to and, for each, what it read.
pub(super) struct Results {
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

impl Facts {
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
    pub(super) fn results(&self) -> Results {
        let plain = Plain {
            facts: self,
            values: RefCell::default(),
            reads: RefCell::default(),
            stack: RefCell::default(),
        };
        for name in 0..NAMES {
            let _ = plain.value(name);
        }
        Results { values: plain.values.into_inner(), reads: plain.reads.into_inner() }
    }

    /// Whether two worlds give the same answer to a read.
    pub(super) fn agree(&self, results: &Results, other: &Self, others: &Results, fact: Fact) -> bool {
        match fact {
            Fact::Cell(name) => self.cells.get(&name) == other.cells.get(&name),
            Fact::Program(name) => self.programs.get(&name) == other.programs.get(&name),
            Fact::Bucket(bucket) => self.members(bucket) == other.members(bucket),
            Fact::Keys => self.cells.keys().eq(other.cells.keys()),
            Fact::Query(name) => results.values[&name] == others.values[&name],
        }
    }
}

impl Results {
    /// The queries some queries rest on, themselves included.
    pub(super) fn closure(&self, queries: impl IntoIterator<Item = u8>) -> BTreeSet<u8> {
        let mut closure = BTreeSet::new();
        let mut open: Vec<u8> = queries.into_iter().collect();
        while let Some(name) = open.pop() {
            if closure.insert(name) {
                open.extend(self.reads[&name].iter().filter_map(|fact| match fact {
                    Fact::Query(query) => Some(*query),
                    _ => None,
                }));
            }
        }
        closure
    }

    pub(super) fn has_cycle(&self) -> bool {
        self.values.values().any(|value| matches!(value, Err(QueryError::Cycle { .. })))
    }
}

struct Plain<'a> {
    facts: &'a Facts,
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
            let mut path: Vec<String> =
                self.stack.borrow()[at..].iter().map(|name| format!("run({name})")).collect();
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
                if path.contains(&format!("run({})", self.current())) { Err(Stop(error)) } else { Ok(None) }
            }
            Err(_) => Ok(None),
        }
    }
    fn fail(&self) -> Stop {
        Stop(QueryError::Panicked {
            query: "run",
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

/// Programs that make most queries rest on others.
pub(super) fn any_start() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(prop::collection::vec(any_op(), 0..5), usize::from(NAMES)).prop_map(|programs| {
        (0..).zip(programs).map(|(name, program)| Change::Program(name, Some(program))).collect()
    })
}
