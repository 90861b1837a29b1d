//! Running templates.
//!
//! [`State`] walks one template's tree; [`eval`] evaluates pipelines, [`field`] follows `.a.b`, [`call`] checks and passes
//! arguments. What Go does with `reflect.Value` is done with a [`Slot`] here: it tells a value that is absent from a nil
//! one, and one that came out of an `interface {}` from one of known type, which decides several errors' words.

mod call;
mod eval;
mod field;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use call::without_no_value;

use crate::ast::{Branch, Command, Expr, List, Node, Pipe, Tree};
use crate::error::{CallError, RenderError};
use crate::gofmt::{self, quote};
use crate::limits::{Budget, LimitError};
use crate::template::Templates;
use crate::value::{Slot, UintKind, Value, list_item, map_item};

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The node that an error is reported at.
#[derive(Clone, Copy)]
enum At<'t> {
    Nowhere,
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Expr(&'t Expr),
}

type Walked = Result<Flow, RenderError>;
type Evaluated = Result<Slot, RenderError>;

/// What all templates of one rendering share.
pub(crate) struct Run<'r> {
    pub(crate) budget: &'r Budget,
    /// How often each template is being included, to stop it at Helm's limit.
    pub(crate) included: RefCell<BTreeMap<String, u32>>,
}

/// One template being executed.
struct State<'t> {
    templates: &'t Templates,
    tree: &'t Tree,
    run: &'t Run<'t>,
    at: At<'t>,
    variables: Vec<(Arc<str>, Slot)>,
}

impl Templates {
    /// Renders a template with `data` as its dot.
    pub fn render(&self, name: &str, data: &Value) -> Result<Vec<u8>, RenderError> {
        let budget = Budget::new(self.limits());
        let mut out = Vec::new();
        self.render_into(name, data, &budget, &mut out)?;
        Ok(out)
    }

    /// Renders a template on a budget that several renderings share, and appends the output.
    pub fn render_into(
        &self,
        name: &str,
        data: &Value,
        budget: &Budget,
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        let Some(tree) = self.tree(name) else {
            let (name, root) = (quote::quoted(name.as_bytes()), quote::quoted(self.name().as_bytes()));
            let text = format!("template: no template {name} associated with template {root}");
            return Err(RenderError { text, cause: None, limit: None, raised: None });
        };
        budget.reset_depth();
        let run = Run { budget, included: RefCell::default() };
        execute(self, tree, &run, Slot::concrete(data.clone()), out)
    }
}

/// Executes a template of a set and appends what it prints.
fn execute(
    templates: &Templates,
    tree: &Tree,
    run: &Run<'_>,
    dot: Slot,
    out: &mut Vec<u8>,
) -> Result<(), RenderError> {
    let variables = vec![("$".into(), dot.clone())];
    let mut state = State { templates, tree, run, at: At::Nowhere, variables };
    state.walk_list(&dot, &tree.root, out).map(|_| ())
}

impl<'t> State<'t> {
    fn error(&self, message: impl Into<String>) -> RenderError {
        RenderError { text: self.located(&message.into()), cause: None, limit: None, raised: None }
    }

    fn limit(&self, error: LimitError) -> RenderError {
        RenderError { limit: Some(error), ..self.error(error.to_string()) }
    }

    /// The error of a function that was called under `name`.
    fn call_failed(&self, name: &str, error: CallError) -> RenderError {
        let located = self.error(format!("error calling {name}: {error}"));
        match error {
            CallError::Failed(_) => located,
            CallError::Raised(message) => RenderError { raised: Some(message), ..located },
            CallError::Limit(limit) => RenderError { limit: Some(limit), ..located },
            CallError::Template { error, .. } => RenderError {
                limit: error.limit,
                raised: error.raised.clone(),
                cause: Some(error),
                ..located
            },
        }
    }

