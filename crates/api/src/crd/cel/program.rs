//! An expression ready to be run: names resolved, functions found, depth bounded.

mod names;

use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{self, EntryExpr, LiteralValue, operators};

use super::functions::{self, Builtin};
use super::parse;
use super::value::{Text, Value};
use crate::crd::pattern::Pattern;

pub(super) use names::{escape, unescape};

/// The deepest expression that is run.
const MAX_DEPTH: usize = 96;
/// What macros call the value they build up; no expression can name it.
const ACCUMULATOR: &str = "@result";

/// An expression ready to be run.
#[derive(Debug)]
pub(in crate::crd) struct Program {
    pub(super) root: Expr,
    /// Which of the variables it was compiled for it looks at.
    uses: Vec<bool>,
}

impl Program {
    /// Compiles an expression over these variables; the error says what is wrong with it.
    pub(in crate::crd) fn compile(source: &str, variables: &[&str]) -> Result<Self, String> {
        parse::parse(source, |expression| {
            let mut lowering = Lowering {
                scope: variables
                    .iter()
                    .map(|name| Variable { name: (*name).to_owned(), taken: false })
                    .collect(),
                uses: vec![false; variables.len()],
                depth: 0,
            };
            let root = lowering.expression(expression)?;
            Ok(Self { root, uses: lowering.uses })
        })
    }

    /// Whether it looks at the variable in this place.
    pub(in crate::crd) fn uses(&self, variable: usize) -> bool {
        self.uses.get(variable).copied().unwrap_or_default()
    }
}

/// A part of an expression. Variables are the places they have on the stack.
#[derive(Debug)]
pub(super) enum Expr {
    Literal(Value<'static>),
    Variable(usize),
    /// The last look at a variable, which may be moved out.
    Take(usize),
    Select {
        operand: Box<Expr>,
        field: Box<str>,
        mode: Selection,
    },
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    If(Box<[Expr; 3]>),
    /// True unless it is false: also when it has no value.
    NotStrictlyFalse(Box<Expr>),
    Call {
        function: &'static Builtin,
        arguments: Box<[Expr]>,
    },
    List(Box<[Item]>),
    Map(Box<[(Expr, Item)]>),
    Fold(Box<Fold>),
}

/// How a field is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The field must exist.
    Plain,
    /// Whether it is there.
    Test,
    /// As an optional value: `a.?b`.
    Optional,
}

/// A member of a list or map in the making.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) value: Expr,
    /// Whether it is an optional value that is left out if it is none.
    pub(super) optional: bool,
}

/// What macros such as `all` become: a loop that builds up a value.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Expr,
    pub(super) start: Expr,
    pub(super) condition: Expr,
    pub(super) step: Expr,
    pub(super) result: Expr,
}

struct Lowering {
    scope: Vec<Variable>,
    uses: Vec<bool>,
    depth: usize,
}

struct Variable {
    name: String,
    /// Whether looking at it may move it out.
    taken: bool,
}

type Lowered<T> = Result<T, String>;

