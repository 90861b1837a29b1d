//! Pipelines, commands and operands.

use super::{At, Evaluated, Slot, State};
use crate::ast::{Command, Expr, Number, Pipe, Term};
use crate::error::RenderError;
use crate::value::{Type, Value};

impl<'t> State<'t> {
    /// Evaluates a pipeline and sets its variables, which outlive it.
    pub(super) fn pipeline(&mut self, dot: &Slot, pipe: &'t Pipe) -> Evaluated {
        self.at = At::Pipe(pipe);
        self.run.budget.enter().map_err(|error| self.limit(error))?;
        let mut piped: Option<Slot> = None;
        for command in &pipe.commands {
            let slot = self.command(dot, command, piped.take())?;
            // What an interface holds is what flows on.
            piped = Some(match slot {
                Slot::Interface(value) => Slot::concrete(value),
                slot => slot,
            });
        }
        self.run.budget.leave();
        let slot = piped.unwrap_or(Slot::Invalid);
        for name in &pipe.variables {
            if pipe.assigns {
                self.assign(name, slot.clone())?;
            } else {
                self.variables.push((name.clone(), slot.clone()));
            }
        }
        Ok(slot)
    }

    fn command(&mut self, dot: &Slot, command: &'t Command, piped: Option<Slot>) -> Evaluated {
        let Some(first) = command.args.first() else { return Ok(Slot::Invalid) };
        let args = &command.args[1..];
        match &first.term {
            Term::Field(names) => {
                self.at = At::Expr(first);
                return self.fields(dot, dot.clone(), first, names, args, piped);
            }
            Term::Chain(inner, names) => return self.chain(dot, first, inner, names, args, piped),
            Term::Function(name) => {
                return self.function(dot, name, first, At::Command(command), args, piped);
            }
            Term::Pipe(pipe) => {
                self.refuse_arguments(first, args, piped.as_ref())?;
                return self.pipeline(dot, pipe);
            }
            Term::Variable(name, names) => return self.variable(dot, first, name, names, args, piped),
            _ => {}
        }
        self.at = At::Expr(first);
        self.refuse_arguments(first, args, piped.as_ref())?;
        match &first.term {
            Term::Bool(truth) => Ok(Slot::Typed(Value::Bool(*truth))),
            Term::Dot => Ok(dot.clone()),
            Term::Number(number) => self.constant(number),
            Term::String { text, .. } => Ok(Slot::Typed(Value::String(text.clone()))),
            _ => Err(self.error("nil is not a command")),
        }
    }

    fn refuse_arguments(&self, first: &Expr, args: &[Expr], piped: Option<&Slot>) -> Result<(), RenderError> {
        if args.is_empty() && piped.is_none() {
            return Ok(());
        }
        let shown = first.to_string();
        Err(self.error(format!("can't give argument to non-function {shown}")))
    }

    /// The value of a number where nothing says which type is wanted.
    fn constant(&self, number: &Number) -> Evaluated {
        let text = number.text.as_str();
        if let Some((re, im)) = number.complex {
            return Ok(Slot::Typed(Value::Complex(re, im)));
        }
        let hex = text.len() > 2
            && (text.starts_with("0x") || text.starts_with("0X"))
            && !text.contains(['p', 'P']);
        let looks_float = !hex && !text.starts_with('\'') && text.contains(['.', 'e', 'E', 'p', 'P']);
        match (number.float, number.int) {
            (Some(float), _) if looks_float => Ok(Slot::Typed(Value::Float(float))),
            (_, Some(int)) => Ok(Slot::Typed(Value::int(int))),
            _ => Err(self.error(format!("{text} overflows int"))),
        }
    }

    pub(super) fn variable(
        &mut self,
        dot: &Slot,
        expr: &'t Expr,
        name: &str,
        names: &'t [String],
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        self.at = At::Expr(expr);
        let Some((_, value)) = self.variables.iter().rev().find(|(known, _)| **known == *name) else {
            return Err(self.error(format!("undefined variable: {name}")));
        };
        let value = value.clone();
        if names.is_empty() {
            self.refuse_arguments(expr, args, piped.as_ref())?;
            return Ok(value);
        }
        self.fields(dot, value, expr, names, args, piped)
    }

