//! The functions of the template language itself.

mod compare;
mod escape;
mod index;

use crate::error::CallError;
use crate::gofmt;
use crate::limits::Budget;
use crate::value::{Function, FunctionBody, Functions, Slot, Str, Type, Value, Variadic};

impl Functions {
    /// Only what the template language itself has: `and`, `or`, `not`, `eq` and its relatives, `index`, `slice`, `len`,
    /// `print`, `printf`, `println`, `html`, `js`, `urlquery`, `call`.
    pub fn builtin() -> Self {
        let mut functions = Self::default();
        add_to(&mut functions);
        functions
    }
}

/// Adds all of them.
fn add_to(functions: &mut Functions) {
    for (name, stops_at) in [("and", false), ("or", true)] {
        let body = FunctionBody::ShortCircuit { stops_at };
        functions.insert(name, Function { params: vec![Type::Reflect, Type::Reflect], variadic: true, body });
    }
    let body = FunctionBody::Call;
    functions.insert("call", Function { params: vec![Type::Reflect, Type::Reflect], variadic: true, body });
    let slots: [(&str, usize, bool, SlotFunction); 10] = [
        ("not", 1, false, not),
        ("len", 1, false, index::len),
        ("index", 2, true, index::index),
        ("slice", 2, true, index::slice),
        ("eq", 2, true, compare::eq),
        ("ne", 2, false, compare::ne),
        ("lt", 2, false, compare::lt),
        ("le", 2, false, compare::le),
        ("gt", 2, false, compare::gt),
        ("ge", 2, false, compare::ge),
    ];
    for (name, params, variadic, body) in slots {
        let params = vec![Type::Reflect; params];
        functions.insert(name, Function { params, variadic, body: FunctionBody::Slots(body) });
    }
    functions
        .add("print", |budget: &Budget, values: Variadic<Value>| gofmt::sprint(budget, &values.0))
        .add("println", |budget: &Budget, values: Variadic<Value>| gofmt::sprintln(budget, &values.0))
        .add("printf", |budget: &Budget, format: Str, values: Variadic<Value>| {
            gofmt::sprintf(budget, format.as_bytes(), &values.0)
        })
        .add("html", |budget: &Budget, values: Variadic<Value>| {
            printed(budget, &values.0).map(|text| escape::html(&text))
        })
        .add("js", |budget: &Budget, values: Variadic<Value>| {
            printed(budget, &values.0).map(|text| escape::js(&text))
        })
        .add("urlquery", |budget: &Budget, values: Variadic<Value>| {
            printed(budget, &values.0).map(|text| escape::url_query(&text))
        });
}

type SlotFunction = fn(&Budget, &[Slot]) -> Result<Slot, CallError>;

fn typed(value: impl Into<Value>) -> Result<Slot, CallError> {
    Ok(Slot::Typed(value.into()))
}

/// The argument at a place; the evaluator has counted them.
fn arg(slots: &[Slot], at: usize) -> &Slot {
    slots.get(at).unwrap_or(&Slot::Invalid)
}

fn not(_: &Budget, slots: &[Slot]) -> Result<Slot, CallError> {
    typed(!arg(slots, 0).value().truth())
}

/// The arguments of an escaper as `{{ . }}` would print them.
fn printed(budget: &Budget, values: &[Value]) -> Result<Vec<u8>, CallError> {
    let values: Vec<Value> = values
        .iter()
        .map(|value| if value.is_nil() { Value::string("<no value>") } else { value.clone() })
        .collect();
    Ok(gofmt::sprint(budget, &values)?)
}