impl Lowering {
    fn expression(&mut self, expression: &IdedExpr) -> Lowered<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it nests too deeply".to_owned());
        }
        let lowered = match &expression.expr {
            ast::Expr::Unspecified => Err("there is no expression".to_owned()),
            ast::Expr::Literal(value) => Ok(Expr::Literal(literal(value))),
            ast::Expr::Ident(name) => self.identifier(name),
            ast::Expr::Select(select) => {
                let mode = if select.test { Selection::Test } else { Selection::Plain };
                self.select(&select.operand, &select.field, mode)
            }
            ast::Expr::Call(call) => self.call(call),
            ast::Expr::List(list) => self.list(list),
            ast::Expr::Map(map) => self.map(map),
            ast::Expr::Comprehension(comprehension) => self.fold(comprehension),
            ast::Expr::Struct(message) => Err(format!("undeclared reference to '{}'", message.type_name)),
        };
        self.depth -= 1;
        lowered
    }

    fn boxed(&mut self, expression: &IdedExpr) -> Lowered<Box<Expr>> {
        self.expression(expression).map(Box::new)
    }

    fn identifier(&mut self, name: &str) -> Lowered<Expr> {
        if let Some(place) = self.place(name) {
            if let Some(used) = self.uses.get_mut(place) {
                *used = true;
            }
            return Ok(if self.scope[place].taken { Expr::Take(place) } else { Expr::Variable(place) });
        }
        match functions::type_named(name) {
            Some(name) => Ok(Expr::Literal(Value::Type(name))),
            None => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.scope.iter().rposition(|variable| variable.name == name)
    }

    fn select(&mut self, operand: &IdedExpr, field: &str, mode: Selection) -> Lowered<Expr> {
        // A name with dots may be that of a type.
        if let (ast::Expr::Ident(package), Selection::Plain) = (&operand.expr, mode)
            && self.place(package).is_none()
            && let Some(name) = functions::type_named(&format!("{package}.{field}"))
        {
            return Ok(Expr::Literal(Value::Type(name)));
        }
        Ok(Expr::Select { operand: self.boxed(operand)?, field: field.into(), mode })
    }

    fn call(&mut self, call: &ast::CallExpr) -> Lowered<Expr> {
        if let (None, arguments) = (&call.target, call.args.as_slice()) {
            match (call.func_name.as_str(), arguments) {
                (operators::LOGICAL_AND, [a, b]) => {
                    return Ok(Expr::And(Box::new([self.expression(a)?, self.expression(b)?])));
                }
                (operators::LOGICAL_OR, [a, b]) => {
                    return Ok(Expr::Or(Box::new([self.expression(a)?, self.expression(b)?])));
                }
                (operators::CONDITIONAL, [a, b, c]) => {
                    let parts = [self.expression(a)?, self.expression(b)?, self.expression(c)?];
                    return Ok(Expr::If(Box::new(parts)));
                }
                (operators::NOT_STRICTLY_FALSE, [a]) => return Ok(Expr::NotStrictlyFalse(self.boxed(a)?)),
                (operators::OPT_SELECT, [operand, field]) => return self.optional_select(operand, field),
                _ => {}
            }
        }
        self.function(call)
    }

    fn optional_select(&mut self, operand: &IdedExpr, field: &IdedExpr) -> Lowered<Expr> {
        match &field.expr {
            ast::Expr::Literal(LiteralValue::String(field)) => {
                self.select(operand, field.inner(), Selection::Optional)
            }
            _ => Err("a field is selected by its name".to_owned()),
        }
    }

    fn function(&mut self, call: &ast::CallExpr) -> Lowered<Expr> {
        let name = call.func_name.as_str();
        // What looks like a method may be a function of a library: `optional.of(x)`.
        let qualified = match call.target.as_deref().map(|target| &target.expr) {
            Some(ast::Expr::Ident(library)) if self.place(library).is_none() => {
                Some(format!("{library}.{name}"))
            }
            _ => None,
        };
        let count = call.args.len();
        let (function, target) = match qualified.and_then(|name| functions::find_global(&name, count)) {
            Some(function) => (Some(function), None),
            None => match &call.target {
                Some(target) => (functions::find_method(name, count), Some(&**target)),
                None => (functions::find_global(name, count), None),
            },
        };
        let function =
            function.ok_or_else(|| format!("undeclared reference to '{name}' with {count} arguments"))?;
        let arguments = target.into_iter().chain(&call.args).map(|argument| self.expression(argument));
        let mut arguments = arguments.collect::<Lowered<Vec<_>>>()?;
        if function.takes_pattern()
            && let Some(Expr::Literal(pattern)) = arguments.get_mut(1)
            && let Value::String(source) = &*pattern
        {
            *pattern = Value::Pattern(Arc::new(Pattern::new(source)));
        }
        Ok(Expr::Call { function, arguments: arguments.into() })
    }

    fn list(&mut self, list: &ast::ListExpr) -> Lowered<Expr> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            items.push(Item {
                value: self.expression(element)?,
                optional: list.optional_indices.contains(&index),
            });
        }
        Ok(Expr::List(items.into()))
    }

    fn map(&mut self, map: &ast::MapExpr) -> Lowered<Expr> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("a map has keys, not fields".to_owned());
            };
            let value = Item { value: self.expression(&entry.value)?, optional: entry.optional };
            entries.push((self.expression(&entry.key)?, value));
        }
        Ok(Expr::Map(entries.into()))
    }

    fn fold(&mut self, comprehension: &ast::ComprehensionExpr) -> Lowered<Expr> {
        if comprehension.iter_var2.is_some() {
            return Err("loops over two variables are not supported".to_owned());
        }
        let range = self.expression(&comprehension.iter_range)?;
        let start = self.expression(&comprehension.accu_init)?;
        let outside = self.scope.len();
        let accumulator = Variable { name: comprehension.accu_var.clone(), taken: false };
        self.scope.push(accumulator);
        self.scope.push(Variable { name: comprehension.iter_var.clone(), taken: false });
        let condition = self.expression(&comprehension.loop_cond)?;
        // Macros look at what they build up once on each way through a step, so it can be changed in place.
        self.scope[outside].taken = comprehension.accu_var == ACCUMULATOR;
        let step = self.expression(&comprehension.loop_step)?;
        self.scope[outside].taken = false;
        self.scope.truncate(outside + 1);
        let result = self.expression(&comprehension.result)?;
        self.scope.truncate(outside);
        Ok(Expr::Fold(Box::new(Fold { range, start, condition, step, result })))
    }
}

fn literal(value: &LiteralValue) -> Value<'static> {
    match value {
        LiteralValue::Boolean(truth) => Value::Bool(*truth.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(Arc::from(bytes.inner())),
        LiteralValue::Double(double) => Value::Double(*double.inner()),
        LiteralValue::Int(int) => Value::Int(*int.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::String(Text::Shared(text.inner().into())),
        LiteralValue::UInt(uint) => Value::UInt(*uint.inner()),
    }
}