    /// `(pipeline).Name`.
    pub(super) fn chain(
        &mut self,
        dot: &Slot,
        expr: &'t Expr,
        inner: &'t Expr,
        names: &'t [String],
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        self.at = At::Expr(expr);
        if matches!(inner.term, Term::Nil) {
            return Err(self.error(format!("indirection through explicit nil in {expr}")));
        }
        self.at = At::Expr(inner);
        let receiver = match &inner.term {
            Term::Pipe(pipe) => self.pipeline(dot, pipe)?,
            Term::Function(name) => self.function(dot, name, inner, At::Expr(inner), &[], None)?,
            _ => return Err(self.error(format!("can't handle {inner} for arg of type <nil>"))),
        };
        self.fields(dot, receiver, expr, names, args, piped)
    }

    /// Evaluates an argument for a parameter of the given type.
    pub(super) fn argument(&mut self, dot: &Slot, expected: &Type, expr: &'t Expr) -> Evaluated {
        self.at = At::Expr(expr);
        let slot = match &expr.term {
            Term::Dot => dot.clone(),
            Term::Nil if expected.can_be_nil() => return Ok(nil_of(expected)),
            Term::Nil => return Err(self.error(format!("cannot assign nil to {}", expected.name()))),
            Term::Field(names) => self.fields(dot, dot.clone(), expr, names, &[], None)?,
            Term::Variable(name, names) => self.variable(dot, expr, name, names, &[], None)?,
            Term::Pipe(pipe) => self.pipeline(dot, pipe)?,
            Term::Function(name) => self.function(dot, name, expr, At::Expr(expr), &[], None)?,
            Term::Chain(inner, names) => self.chain(dot, expr, inner, names, &[], None)?,
            Term::Bool(_) | Term::Number(_) | Term::String { .. } => {
                return self.literal(expected, expr);
            }
        };
        self.validated(slot, expected)
    }

    fn literal(&self, expected: &Type, expr: &Expr) -> Evaluated {
        let value = match (expected, &expr.term) {
            (Type::Any | Type::Reflect, Term::Number(number)) => return self.constant(number),
            (Type::Any | Type::Reflect | Type::Bool, Term::Bool(truth)) => Some(Value::Bool(*truth)),
            (Type::Any | Type::Reflect | Type::String, Term::String { text, .. }) => {
                Some(Value::String(text.clone()))
            }
            (Type::Int, Term::Number(number)) => number.int.map(Value::int),
            (Type::Int64, Term::Number(number)) => number.int.map(Value::int64),
            (Type::Float, Term::Number(number)) => number.float.map(Value::Float),
            _ => None,
        };
        if let Some(value) = value {
            return Ok(Slot::Typed(value));
        }
        let wanted = match expected {
            Type::Bool => "bool",
            Type::String => "string",
            Type::Int | Type::Int64 => "integer",
            Type::Float => "float",
            _ => {
                let name = expected.name();
                return Err(self.error(format!("can't handle {expr} for arg of type {name}")));
            }
        };
        Err(self.error(format!("expected {wanted}; found {expr}")))
    }

    /// Checks that a value can be passed as a parameter of the given type.
    pub(super) fn validated(&self, slot: Slot, expected: &Type) -> Evaluated {
        if *expected == Type::Reflect {
            return Ok(slot);
        }
        let name = expected.name();
        match slot {
            Slot::Invalid if expected.can_be_nil() => Ok(nil_of(expected)),
            Slot::Invalid => Err(self.error(format!("invalid value; expected {name}"))),
            slot if expected.accepts(slot.value()) => Ok(slot),
            Slot::Interface(Value::Nil) => {
                Err(self.error(format!("wrong type for value; expected {name}; got interface {{}}")))
            }
            slot => {
                let got = slot.value().type_name();
                Err(self.error(format!("wrong type for value; expected {name}; got {got}")))
            }
        }
    }
}

/// A parameter type's nil.
fn nil_of(expected: &Type) -> Slot {
    match expected {
        Type::Reflect => Slot::Invalid,
        Type::Any => Slot::Interface(Value::Nil),
        other => Slot::Typed(other.zero()),
    }
}
