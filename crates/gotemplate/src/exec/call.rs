//! Calls: counting, evaluating and checking arguments.

use std::fmt::Display;

use super::{At, Evaluated, Run, Slot, State, execute};
use crate::ast::Expr;
use crate::error::{CallError, RenderError};
use crate::gofmt::quote;
use crate::template::Templates;
use crate::value::{Function, FunctionBody, Str, Type, Value};

/// How often one template may be nested in itself through `include`.
const MAX_INCLUDES: u32 = 1000;

impl<'t> State<'t> {
    /// Calls a function by its name. Argument errors are reported at `expr`, the function's own at `at`.
    pub(super) fn function(
        &mut self,
        dot: &Slot,
        name: &str,
        expr: &'t Expr,
        at: At<'t>,
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        self.at = At::Expr(expr);
        let Some(function) = self.templates.functions().get(name) else {
            let name = quote::quoted(name.as_bytes());
            return Err(self.error(format!("{name} is not a defined function")));
        };
        self.call(dot, function, name, at, args, piped)
    }

    pub(super) fn call(
        &mut self,
        dot: &Slot,
        function: &Function,
        name: &str,
        at: At<'t>,
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        self.check_count(function, name, args.len(), piped.is_some())?;
        self.run.budget.enter().map_err(|error| self.limit(error))?;
        let result = if let FunctionBody::ShortCircuit { stops_at } = function.body {
            self.short_circuit(dot, stops_at, args, piped)?
        } else {
            let slots = self.arguments(dot, function, args, piped)?;
            let callee: &dyn Display = match args.first() {
                Some(first) => first,
                None => &"",
            };
            match self.invoke(function, callee, slots) {
                Ok(slot) => slot,
                Err(error) => {
                    self.at = at;
                    return Err(self.call_failed(name, error));
                }
            }
        };
        self.run.budget.leave();
        Ok(result)
    }

    fn check_count(
        &self,
        function: &Function,
        name: &str,
        args: usize,
        piped: bool,
    ) -> Result<(), RenderError> {
        let given = args + usize::from(piped);
        let params = function.params.len();
        if function.variadic {
            let fixed = params.saturating_sub(1);
            if given < fixed {
                // Parity: the piped argument is not counted in this message.
                let message = format!("wrong number of args for {name}: want at least {fixed} got {args}");
                return Err(self.error(message));
            }
        } else if given != params {
            return Err(self.error(format!("wrong number of args for {name}: want {params} got {given}")));
        }
        Ok(())
    }

    /// `and` and `or`: the first argument that decides, else the last one.
    fn short_circuit(
        &mut self,
        dot: &Slot,
        stops_at: bool,
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Evaluated {
        let mut slot = Slot::Invalid;
        for arg in args {
            slot = self.argument(dot, &Type::Reflect, arg)?;
            if slot.value().truth() == stops_at {
                return Ok(slot);
            }
        }
        Ok(piped.unwrap_or(slot))
    }

    fn arguments(
        &mut self,
        dot: &Slot,
        function: &Function,
        args: &'t [Expr],
        piped: Option<Slot>,
    ) -> Result<Vec<Slot>, RenderError> {
        let mut slots = Vec::with_capacity(args.len() + 1);
        for arg in args {
            let expected = parameter(function, slots.len());
            slots.push(self.argument(dot, expected, arg)?);
        }
        if let Some(piped) = piped {
            slots.push(self.validated(piped, parameter(function, slots.len()))?);
        }
        Ok(slots)
    }

    /// `callee` is how the template wrote the first argument.
    fn invoke(&self, function: &Function, callee: &dyn Display, slots: Vec<Slot>) -> Result<Slot, CallError> {
        let budget = self.run.budget;
        match &function.body {
            FunctionBody::Slots(body) => body(budget, &slots),
            FunctionBody::Plain(body) => {
                let value = body(budget, slots.into_iter().map(Slot::into_value).collect())?;
                if let Value::String(text) | Value::Bytes(text) = &value {
                    budget.charge_bytes(text.len())?;
                }
                Ok(Slot::concrete(value))
            }
            FunctionBody::Include => {
                let [name, data] = two(slots);
                let name = name.into_value();
                let name = name.as_str().map(Str::to_text).unwrap_or_default();
                include(self.templates, self.run, &name, data).map(|text| Slot::Typed(text.into()))
            }
            FunctionBody::Tpl => {
                let [text, data] = two(slots);
                let text = text.into_value();
                let text = text.as_str().map(Str::to_text).unwrap_or_default();
                tpl(self.templates, self.run, &text, data).map(|text| Slot::Typed(text.into()))
            }
            FunctionBody::Call => match slots.first().map_or(&Value::Nil, Slot::value) {
                Value::Nil => Err("call of nil".into()),
                other => Err(format!("non-function {callee} of type {}", other.type_name()).into()),
            },
            FunctionBody::ShortCircuit { .. } => Ok(Slot::Invalid),
        }
    }
}

fn parameter(function: &Function, at: usize) -> &Type {
    let last = function.params.len().saturating_sub(1);
    function.params.get(at.min(last)).unwrap_or(&Type::Any)
}

/// Two arguments; the evaluator has counted them.
fn two(slots: Vec<Slot>) -> [Slot; 2] {
    slots.try_into().unwrap_or([Slot::Invalid, Slot::Invalid])
}

/// The dot of a template that was given as an `interface {}`.
fn as_dot(data: Slot) -> Slot {
    Slot::concrete(data.into_value())
}

fn include(templates: &Templates, run: &Run<'_>, name: &str, data: Slot) -> Result<Vec<u8>, CallError> {
    let depth = *run.included.borrow().get(name).unwrap_or(&0);
    if depth > MAX_INCLUDES {
        let message =
            format!("rendering template has a nested reference name: {name}: unable to execute template");
        return Err(message.into());
    }
    let Some(tree) = templates.tree(name) else {
        let (name, root) = (quote::quoted(name.as_bytes()), quote::quoted(templates.name().as_bytes()));
        return Err(format!("template: no template {name} associated with template {root}").into());
    };
    run.included.borrow_mut().insert(name.to_owned(), depth + 1);
    let mut out = Vec::new();
    let result = execute(templates, tree, run, as_dot(data), &mut out);
    run.included.borrow_mut().insert(name.to_owned(), depth);
    result.map_err(|error| CallError::Template { prefix: String::new(), error: Box::new(error) })?;
    Ok(out)
}

fn tpl(templates: &Templates, run: &Run<'_>, text: &str, data: Slot) -> Result<Vec<u8>, CallError> {
    run.budget.charge_bytes(text.len())?;
    let shown = || quote::quoted(text.as_bytes());
    let mut extended = templates.clone();
    let name = templates.name().to_owned();
    let tree = match extended.parse_own(&name, text) {
        Ok(tree) => tree,
        Err(error) => return Err(format!("cannot parse template {}: {error}", shown()).into()),
    };
    let mut out = Vec::new();
    execute(&extended, &tree, run, as_dot(data), &mut out).map_err(|error| CallError::Template {
        prefix: format!("error during tpl function execution for {}: ", shown()),
        error: Box::new(error),
    })?;
    Ok(without_no_value(out))
}

/// Removes `<no value>`, as Helm does with everything it renders.
pub(crate) fn without_no_value(text: Vec<u8>) -> Vec<u8> {
    const MARK: &[u8] = b"<no value>";
    if !text.windows(MARK.len()).any(|window| window == MARK) {
        return text;
    }
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + MARK.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}
