//! The functions expressions may call: those of the language and those Kubernetes adds.

mod convert;
mod lists;
mod net;
mod operators;
mod optional;
mod quantity;
mod regex;
mod strings;
mod time;
mod urls;

use std::ops::RangeInclusive;

use super::error::{EvalError, Result};
use super::meter::Meter;
use super::value::Value;

pub(super) use convert::{text_of, type_named};

/// A function that expressions may call.
#[derive(Debug)]
pub(super) struct Builtin {
    name: &'static str,
    style: Style,
    /// How many arguments it takes, the target of a method counted.
    arity: RangeInclusive<usize>,
    cost: Cost,
    run: Function,
}

type Function = for<'a> fn(&mut Meter, Vec<Value<'a>>) -> Result<Value<'a>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Global,
    Method,
}

/// What a call costs.
#[derive(Clone, Copy, Debug)]
enum Cost {
    /// One unit.
    One,
    /// The cost of reading the first argument.
    Read,
    /// The cost of reading the first argument and writing as much again.
    ReadAndWrite,
    /// One unit for each item of the first argument.
    Items,
    /// A unit for looking at each of two values, as far as the shorter goes.
    Compare,
    /// The cost of searching the first argument for the second.
    Search,
    /// The cost of matching the first argument against the pattern in the second.
    Regex,
    /// What the function itself charges.
    Own,
}

const fn global(name: &'static str, arity: RangeInclusive<usize>, cost: Cost, run: Function) -> Builtin {
    Builtin { name, style: Style::Global, arity, cost, run }
}

const fn method(name: &'static str, arity: RangeInclusive<usize>, cost: Cost, run: Function) -> Builtin {
    Builtin { name, style: Style::Method, arity, cost, run }
}

const LIBRARIES: [&[Builtin]; 10] = [
    operators::BUILTINS,
    convert::BUILTINS,
    strings::BUILTINS,
    regex::BUILTINS,
    lists::BUILTINS,
    time::BUILTINS,
    optional::BUILTINS,
    urls::BUILTINS,
    net::BUILTINS,
    quantity::BUILTINS,
];

/// The function of this name that takes so many arguments.
pub(super) fn find_global(name: &str, arguments: usize) -> Option<&'static Builtin> {
    find(name, Style::Global, arguments)
}

/// The method of this name that takes so many arguments besides its target.
pub(super) fn find_method(name: &str, arguments: usize) -> Option<&'static Builtin> {
    find(name, Style::Method, arguments + 1)
}

fn find(name: &str, style: Style, arguments: usize) -> Option<&'static Builtin> {
    let builtins = LIBRARIES.iter().flat_map(|library| library.iter());
    builtins
        .into_iter()
        .find(|builtin| builtin.name == name && builtin.style == style && builtin.arity.contains(&arguments))
}

impl Builtin {
    /// Whether its second argument is a regular expression.
    pub(super) fn takes_pattern(&self) -> bool {
        regex::NAMES.contains(&self.name)
    }

    /// Calls the function, once it is paid for.
    pub(super) fn call<'a>(&self, meter: &mut Meter, arguments: Vec<Value<'a>>) -> Result<Value<'a>> {
        let size = |index: usize| arguments.get(index).map_or(1, Value::size);
        match self.cost {
            Cost::One => meter.charge(1)?,
            Cost::Read => meter.charge_text(size(0))?,
            Cost::ReadAndWrite => meter.charge_text(size(0).saturating_mul(2))?,
            Cost::Items => meter.charge(size(0) as u64)?,
            Cost::Compare => meter.charge_text(size(0).min(size(1)))?,
            Cost::Search => meter.charge_search(size(0), size(1))?,
            Cost::Regex => meter.charge_regex(size(0), size(1))?,
            Cost::Own => {}
        }
        (self.run)(meter, arguments)
    }
}

/// The error of every function that is given something else than it takes.
fn no_overload<T>() -> Result<T> {
    Err(EvalError::NoSuchOverload)
}