    /// A message with the place it is about.
    fn located(&self, message: &str) -> String {
        let (pos, context) = match self.at {
            At::Nowhere => return format!("template: {}: {message}", self.tree.name),
            At::Node(node) => (node.pos(), node.to_string()),
            At::Pipe(pipe) => (pipe.pos, pipe.to_string()),
            At::Command(command) => (command.pos, command.to_string()),
            At::Expr(expr) => (expr.pos, expr.to_string()),
        };
        let location = self.tree.source.location(pos);
        let name = quote::quoted(self.tree.name.as_bytes());
        format!("template: {location}: executing {name} at <{context}>: {message}")
    }

    fn write(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), RenderError> {
        self.run.budget.charge_bytes(bytes.len()).map_err(|error| self.limit(error))?;
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn walk_list(&mut self, dot: &Slot, list: &'t List, out: &mut Vec<u8>) -> Walked {
        self.run.budget.enter().map_err(|error| self.limit(error))?;
        let mut flow = Flow::Next;
        for node in &list.nodes {
            flow = self.walk(dot, node, out)?;
            if flow != Flow::Next {
                break;
            }
        }
        self.run.budget.leave();
        Ok(flow)
    }

    fn walk(&mut self, dot: &Slot, node: &'t Node, out: &mut Vec<u8>) -> Walked {
        self.run.budget.charge_steps(1).map_err(|error| self.limit(error))?;
        if let Node::Text(text) = node {
            self.write(text.as_bytes(), out)?;
            return Ok(Flow::Next);
        }
        self.at = At::Node(node);
        match node {
            Node::Action { pipe, .. } => {
                let slot = self.pipeline(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.at = At::Node(node);
                    self.print(&slot, out)?;
                }
                Ok(Flow::Next)
            }
            Node::If(branch) => self.walk_if(dot, branch, false, out),
            Node::With(branch) => self.walk_if(dot, branch, true, out),
            Node::Range(branch) => self.walk_range(dot, branch, out),
            Node::Template { name, pipe, .. } => {
                let name = name.to_text();
                self.walk_template(dot, node, &name, pipe.as_ref(), out)?;
                Ok(Flow::Next)
            }
            Node::Break => Ok(Flow::Break),
            Node::Continue => Ok(Flow::Continue),
            Node::Text(_) => Ok(Flow::Next),
        }
    }

    fn print(&self, slot: &Slot, out: &mut Vec<u8>) -> Result<(), RenderError> {
        match slot {
            Slot::Invalid => self.write(b"<no value>", out),
            // The common case, without a copy.
            Slot::Typed(Value::String(text)) => self.write(text.as_bytes(), out),
            slot => {
                let text = gofmt::text(self.run.budget, slot.value()).map_err(|error| self.limit(error))?;
                out.extend_from_slice(&text);
                Ok(())
            }
        }
    }

    fn walk_if(&mut self, dot: &Slot, branch: &'t Branch, sets_dot: bool, out: &mut Vec<u8>) -> Walked {
        let known = self.variables.len();
        let slot = self.pipeline(dot, &branch.pipe)?;
        let flow = if slot.value().truth() {
            self.walk_list(if sets_dot { &slot } else { dot }, &branch.list, out)?
        } else if let Some(otherwise) = &branch.otherwise {
            self.walk_list(dot, otherwise, out)?
        } else {
            Flow::Next
        };
        self.variables.truncate(known);
        Ok(flow)
    }

    fn walk_template(
        &mut self,
        dot: &Slot,
        node: &'t Node,
        name: &str,
        pipe: Option<&'t Pipe>,
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        let Some(tree) = self.templates.tree(name) else {
            let name = quote::quoted(name.as_bytes());
            return Err(self.error(format!("template {name} not defined")));
        };
        let dot = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Slot::Invalid,
        };
        self.at = At::Node(node);
        self.run.budget.enter().map_err(|error| self.limit(error))?;
        execute(self.templates, tree, self.run, dot, out)?;
        self.run.budget.leave();
        Ok(())
    }

    fn walk_range(&mut self, dot: &Slot, branch: &'t Branch, out: &mut Vec<u8>) -> Walked {
        let known = self.variables.len();
        let slot = self.pipeline(dot, &branch.pipe)?;
        let ran = match &*slot.value().underlying() {
            Value::Nil => Some(false),
            Value::Int(count, kind) => {
                let kind = *kind;
                self.range_count(slot.value(), branch)?;
                Some(self.iterate(
                    branch,
                    0..*count,
                    |at| (Slot::Invalid, Slot::Typed(Value::Int(at, kind))),
                    out,
                )?)
            }
            Value::Uint(count, kind) => {
                let kind = *kind;
                self.range_count(slot.value(), branch)?;
                Some(self.iterate(
                    branch,
                    0..*count,
                    |at| (Slot::Invalid, Slot::Typed(Value::Uint(at, kind))),
                    out,
                )?)
            }
            Value::List(list) => {
                let items = list.items().iter().cloned().enumerate();
                Some(self.iterate(branch, items, |(at, item)| (index(at), list_item(list, item)), out)?)
            }
            Value::Bytes(bytes) => {
                let items = bytes.as_bytes().iter().copied().enumerate();
                let byte = |byte: u8| Slot::Typed(Value::Uint(byte.into(), UintKind::Uint8));
                Some(self.iterate(branch, items, |(at, item)| (index(at), byte(item)), out)?)
            }
            Value::Map(map) => {
                let kind = map.kind();
                let item = |(key, value)| (Slot::Typed(Value::String(key)), map_item(kind, value));
                Some(self.iterate(branch, map.entries().into_iter(), item, out)?)
            }
            _ => None,
        };
        let Some(ran) = ran else {
            let shown = gofmt::text(self.run.budget, slot.value()).map_err(|error| self.limit(error))?;
            let shown = String::from_utf8_lossy(&shown).into_owned();
            return Err(self.error(format!("range can't iterate over {shown}")));
        };
        let mut flow = Flow::Next;
        if !ran && let Some(otherwise) = &branch.otherwise {
            flow = self.walk_list(dot, otherwise, out)?;
        }
        self.variables.truncate(known);
        Ok(flow)
    }

    /// A range over a number has no second variable.
    fn range_count(&mut self, count: &Value, branch: &'t Branch) -> Result<(), RenderError> {
        if branch.pipe.variables.len() < 2 {
            return Ok(());
        }
        let shown = gofmt::text(self.run.budget, count).map_err(|error| self.limit(error))?;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        Err(self.error(format!("can't use {shown} to iterate over more than one variable")))
    }

    /// Walks the body once per item and tells whether there was one.
    fn iterate<T>(
        &mut self,
        branch: &'t Branch,
        items: impl Iterator<Item = T>,
        slots: impl Fn(T) -> (Slot, Slot),
        out: &mut Vec<u8>,
    ) -> Result<bool, RenderError> {
        let known = self.variables.len();
        let mut ran = false;
        for item in items {
            ran = true;
            let (index, element) = slots(item);
            self.bind(branch, index, &element)?;
            let flow = self.walk_list(&element, &branch.list, out)?;
            self.variables.truncate(known);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(ran)
    }

    /// Sets the variables of a range for one item. Declared ones are on top of the stack, put there by the pipeline.
    fn bind(&mut self, branch: &'t Branch, index: Slot, element: &Slot) -> Result<(), RenderError> {
        let pipe = &branch.pipe;
        let values = match &*pipe.variables {
            [] => return Ok(()),
            [_] => vec![element.clone()],
            [..] => vec![index, element.clone()],
        };
        if pipe.assigns {
            for (name, value) in pipe.variables.iter().zip(values) {
                self.assign(name, value)?;
            }
            return Ok(());
        }
        let first = self.variables.len().saturating_sub(values.len());
        for (place, value) in self.variables[first..].iter_mut().zip(values) {
            place.1 = value;
        }
        Ok(())
    }

    fn assign(&mut self, name: &str, value: Slot) -> Result<(), RenderError> {
        match self.variables.iter_mut().rev().find(|(known, _)| **known == *name) {
            Some(place) => {
                place.1 = value;
                Ok(())
            }
            None => Err(self.error(format!("undefined variable: {name}"))),
        }
    }
}

fn index(at: usize) -> Slot {
    Slot::Typed(Value::int(i64::try_from(at).unwrap_or(i64::MAX)))
}
